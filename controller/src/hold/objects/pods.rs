//! Pods that are not ours, with PriorityClasses and PodDisruptionBudgets.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{ObjectKey, reservation::LabelSelector};

/// A pod in a claim's namespace.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct PodRef {
    pub(crate) name: String,
    pub(crate) uid: String,
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
