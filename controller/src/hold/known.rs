//! The cluster as far as Reservations depend on it: published devices, fences, and the claims that have devices.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_api::ObjectKey;
use hostler_cluster::is_older;

use super::{
    fresh::FreshList,
    objects::{
        AllocatedClaim, DeviceKey, Fence, FenceRule, KnownAttachment, NodeFences, OwnerPod, PodBudget, PriorityClasses,
        PublishedDevice, PublishedSlice,
    },
    published::{PoolName, PublishedDevices},
};

/// Knowledge of a pod.
#[derive(Clone, Debug)]
pub(super) enum PodReading {
    Asked,
    Known(Option<Box<OwnerPod>>),
}

/// The cluster, as the API server told it.
#[derive(Debug, Default)]
pub(super) struct KnownCluster {
    pub(super) published: Arc<PublishedDevices>,
    pub(super) node_fences: BTreeMap<String, NodeFences>,
    /// Nodes on which devices are closed with a value.
    values: BTreeMap<String, BTreeSet<String>>,
    pub(super) rules: BTreeMap<String, FenceRule>,
    pub(super) claims: BTreeMap<ObjectKey, AllocatedClaim>,
    holders: BTreeMap<DeviceKey, BTreeSet<ObjectKey>>,
    /// Devices that two claims had at once, as long as any claim has them.
    contested: BTreeSet<DeviceKey>,
    /// Claims that tolerate a value by name.
    tolerating: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Claims that stand for parts of devices, by the UID of the Reservation that keeps these.
    placeholders: BTreeMap<String, BTreeSet<ObjectKey>>,
    pub(super) pods: BTreeMap<ObjectKey, PodReading>,
    /// The claims of a pod.
    of_pods: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    pub(super) nodes: BTreeSet<String>,
    /// FabricAttachments, by the name of the device.
    pub(super) attachments: BTreeMap<String, KnownAttachment>,
    pub(super) priorities: FreshList<PriorityClasses>,
    pub(super) budgets: FreshList<Vec<PodBudget>>,
}

fn forget<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ObjectKey>>, entry: &K, claim: &ObjectKey) {
    if let Some(claims) = index.get_mut(entry) {
        claims.remove(claim);
        if claims.is_empty() {
            index.remove(entry);
        }
    }
}

impl KnownCluster {
    /// Takes a slice; returns the pools that may have changed.
    pub(super) fn slice(&mut self, slice: PublishedSlice) -> Vec<PoolName> {
        if self.published.is_old(&slice) {
            return Vec::new();
        }
        Arc::make_mut(&mut self.published).add(slice)
    }

    pub(super) fn slice_gone(&mut self, name: &str) -> Vec<PoolName> {
        Arc::make_mut(&mut self.published).remove(name)
    }

    /// A published device and its slice.
    pub(super) fn device(&self, key: &DeviceKey) -> Option<(&PublishedSlice, &PublishedDevice)> {
        self.published.device(key)
    }

    /// Takes a node's fences; returns the values with which devices were or are closed, or `None` if the fences are
    /// old.
    pub(super) fn node_fences(&mut self, fences: NodeFences) -> Option<BTreeSet<String>> {
        let known = self.node_fences.get(&fences.node);
        if known.is_some_and(|known| is_older(&fences.version, &known.version)) {
            return None;
        }
        let mut values = self.node_fences_gone(&fences.node.clone());
        for fence in &fences.fences {
            values.insert(fence.value.clone());
            self.values.entry(fence.value.clone()).or_default().insert(fences.node.clone());
        }
        self.node_fences.insert(fences.node.clone(), fences);
        Some(values)
    }

    /// The value with which a node was told to hold a device.
    pub(super) fn told_to_hold(&self, node: &str, device: &DeviceKey) -> Option<&str> {
        let is_it = |fence: &&Fence| fence.pool == device.pool && fence.device == device.device;
        self.node_fences.get(node)?.fences.iter().find(is_it).map(|fence| &*fence.value)
    }

    pub(super) fn node_fences_gone(&mut self, node: &str) -> BTreeSet<String> {
        let Some(known) = self.node_fences.remove(node) else { return BTreeSet::new() };
        let values: BTreeSet<String> = known.fences.into_iter().map(|fence| fence.value).collect();
        for value in &values {
            if let Some(nodes) = self.values.get_mut(value) {
                nodes.remove(node);
                if nodes.is_empty() {
                    self.values.remove(value);
                }
            }
        }
        values
    }

    /// Nodes that were told to close something with this value.
    pub(super) fn nodes_closed_with(&self, value: &str) -> impl Iterator<Item = &String> {
        self.values.get(value).into_iter().flatten()
    }

    /// True if any device is still closed with this value.
    pub(super) fn has_fences(&self, value: &str) -> bool {
        self.values.contains_key(value) || self.rules.values().any(|rule| rule.value == value)
    }

    /// True if this version of a claim is known.
    pub(super) fn is_known(&self, claim: &AllocatedClaim) -> bool {
        let known = self.claims.get(&claim.key);
        known.is_some_and(|known| known.uid == claim.uid && known.version == claim.version)
    }

    /// Takes a claim; returns the pools that may have changed.
    pub(super) fn claim(&mut self, claim: AllocatedClaim) -> Vec<PoolName> {
        let known = self.claims.get(&claim.key);
        if known.is_some_and(|known| is_older(&claim.version, &known.version)) {
            return Vec::new();
        }
        let key = claim.key.clone();
        let mut devices = self.forget_claim(&key);
        for device in &claim.devices {
            self.holders.entry(device.clone()).or_default().insert(key.clone());
            devices.push(device.clone());
        }
        for pod in &claim.pods {
            let pod = ObjectKey::new(&key.namespace, &pod.name);
            self.of_pods.entry(pod).or_default().insert(key.clone());
        }
        for value in &claim.tolerates {
            self.tolerating.entry(value.clone()).or_default().insert(key.clone());
        }
        if let Some(mark) = &claim.placeholder {
            self.placeholders.entry(mark.reservation_uid.clone()).or_default().insert(key.clone());
        }
        self.claims.insert(key, claim);
        self.holders_changed(devices)
    }

    pub(super) fn claim_gone(&mut self, key: &ObjectKey, uid: &str) -> Vec<PoolName> {
        let is_it = self.claims.get(key).is_some_and(|claim| claim.uid == uid);
        let devices = if is_it { self.forget_claim(key) } else { Vec::new() };
        self.holders_changed(devices)
    }

    /// Notes that these devices have other claims than before.
    fn holders_changed(&mut self, devices: Vec<DeviceKey>) -> Vec<PoolName> {
        for device in &devices {
            if !self.holders.contains_key(device) {
                self.contested.remove(device);
            } else if self.has_several_owners(device) {
                self.contested.insert(device.clone());
            }
        }
        devices.into_iter().map(|device| (device.driver, device.pool)).collect()
    }

    /// True if two claims have a device, and one of them has all of it. Parts are counted one by one, and can belong to
    /// several claims.
    fn has_several_owners(&self, device: &DeviceKey) -> bool {
        let has_all = |claim: &AllocatedClaim| !claim.parts.iter().any(|part| part.device == *device);
        self.claims_on(device).nth(1).is_some() && self.claims_on(device).any(has_all)
    }

    /// True if two claims had the device at once, and at least one of them still has it.
    pub(super) fn is_contested(&self, device: &DeviceKey) -> bool {
        self.contested.contains(device)
    }

    /// Drops a claim; returns its devices.
    fn forget_claim(&mut self, key: &ObjectKey) -> Vec<DeviceKey> {
        let Some(claim) = self.claims.remove(key) else { return Vec::new() };
        for pod in &claim.pods {
            // Another pod may come under the same name.
            let pod = ObjectKey::new(&key.namespace, &pod.name);
            forget(&mut self.of_pods, &pod, key);
            self.pods.remove(&pod);
        }
        claim.devices.iter().for_each(|device| forget(&mut self.holders, device, key));
        claim.tolerates.iter().for_each(|value| forget(&mut self.tolerating, value, key));
        if let Some(mark) = &claim.placeholder {
            forget(&mut self.placeholders, &mark.reservation_uid, key);
        }
        claim.devices
    }

    /// The claims that have a device.
    pub(super) fn claims_on(&self, device: &DeviceKey) -> impl Iterator<Item = &AllocatedClaim> {
        self.holders.get(device).into_iter().flatten().filter_map(|key| self.claims.get(key))
    }

    /// The claims that tolerate a value by name.
    pub(super) fn tolerating(&self, value: &str) -> impl Iterator<Item = &AllocatedClaim> {
        self.tolerating.get(value).into_iter().flatten().filter_map(|key| self.claims.get(key))
    }

    /// The claims of a pod.
    pub(super) fn claims_of_pod(&self, pod: &ObjectKey) -> impl Iterator<Item = &AllocatedClaim> {
        self.of_pods.get(pod).into_iter().flatten().filter_map(|key| self.claims.get(key))
    }

    /// The claims that stand for parts which this Reservation keeps.
    pub(super) fn placeholders(&self, uid: &str) -> impl Iterator<Item = &ObjectKey> {
        self.placeholders.get(uid).into_iter().flatten()
    }

    /// The claims that stand for parts of devices.
    pub(super) fn all_placeholders(&self) -> impl Iterator<Item = &ObjectKey> {
        self.placeholders.values().flatten()
    }

    /// Devices of which claims have all or a part.
    pub(super) fn taken(&self) -> impl Iterator<Item = &DeviceKey> {
        self.holders.keys()
    }
}
