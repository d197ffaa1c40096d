//! Namespaces, as far as selectors of namespaces look at them.

use serde::{Deserialize, Serialize};

use super::ObjectMeta;

/// The label that every namespace has, with its name.
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A namespace.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Namespace {
    /// Name and labels.
    pub metadata: ObjectMeta,
}
