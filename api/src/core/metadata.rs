//! Which object it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What every object says of itself, as far as anybody asks.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Unique among the objects of a kind and a namespace.
    pub name: String,
    /// Empty for kinds without namespaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Identity: an object that is made anew under the same name has another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// For selectors.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Remarks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Whose it is: it goes when they go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// Who wants to do something before it goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// When it was made, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// When it was asked to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
}

/// An object that another one belongs to.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct OwnerReference {
    /// `ReplicaSet`, `DaemonSet`, …
    pub kind: String,
    /// Name, in the same namespace.
    pub name: String,
}
