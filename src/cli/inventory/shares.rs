//! Holders of the devices, as the daemon tells them where there is one that answers.

use std::{collections::BTreeMap, path::Path, time::Duration};

use hostler_api::{Chain, few};
use hostler_backend::{BackendWarning, Device};

use crate::{
    cli::{client::ClientError, client::DaemonClient, plain::for_people},
    inventory::view::DeviceShares,
    units::amount,
    usage::holders::MachineUsage,
};

/// The inventory is for hosts without a daemon too: one that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks the daemon for its machine. `None` where there is none, or it is not ours to ask; a warning where there is one
/// that does not answer.
pub(super) fn ask(socket: &Path) -> Result<Option<MachineUsage>, BackendWarning> {
    if !socket.exists() {
        return Ok(None);
    }
    match DaemonClient::at(socket.to_owned()).patient(PATIENCE).get("/v1/usage") {
        Ok(usage) => Ok(Some(usage)),
        Err(ClientError::NotRunning(_) | ClientError::Gone(_) | ClientError::NotAllowed(_)) => Ok(None),
        Err(error) => {
            let reason = format!("what is held is not known: {}", Chain(&error));
            Err(BackendWarning { path: socket.display().to_string(), reason })
        }
    }
}

/// The shares of each device, by backend and name; empty without the daemon.
#[derive(Debug, Default)]
pub(in crate::cli) struct KnownShares(BTreeMap<(String, String), DeviceShares>);

impl KnownShares {
    /// As the daemon says it.
    pub(super) fn of(usage: &MachineUsage) -> Self {
        Self(usage.shares())
    }

    /// Returns the shares of one device; `None` where no daemon could be asked.
    pub(super) fn get(&self, backend: &str, device: &Device) -> Option<&DeviceShares> {
        self.0.get(&(backend.to_owned(), device.name.to_string()))
    }
}

/// `cpus=32 memory=61.5 GiB`, with what is free of it where that is known: `cpus=32 (28 free)`.
pub(super) fn capacity(device: &Device, shares: Option<&DeviceShares>) -> String {
    let parts = device.capacity.iter().map(|(name, capacity)| {
        let free = shares.and_then(|shares| shares.free.get(name));
        let free = free.map(|free| format!(" ({} free)", amount(*free))).unwrap_or_default();
        format!("{name}={}{free}", amount(capacity.value))
    });
    parts.collect::<Vec<_>>().join(" ")
}

/// The holders in words; empty where there are none.
pub(super) fn holders(shares: Option<&DeviceShares>) -> String {
    shares.map(|shares| few(for_people(shares.holders.clone()))).unwrap_or_default()
}
