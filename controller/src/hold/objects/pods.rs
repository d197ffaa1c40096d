//! Pods that are not ours, with PriorityClasses and PodDisruptionBudgets.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::ObjectKey;
use hostler_api::reservation::{LabelSelector, OwnerCandidate, OwnerController};

/// A pod in a claim's namespace.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct PodRef {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// A pod that has devices or may own them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OwnerPod {
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// The owner reference that is marked as controller; its namespace is left empty.
    pub(crate) controller: Option<OwnerController>,
    /// The pod's node; empty as long as it has none.
    pub(crate) node: String,
    pub(crate) priority: i32,
    /// True if the pod is being deleted.
    pub(crate) is_deleting: bool,
}

/// Priorities by PriorityClass.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct PriorityClasses {
    pub(crate) values: BTreeMap<String, i32>,
    /// The priority of pods that name no class.
    pub(crate) default: i32,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct PodBudget {
    pub(crate) key: ObjectKey,
    /// The selector of the budget's pods, in the budget's namespace; no pods where there is no selector.
    pub(crate) selector: Option<LabelSelector>,
    /// Number of these pods that may go now.
    pub(crate) allowed: u64,
    /// Pods that are being deleted already, and are counted.
    pub(crate) going: BTreeSet<String>,
}

impl OwnerPod {
    /// The pod with the fields that are compared with owners.
    pub(crate) fn candidate<'a>(&'a self, key: &'a ObjectKey) -> OwnerCandidate<'a> {
        OwnerCandidate {
            namespace: &key.namespace,
            name: &key.name,
            uid: &self.uid,
            labels: &self.labels,
            annotations: &self.annotations,
            controller: self.controller.as_ref(),
        }
    }
}
