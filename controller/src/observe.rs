//! The watches that the parts of the controller share: one reflector for each kind, however many parts read it.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::Chain;
use hostler_cluster::{ApiClient, RawObject};
use hostler_process::Tasks;
use hostler_reconcile::{Reflector, ReflectorEvent, ReflectorKind};
use tokio::sync::mpsc;

use crate::{
    observed::{ObservedKind, ObservedObject},
    requests::SeenRequest,
};

/// Reflectors, by kind. They end when the last copy is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Watches(Arc<BTreeMap<ObservedKind, Reflector>>);

impl Watches {
    /// Starts a reflector for each kind. Kinds without subscribers cost no call.
    pub(crate) fn start(client: &ApiClient, tasks: &Tasks) -> Self {
        let reflectors = ObservedKind::ALL.map(|kind| {
            let (reflector, task) = Reflector::new(client.clone(), reflector_kind(kind));
            let stop = tasks.stop_token();
            tasks.service(kind.plural(), async move {
                tokio::select! {
                    // Dropped at the end only.
                    () = task => {}
                    // Cancel safe: the token stays cancelled.
                    () = stop.cancelled() => {}
                }
                Ok(())
            });
            (kind, reflector)
        });
        Self(Arc::new(reflectors.into()))
    }

    /// Sends news of a kind to `events_tx` under this name, beginning with a list, until its receiver is dropped.
    pub(crate) async fn subscribe<K: Copy + Send + 'static>(
        &self,
        kind: ObservedKind,
        name: K,
        events_tx: &mpsc::Sender<(K, ReflectorEvent)>,
    ) {
        if let Some(reflector) = self.0.get(&kind) {
            reflector.subscribe(name, events_tx).await;
        }
    }
}

fn reflector_kind(kind: ObservedKind) -> ReflectorKind {
    ReflectorKind {
        plural: kind.plural(),
        collections: Box::new(move |version| kind.collections(version)),
        is_optional: kind.is_optional(),
    }
}

/// Reads an object, or says why it cannot be read.
pub(crate) fn read(kind: ObservedKind, object: &RawObject) -> Result<ObservedObject, String> {
    let read = match kind {
        ObservedKind::Node => object.read_one_of_many().map(ObservedObject::Node),
        ObservedKind::ResourceSlice => object.read_one_of_many().map(ObservedObject::ResourceSlice),
        ObservedKind::DeviceClass => object.read().map(ObservedObject::DeviceClass),
        ObservedKind::ResourceClaim => object.read_one_of_many().map(ObservedObject::ResourceClaim),
        ObservedKind::ResourceClaimTemplate => object.read().map(ObservedObject::ResourceClaimTemplate),
        ObservedKind::DeviceTaintRule => object.read().map(ObservedObject::DeviceTaintRule),
        ObservedKind::Pod => object.read_one_of_many().map(ObservedObject::Pod),
        ObservedKind::NodeHardware => object.read().map(ObservedObject::NodeHardware),
        ObservedKind::PodTemplate => object.read().map(ObservedObject::PodTemplate),
        ObservedKind::ResourceQuota => object.read().map(ObservedObject::ResourceQuota),
        ObservedKind::Namespace => object.read().map(ObservedObject::Namespace),
        ObservedKind::ProvisioningRequest => {
            let seen =
                |request| ObservedObject::ProvisioningRequest(Box::new(SeenRequest::new(object.version(), request)));
            object.read().map(seen)
        }
        ObservedKind::Reservation => object.read().map(ObservedObject::Reservation),
        ObservedKind::KoordinatorReservation => Ok(ObservedObject::KoordinatorReservation),
        ObservedKind::FabricAttachment => object.read().map(ObservedObject::FabricAttachment),
    };
    read.map_err(|error| Chain(&error).to_string())
}
