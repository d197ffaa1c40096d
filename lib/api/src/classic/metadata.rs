//! Metadata of objects of these versions, as far as a controller needs them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Identity, version, and finalizers of an object.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassicMeta {
    /// Unique among the objects of a kind and a namespace.
    pub name: String,
    /// Empty for kinds without namespaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Identity: an object that is made anew under the same name has another UID.
    pub uid: String,
    /// Version of the object, another one after each write.
    pub resource_version: String,
    /// Finalizers that keep the object.
    #[serde(deserialize_with = "crate::resource::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Time at which deletion was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// Remarks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Owners of the object.
    #[serde(deserialize_with = "crate::resource::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<ControllerReference>,
}

/// An object that another one belongs to.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerReference {
    /// `Pod`, …
    pub kind: String,
    /// Name.
    pub name: String,
    /// Identity.
    pub uid: String,
    /// True for the owner that controls the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
}

impl ClassicMeta {
    /// UID of the controlling owner.
    pub fn controller_uid(&self) -> Option<&str> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true)).map(|owner| &*owner.uid)
    }
}
