//! What is known of a cluster, packed: half a million devices are columns of numbers here, and what is equal is held once.
//!
//! Objects come one by one, also again, and go; nothing is judged before a [`Snapshot`](super::Snapshot) is made.

mod claims;
mod pods;
mod slices;

use std::{collections::BTreeMap, fmt, sync::Arc};

use hostler_api::{
    core::{Node, Pod},
    resource::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimSpec, ResourceSlice},
};

use super::sequences::{Sequences, Texts};

pub(super) use claims::{PackedClaim, PackedResult};
pub(super) use pods::PackedPod;
pub(super) use slices::{ABSENT, PackedAttribute, PackedSlice, from_json};

/// Namespace and name.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// The object with this name; without a namespace it is in `default`.
    pub fn new(namespace: &str, name: &str) -> Self {
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What packed objects refer to.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pub(super) texts: Texts,
    pub(super) columns: Sequences<u32>,
}

/// What is known of a cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterFacts {
    pub(super) store: Arc<Store>,
    pub(super) nodes: BTreeMap<String, Arc<Node>>,
    pub(super) slices: BTreeMap<String, Arc<PackedSlice>>,
    pub(super) classes: BTreeMap<String, Arc<DeviceClass>>,
    pub(super) claims: BTreeMap<ObjectKey, Arc<PackedClaim>>,
    pub(super) templates: BTreeMap<ObjectKey, Arc<ResourceClaimSpec>>,
    pub(super) rules: BTreeMap<String, Arc<DeviceTaintRule>>,
    pub(super) pods: BTreeMap<ObjectKey, PackedPod>,
}

impl ClusterFacts {
    /// Adds a node, or takes news of it.
    pub fn add_node(&mut self, node: Node) {
        self.nodes.insert(node.metadata.name.clone(), Arc::new(node));
    }

    /// Adds a slice, or takes news of it.
    pub fn add_slice(&mut self, slice: ResourceSlice) {
        let name = slice.metadata.name.clone();
        let packed = PackedSlice::pack(slice, Arc::make_mut(&mut self.store));
        self.slices.insert(name, Arc::new(packed));
    }

    /// Adds a class, or takes news of it.
    pub fn add_class(&mut self, class: DeviceClass) {
        self.classes.insert(class.metadata.name.clone(), Arc::new(class));
    }

    /// Adds a claim, or takes news of it.
    pub fn add_claim(&mut self, claim: &ResourceClaim) {
        let key = ObjectKey::new(&claim.metadata.namespace, &claim.metadata.name);
        let packed = PackedClaim::pack(claim, &mut Arc::make_mut(&mut self.store).texts);
        self.claims.insert(key, Arc::new(packed));
    }

    /// Adds the template of claims, or takes news of it.
    pub fn add_template(&mut self, key: ObjectKey, spec: ResourceClaimSpec) {
        self.templates.insert(key, Arc::new(spec));
    }

    /// Adds a rule that taints devices, or takes news of it.
    pub fn add_rule(&mut self, rule: DeviceTaintRule) {
        self.rules.insert(rule.metadata.name.clone(), Arc::new(rule));
    }

    /// Adds a pod, or takes news of it. Only one that has a node and has not ended holds anything.
    pub fn add_pod(&mut self, pod: &Pod) {
        let key = ObjectKey::new(&pod.metadata.namespace, &pod.metadata.name);
        match PackedPod::pack(pod, &mut Arc::make_mut(&mut self.store).texts) {
            Some(packed) => self.pods.insert(key, packed),
            None => self.pods.remove(&key),
        };
    }

    /// Forgets a node.
    pub fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Forgets a slice.
    pub fn remove_slice(&mut self, name: &str) {
        self.slices.remove(name);
    }

    /// Forgets a class.
    pub fn remove_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// Forgets a claim.
    pub fn remove_claim(&mut self, key: &ObjectKey) {
        self.claims.remove(key);
    }

    /// Forgets a template.
    pub fn remove_template(&mut self, key: &ObjectKey) {
        self.templates.remove(key);
    }

    /// Forgets a rule.
    pub fn remove_rule(&mut self, name: &str) {
        self.rules.remove(name);
    }

    /// Forgets a pod.
    pub fn remove_pod(&mut self, key: &ObjectKey) {
        self.pods.remove(key);
    }

    /// Names of the nodes, in order.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    pub(super) fn text(&self, number: u32) -> &str {
        self.store.texts.get(number)
    }

    pub(super) fn text_number(&mut self, text: &str) -> u32 {
        Arc::make_mut(&mut self.store).texts.intern(text)
    }
}
