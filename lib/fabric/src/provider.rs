//! The trait of fabric managers, and the managers that there are.

use std::{future::Future, sync::Arc, time::Duration};

use hostler_api::fabric::DeviceIdentity;
use tokio::sync::Semaphore;

use crate::{
    AttachKey, AttachRequest, ExpectedConnection, FabricConnection, FabricError, FabricInventory, FabricOutcome,
    FabricWatch, Isolation, fake::FakeFabric, redfish::RedfishProvider,
};

/// A manager of a fabric.
///
/// Every call ends by itself. An error is a refusal, or a failure before anything was changed, but for
/// [`Mismatch`](FabricError::Mismatch): the manager then made another connection, under the key. Once a manager may have
/// changed something else, the result is a [`FabricOutcome`].
pub trait FabricProvider: Sync {
    /// Reads everything that the manager has.
    fn inventory(&self) -> impl Future<Output = Result<FabricInventory, FabricError>> + Send;

    /// Attaches a device to a host; for one without memory, the memory is made before. A request that was carried out
    /// under its key before is success; a key that was used for another request, and a device that another connection
    /// holds, are refusals. Memory that was made stays with the device, also where nothing was attached in the end.
    fn attach(
        &self,
        request: &AttachRequest,
    ) -> impl Future<Output = Result<FabricOutcome<FabricConnection>, FabricError>> + Send;

    /// Reads the state of an attachment: its connection, the work on it, or that there is none.
    fn state(
        &self,
        key: &AttachKey,
    ) -> impl Future<Output = Result<FabricOutcome<FabricConnection>, FabricError>> + Send;

    /// Detaches the device that was attached under a key. Where none is, the call succeeds. An attachment that is under
    /// way is not ended: the call says so, and is to be repeated.
    fn detach(&self, key: &AttachKey) -> impl Future<Output = Result<FabricOutcome<()>, FabricError>> + Send;

    /// Takes a device from hosts that cannot be reached any more, and ends connections that another program has made: of
    /// the device's connections those that are expected, and no other one. Only "done" means that none of these is left.
    fn isolate(
        &self,
        device: DeviceIdentity,
        expected: &[ExpectedConnection],
    ) -> impl Future<Output = Result<FabricOutcome<Isolation>, FabricError>> + Send;

    /// Frees the memory that was made for a device under a key: what is on it must be erased before. Where there is none,
    /// the call succeeds; memory under another key is left, since the call may come late. As long as a connection holds
    /// the device or the memory, it is refused.
    fn free(
        &self,
        device: DeviceIdentity,
        key: &AttachKey,
    ) -> impl Future<Output = Result<FabricOutcome<()>, FabricError>> + Send;

    /// Returns a watch that reads the inventory after each pause and hints at changes. Watches with the same turns read a
    /// few managers at once: so many as there are permits.
    fn watch(&self, pause: Duration, turns: Arc<Semaphore>) -> FabricWatch<'_, Self>
    where
        Self: Sized,
    {
        FabricWatch::new(self, pause, turns)
    }
}

/// The managers that there are.
#[derive(Clone, Debug)]
pub enum Provider {
    /// A Redfish service.
    Redfish(RedfishProvider),
    /// A fabric in memory.
    Fake(FakeFabric),
}

impl FabricProvider for Provider {
    async fn inventory(&self) -> Result<FabricInventory, FabricError> {
        match self {
            Self::Redfish(provider) => provider.inventory().await,
            Self::Fake(provider) => provider.inventory().await,
        }
    }

    async fn attach(&self, request: &AttachRequest) -> Result<FabricOutcome<FabricConnection>, FabricError> {
        match self {
            Self::Redfish(provider) => provider.attach(request).await,
            Self::Fake(provider) => provider.attach(request).await,
        }
    }

    async fn state(&self, key: &AttachKey) -> Result<FabricOutcome<FabricConnection>, FabricError> {
        match self {
            Self::Redfish(provider) => provider.state(key).await,
            Self::Fake(provider) => provider.state(key).await,
        }
    }

    async fn detach(&self, key: &AttachKey) -> Result<FabricOutcome<()>, FabricError> {
        match self {
            Self::Redfish(provider) => provider.detach(key).await,
            Self::Fake(provider) => provider.detach(key).await,
        }
    }

    async fn isolate(
        &self,
        device: DeviceIdentity,
        expected: &[ExpectedConnection],
    ) -> Result<FabricOutcome<Isolation>, FabricError> {
        match self {
            Self::Redfish(provider) => provider.isolate(device, expected).await,
            Self::Fake(provider) => provider.isolate(device, expected).await,
        }
    }

    async fn free(&self, device: DeviceIdentity, key: &AttachKey) -> Result<FabricOutcome<()>, FabricError> {
        match self {
            Self::Redfish(provider) => provider.free(device, key).await,
            Self::Fake(provider) => provider.free(device, key).await,
        }
    }
}
