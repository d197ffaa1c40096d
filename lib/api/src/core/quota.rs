//! Quotas of namespaces.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ObjectMeta, ResourceList};

/// A ResourceQuota.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceQuota {
    /// Name and identity.
    pub metadata: ObjectMeta,
    /// Limits of the quota.
    pub spec: ResourceQuotaSpec,
}

/// The limits of a namespace.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceQuotaSpec {
    /// Most of each resource.
    #[serde(deserialize_with = "super::or_default")]
    pub hard: ResourceList,
    /// Pods that the quota counts, where it does not count all objects.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Pods that the quota counts, as a selector of scopes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope_selector: Option<Value>,
}
