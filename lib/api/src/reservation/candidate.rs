//! Properties of a pod that decide whether devices are kept for it.

use std::collections::BTreeMap;

use super::OwnerController;

/// A pod that may be an owner, for which devices are kept.
#[derive(Clone, Copy, Debug)]
pub struct OwnerCandidate<'a> {
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Name of the pod.
    pub name: &'a str,
    /// UID of the pod.
    pub uid: &'a str,
    /// Labels of the pod.
    pub labels: &'a BTreeMap<String, String>,
    /// Annotations of the pod.
    pub annotations: &'a BTreeMap<String, String>,
    /// Controller of the pod, as the pod itself says.
    pub controller: Option<&'a OwnerController>,
}
