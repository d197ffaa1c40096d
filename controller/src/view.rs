//! What readers see of the cluster: a value of one moment, which nobody changes.

use std::collections::BTreeMap;

use hostler_allocator::plan::ClusterFacts;

use crate::model::{KindStatus, ObservedKind};

/// The cluster at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterView {
    /// Everything that decides what fits where.
    #[expect(dead_code, reason = "summaries are made of it")]
    pub(crate) facts: ClusterFacts,
    /// How far each kind is known.
    pub(crate) kinds: BTreeMap<ObservedKind, KindStatus>,
}

impl ClusterView {
    /// Kinds of which no complete list was seen yet.
    pub(crate) fn missing(&self) -> Vec<ObservedKind> {
        let is_missing = |kind: &ObservedKind| self.kinds.get(kind).is_none_or(|status| !status.is_synced);
        ObservedKind::ALL.into_iter().filter(is_missing).collect()
    }
}
