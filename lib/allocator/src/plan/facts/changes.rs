//! Changes of the facts since a reader last asked: a reader that keeps an account of the cluster updates only those
//! parts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_api::resource::DeviceTaintRule;

use super::{ClusterFacts, PoolKey};

/// Changes of the facts of a cluster.
#[derive(Clone, Debug, Default)]
pub struct FactChanges {
    /// Number of changes, ever.
    pub(in crate::plan) revision: u64,
    /// Number of changes by which more may fit than before, ever.
    pub(in crate::plan) gains: u64,
    /// Pools whose slices came, changed or went, or whose devices were given to claims or back.
    pub(in crate::plan) pools: BTreeSet<PoolKey>,
    pub(in crate::plan) nodes: BTreeSet<Arc<str>>,
    /// True if classes changed, or numbers of texts and columns: everything is to be judged anew.
    pub(in crate::plan) is_all: bool,
    /// True if pods on nodes changed.
    pub(in crate::plan) has_pods: bool,
    /// Changed rules, as they were and as they are.
    pub(in crate::plan) rules: BTreeMap<String, Vec<DeviceTaintRule>>,
}

impl FactChanges {
    /// Returns true if everything is to be looked at anew.
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    /// Returns true if nothing changed that is counted.
    pub fn is_nothing(&self) -> bool {
        !self.is_all && self.pools.is_empty() && self.nodes.is_empty() && self.rules.is_empty()
    }

    /// Names of the nodes that came, changed or went.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.iter()
    }

    /// Returns true if nothing changed but objects that questions name: templates, and claims without devices.
    pub(in crate::plan) fn has_only_names(&self) -> bool {
        self.is_nothing() && !self.has_pods
    }

    pub(in crate::plan) fn pods(&mut self) {
        self.revision += 1;
        self.has_pods = true;
    }

    pub(in crate::plan) fn node(&mut self, name: &Arc<str>) {
        self.revision += 1;
        self.gained();
        self.nodes.insert(name.clone());
    }

    pub(super) fn pool(&mut self, key: PoolKey) {
        self.revision += 1;
        self.pools.insert(key);
    }

    pub(super) fn rule(&mut self, rule: &DeviceTaintRule) {
        self.revision += 1;
        self.gained();
        self.rules.entry(rule.metadata.name.clone()).or_default().push(rule.clone());
    }

    pub(super) fn classes(&mut self) {
        self.revision += 1;
        self.gained();
        self.is_all = true;
    }

    /// Notes that more may fit than before: something is there, or is free, that was not.
    pub(super) fn gained(&mut self) {
        self.gains += 1;
    }

    /// Notes a change that only questions depend on.
    pub(super) fn other(&mut self) {
        self.revision += 1;
    }
}

impl ClusterFacts {
    /// A number that changes with the facts. An object that comes again unchanged is no change.
    pub fn revision(&self) -> u64 {
        self.changes.revision
    }

    /// A number that changes whenever more may fit than before; devices that are only taken do not change it.
    pub fn gains(&self) -> u64 {
        self.changes.gains
    }

    /// Takes the changes since the last call.
    pub fn take_changes(&mut self) -> FactChanges {
        let FactChanges { revision, gains, .. } = self.changes;
        std::mem::replace(&mut self.changes, FactChanges { revision, gains, ..FactChanges::default() })
    }
}
