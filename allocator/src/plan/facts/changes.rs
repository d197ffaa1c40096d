//! What came to be known since somebody last asked: who keeps an account of the cluster brings only that up to date.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_api::resource::DeviceTaintRule;

use super::{ClusterFacts, PoolKey};

/// What changed.
#[derive(Clone, Debug, Default)]
pub struct FactChanges {
    /// How often anything did, ever.
    pub(in crate::plan) revision: u64,
    /// How often something changed by which more may fit than before, ever.
    pub(in crate::plan) gains: u64,
    /// Pools of which slices came, changed or went, or devices were given to claims or back.
    pub(in crate::plan) pools: BTreeSet<PoolKey>,
    pub(in crate::plan) nodes: BTreeSet<Arc<str>>,
    /// Whether classes did, or numbers of texts and columns: everything is to be judged anew.
    pub(in crate::plan) is_all: bool,
    /// Whether pods that are on nodes did.
    pub(in crate::plan) has_pods: bool,
    /// Rules, as they were and as they are.
    pub(in crate::plan) rules: BTreeMap<String, Vec<DeviceTaintRule>>,
}

impl FactChanges {
    /// Whether everything is to be looked at anew.
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    /// Whether nothing changed that anybody counts.
    pub fn is_nothing(&self) -> bool {
        !self.is_all && self.pools.is_empty() && self.nodes.is_empty() && self.rules.is_empty()
    }

    /// Names of the nodes that came, changed or went.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.iter()
    }

    /// Whether nothing changed but what questions name: templates, and claims that have nothing.
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

    /// More may fit than before: something is there, or is free, that was not.
    pub(super) fn gained(&mut self) {
        self.gains += 1;
    }

    /// Something that only questions depend on.
    pub(super) fn other(&mut self) {
        self.revision += 1;
    }
}

impl ClusterFacts {
    /// Another number whenever something else is known. Objects that come again as they were are no news.
    pub fn revision(&self) -> u64 {
        self.changes.revision
    }

    /// Another number whenever more may fit than before; what is only taken changes nothing in it.
    pub fn gains(&self) -> u64 {
        self.changes.gains
    }

    /// What changed since this was last called.
    pub fn take_changes(&mut self) -> FactChanges {
        let FactChanges { revision, gains, .. } = self.changes;
        std::mem::replace(&mut self.changes, FactChanges { revision, gains, ..FactChanges::default() })
    }
}
