//! What objects of these versions say of themselves, as far as a controller asks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Identity, version, and who keeps the object.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassicMeta {
    /// Unique among the objects of a kind and a namespace.
    pub name: String,
    /// Empty for kinds without namespaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Identity: an object that is made anew under the same name has another one.
    pub uid: String,
    /// Another one after each write.
    pub resource_version: String,
    /// Who keeps the object.
    #[serde(deserialize_with = "crate::resource::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// When it was asked to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// Remarks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Whose it is.
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
    /// Whether it is the one that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
}

impl ClassicMeta {
    /// The UID of the object that decides over this one.
    pub fn controller_uid(&self) -> Option<&str> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true)).map(|owner| &*owner.uid)
    }
}
