//! Pods that are not ours, and what is asked of the server about them.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::ObjectKey;
use hostler_api::reservation::{LabelSelector, OwnerCandidate, OwnerController};

/// A pod in a claim's namespace.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct PodRef {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// A pod that has something.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OwnerPod {
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// The owner reference that is marked as controller; its namespace is left empty.
    pub(crate) controller: Option<OwnerController>,
    /// Empty as long as it has none.
    pub(crate) node: String,
    pub(crate) priority: i32,
    /// It is going.
    pub(crate) is_deleting: bool,
}

/// How important pods of which PriorityClass are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct PriorityClasses {
    pub(crate) values: BTreeMap<String, i32>,
    /// Of pods that name none.
    pub(crate) default: i32,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct PodBudget {
    pub(crate) key: ObjectKey,
    /// Its pods, in its namespace; none where there is no selector.
    pub(crate) selector: Option<LabelSelector>,
    /// How many of them may go now.
    pub(crate) allowed: u64,
    /// Pods that are going already, and are counted.
    pub(crate) going: BTreeSet<String>,
}

impl OwnerPod {
    /// As owners are compared with it.
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
