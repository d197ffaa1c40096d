//! A pod, with the fields that are compared with the owners of Reservations.

use std::collections::BTreeMap;

use hostler_api::{
    ObjectKey,
    reservation::{OwnerCandidate, OwnerController},
};

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
