//! The known facts of a cluster, packed: half a million devices are columns of numbers, and equal values are held once.
//!
//! Objects come one by one, also again, and go; nothing is judged before a [`Snapshot`](super::Snapshot) is made. A
//! copy stays the cluster as it was: later changes copy only the parts that they touch.

mod changes;
mod claims;
mod compact;
mod nominated;
mod pods;
mod pools;
mod quotas;
mod slices;

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::{
    ObjectKey, SharedMap,
    core::{NAMESPACE_NAME_LABEL, Namespace, Node, ObjectMeta, Pod},
    resource::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimSpec, ResourceSlice},
};

use super::{
    pod_terms::NamespaceLabels,
    sequences::{Sequences, Texts},
};

pub use changes::FactChanges;
pub use claims::ClaimFacts;
pub(super) use claims::{PackedClaim, PackedResult};
pub(super) use nominated::NominatedPod;
pub(super) use pods::{PackedPod, PodLabels};
pub(super) use pools::{PoolFacts, PoolGiven, PoolKey};
pub use quotas::{QUOTA_OF_CLAIMS, QUOTA_OF_DEVICES, QuotaAmounts, QuotaBook};
pub(super) use slices::{ABSENT, PackedAttribute, PackedSlice, from_json, value_of};

/// The condition of a node that is true if pods can come to it.
const READY: &str = "Ready";

/// Texts and columns that packed objects refer to by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pub(super) texts: Texts,
    pub(super) columns: Sequences<u32>,
}

/// The known facts of a cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterFacts {
    pub(super) store: Store,
    pub(super) nodes: SharedMap<Arc<str>, Arc<Node>>,
    pub(super) slices: SharedMap<Arc<str>, Arc<PackedSlice>>,
    pub(super) classes: BTreeMap<String, Arc<DeviceClass>>,
    pub(super) claims: SharedMap<Arc<ObjectKey>, Arc<PackedClaim>>,
    pub(super) templates: SharedMap<ObjectKey, Arc<ResourceClaimSpec>>,
    pub(super) rules: BTreeMap<String, Arc<DeviceTaintRule>>,
    /// The limits of quotas, by their names.
    quotas: BTreeMap<ObjectKey, BTreeMap<String, u64>>,
    pub(super) pods: SharedMap<Arc<ObjectKey>, PackedPod>,
    /// Pods that wait and are nominated for a node.
    pub(super) nominated: Arc<BTreeMap<ObjectKey, Arc<NominatedPod>>>,
    /// The known namespaces; terms that look at the labels of others have no answer.
    pub(super) namespaces: Arc<NamespaceLabels>,
    /// Slices and given devices of each pool, by its key.
    pub(super) pools: SharedMap<PoolKey, PoolFacts>,
    pub(super) changes: FactChanges,
    /// Size of the store at the last search for unreferenced entries.
    looked_at: usize,
}

impl ClusterFacts {
    /// Adds a node, or takes news of it.
    pub fn add_node(&mut self, node: Node) {
        let node = essential(node);
        let name: Arc<str> = node.metadata.name.as_str().into();
        if self.nodes.get(&name).is_none_or(|known| **known != node) {
            self.changes.node(&name);
            self.nodes.insert(name, Arc::new(node));
        }
    }

    /// Adds a slice, or takes news of it.
    pub fn add_slice(&mut self, slice: ResourceSlice) {
        let name: Arc<str> = slice.metadata.name.as_str().into();
        let packed = PackedSlice::pack(slice, &mut self.store);
        if self.slices.get(&name).is_none_or(|known| **known != packed) {
            self.put_slice(name, Arc::new(packed));
        }
        self.compact_if_due();
    }

    /// Adds a class, or takes news of it.
    pub fn add_class(&mut self, class: DeviceClass) {
        let class = DeviceClass { metadata: only_name(class.metadata), ..class };
        if self.classes.get(&class.metadata.name).is_none_or(|known| known.spec != class.spec) {
            self.changes.classes();
            self.classes.insert(class.metadata.name.clone(), Arc::new(class));
        }
    }

    /// Adds a claim, or takes news of it.
    pub fn add_claim(&mut self, claim: &ResourceClaim) {
        self.add_claim_of(&Arc::new(ObjectKey::new(&claim.metadata.namespace, &claim.metadata.name)), claim);
    }

    /// Does the same as [`add_claim`](Self::add_claim) for a caller that keeps the claim's key as well.
    pub fn add_claim_of(&mut self, key: &Arc<ObjectKey>, claim: &ResourceClaim) {
        let packed = PackedClaim::pack(claim, &mut self.store.texts);
        if self.claims.get(&**key).is_none_or(|known| **known != packed) {
            self.put_claim(key, &Arc::new(packed));
        }
        self.compact_if_due();
    }

    /// Adds the template of claims, or takes news of it.
    pub fn add_template(&mut self, key: ObjectKey, spec: ResourceClaimSpec) {
        if self.templates.get(&key).is_none_or(|known| **known != spec) {
            self.changes.other();
            self.changes.gained();
            self.templates.insert(key, Arc::new(spec));
        }
    }

    /// Adds a rule that taints devices, or takes news of it.
    pub fn add_rule(&mut self, rule: DeviceTaintRule) {
        let rule = DeviceTaintRule { metadata: only_name(rule.metadata), ..rule };
        let known = self.rules.get(&rule.metadata.name).cloned();
        if known.as_deref() != Some(&rule) {
            known.iter().for_each(|known| self.changes.rule(known));
            self.changes.rule(&rule);
            self.rules.insert(rule.metadata.name.clone(), Arc::new(rule));
        }
    }

    /// Adds a pod, or takes news of it. Only one that has not ended, and has a node or is nominated for one, counts.
    pub fn add_pod(&mut self, pod: &Pod) {
        self.add_pod_of(Arc::new(ObjectKey::new(&pod.metadata.namespace, &pod.metadata.name)), pod);
    }

    /// Does the same as [`add_pod`](Self::add_pod) for a caller that keeps the pod's key as well.
    pub fn add_pod_of(&mut self, key: Arc<ObjectKey>, pod: &Pod) {
        self.see_nominated(&key, pod);
        match PackedPod::pack(pod, &mut self.store) {
            Some(packed) if self.pods.get(&*key) != Some(&packed) => {
                // A pod that is resized may take less than before.
                if self.pods.insert(key, packed).is_some() {
                    self.changes.gained();
                }
                self.changes.pods();
            }
            Some(_) => {}
            None => self.forget_standing(&key),
        }
        self.compact_if_due();
    }

    /// Adds a namespace, or takes news of it.
    pub fn add_namespace(&mut self, namespace: Namespace) {
        let ObjectMeta { name, mut labels, .. } = namespace.metadata;
        // A file may leave the label to the API server.
        labels.entry(NAMESPACE_NAME_LABEL.to_owned()).or_insert_with(|| name.clone());
        if self.namespaces.get(&name) != Some(&labels) {
            self.changes.other();
            self.changes.gained();
            Arc::make_mut(&mut self.namespaces).insert(name, labels);
        }
    }

    /// Forgets a node.
    pub fn remove_node(&mut self, name: &str) {
        if self.nodes.remove(name).is_some() {
            self.changes.node(&name.into());
        }
    }

    /// Forgets a slice.
    pub fn remove_slice(&mut self, name: &str) {
        if let Some(slice) = self.slices.remove(name) {
            // Its devices are gone, but its shared counters or its pool's contradictions may have held other devices
            // back.
            self.changes.gained();
            self.leave_pool(name, &slice);
        }
    }

    /// Forgets a class.
    pub fn remove_class(&mut self, name: &str) {
        if self.classes.remove(name).is_some() {
            self.changes.classes();
        }
    }

    /// Forgets a claim.
    pub fn remove_claim(&mut self, key: &ObjectKey) {
        if let Some(claim) = self.claims.remove(key) {
            self.changes.other();
            self.take_back(key, &claim);
        }
    }

    /// Forgets a template.
    pub fn remove_template(&mut self, key: &ObjectKey) {
        if self.templates.remove(key).is_some() {
            self.changes.other();
        }
    }

    /// Forgets a rule.
    pub fn remove_rule(&mut self, name: &str) {
        if let Some(rule) = self.rules.remove(name) {
            self.changes.rule(&rule);
        }
    }

    /// Forgets a pod.
    pub fn remove_pod(&mut self, key: &ObjectKey) {
        self.forget_nominated(key);
        self.forget_standing(key);
    }

    fn forget_standing(&mut self, key: &ObjectKey) {
        if self.pods.remove(key).is_some() {
            self.changes.gained();
            self.changes.pods();
        }
    }

    /// Forgets a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        if self.namespaces.contains_key(name) {
            self.changes.other();
            Arc::make_mut(&mut self.namespaces).remove(name);
        }
    }

    /// Names of the nodes, in order.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(|name| &**name)
    }

    /// A node, as far as it is known: of its metadata the name, identity and labels, of its conditions only Ready.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    /// Spec of the claims that are made from a template.
    pub fn template(&self, key: &ObjectKey) -> Option<&Arc<ResourceClaimSpec>> {
        self.templates.get(key)
    }

    /// Returns a claim: its spec and its devices.
    pub fn claim(&self, key: &ObjectKey) -> Option<ClaimFacts> {
        self.claims.get(key).map(|claim| claim.facts(&self.store.texts))
    }

    /// Returns true if there is a pod of this name that has a node and has not ended.
    pub fn has_pod(&self, key: &ObjectKey) -> bool {
        self.pods.get(key).is_some()
    }

    /// Names of the classes, in order.
    pub fn class_names(&self) -> impl Iterator<Item = &str> {
        self.classes.keys().map(String::as_str)
    }

    /// Number of known objects, by kind.
    pub fn counts(&self) -> [(&'static str, usize); 8] {
        [
            ("nodes", self.nodes.len()),
            ("slices", self.slices.len()),
            ("classes", self.classes.len()),
            ("claims", self.claims.len()),
            ("templates", self.templates.len()),
            ("rules", self.rules.len()),
            ("pods", self.pods.len()),
            ("pools", self.pools.len()),
        ]
    }

    pub(super) fn text(&self, number: u32) -> &str {
        self.store.texts.get(number)
    }

    pub(super) fn text_number(&mut self, text: &str) -> u32 {
        self.store.texts.intern(text)
    }
}

/// Reduces a node to the fields that are read. The other fields are most of it, and change all the time.
fn essential(node: Node) -> Node {
    let Node { metadata, spec, mut status } = node;
    status.conditions.retain(|condition| condition.kind == READY);
    if !status.allocatable.is_empty() {
        status.capacity.clear();
    }
    let metadata = ObjectMeta {
        name: metadata.name,
        uid: metadata.uid,
        labels: metadata.labels,
        deletion_timestamp: metadata.deletion_timestamp,
        ..ObjectMeta::default()
    };
    Node { metadata, spec, status }
}

fn only_name(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta { name: metadata.name, ..ObjectMeta::default() }
}
