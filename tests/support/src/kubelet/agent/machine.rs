//! The part of a node that outlives a kubelet: the pods that the API server wants there, the sandboxes of the container
//! runtime, and the test's memory of the driver's promises.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use hostler_proto::dra_v1::Device;
use tokio::sync::watch;

use super::view::KubeletView;

/// A pod with its claims.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BoundPod {
    /// The pod's namespace, which is that of its claims too.
    pub namespace: String,
    /// Unique on the node, in a test.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Names of ResourceClaims.
    pub claims: Vec<String>,
    /// True if the pod is being deleted.
    pub deleting: bool,
}

/// A node, without its kubelet.
#[derive(Debug)]
pub struct NodeMachine {
    /// Pods by UID, as the API server has them. Writers: the test; the kubelet, which removes a pod that has ended.
    pub(crate) pods_tx: watch::Sender<BTreeMap<String, BoundPod>>,
    /// UIDs of the pods whose sandbox is there.
    pub(crate) sandboxes: Mutex<BTreeSet<String>>,
    /// The device lists that a driver gave for a claim, by driver and claim UID, until it took the claim back.
    pub(crate) promises: Mutex<BTreeMap<(String, String), Vec<Device>>>,
    /// The kubelet's view. Writer: the kubelet. See [`KubeletView`].
    pub(crate) view_tx: watch::Sender<KubeletView>,
}

impl NodeMachine {
    /// A node that nothing runs on.
    pub(crate) fn new() -> Self {
        Self {
            pods_tx: watch::Sender::new(BTreeMap::new()),
            sandboxes: Mutex::default(),
            promises: Mutex::default(),
            view_tx: watch::Sender::new(KubeletView::default()),
        }
    }

    /// Changes what tests see.
    pub(crate) fn show(&self, change: impl FnOnce(&mut KubeletView)) {
        self.view_tx.send_modify(change);
    }

    /// A pod as the API server has it.
    pub(crate) fn pod(&self, uid: &str) -> Option<BoundPod> {
        self.pods_tx.borrow().get(uid).cloned()
    }

    /// Wants a pod on the node.
    pub fn create(&self, pod: BoundPod) {
        self.pods_tx.send_modify(|pods| {
            pods.insert(pod.uid.clone(), pod);
        });
    }

    /// Asks for a pod's end, as `kubectl delete` does.
    pub fn delete(&self, name: &str) {
        self.pods_tx.send_modify(|pods| {
            pods.values_mut().filter(|pod| pod.name == name).for_each(|pod| pod.deleting = true);
        });
    }

    /// Removes a pod's object at once, as `kubectl delete --force --grace-period 0` does.
    pub fn force_delete(&self, name: &str) {
        self.pods_tx.send_modify(|pods| pods.retain(|_, pod| pod.name != name));
    }

    /// The kubelet has ended the pod.
    pub(crate) fn finish(&self, uid: &str) {
        self.pods_tx.send_modify(|pods| {
            pods.remove(uid);
        });
    }

    /// Removes all sandboxes, as a reboot does.
    pub fn reboot(&self) {
        self.sandboxes.lock().expect("nothing panics under it").clear();
    }

    /// Holds a device list against the one that was given before for the same claim.
    pub(crate) fn promise(&self, driver: &str, uid: &str, devices: &[Device]) -> Result<(), String> {
        let mut promises = self.promises.lock().expect("nothing panics under it");
        let key = (driver.to_owned(), uid.to_owned());
        match promises.get(&key) {
            Some(before) if before != devices => {
                Err(format!("claim {uid} had {before:?}, prepared again it has {devices:?}"))
            }
            _ => {
                promises.insert(key, devices.to_vec());
                // Two devices with the same first id become one in the status of pods.
                let mut seen = BTreeSet::new();
                let mut ids = promises.values().flatten().filter_map(|device| device.cdi_device_ids.first());
                ids.find(|id| !seen.insert(*id)).map_or(Ok(()), |id| Err(format!("CDI id {id} is the first of two")))
            }
        }
    }

    /// Forgets what was given for a claim that was taken back.
    pub(crate) fn release(&self, driver: &str, uid: &str) {
        self.promises.lock().expect("nothing panics under it").remove(&(driver.to_owned(), uid.to_owned()));
    }
}
