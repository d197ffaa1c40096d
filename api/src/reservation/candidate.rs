//! A pod, as far as it decides whether devices are kept for it.

use std::collections::BTreeMap;

use super::OwnerController;

/// A pod that may be somebody for whom devices are kept.
#[derive(Clone, Copy, Debug)]
pub struct OwnerCandidate<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its identity.
    pub uid: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: &'a BTreeMap<String, String>,
    /// What made it, as it says itself.
    pub controller: Option<&'a OwnerController>,
}
