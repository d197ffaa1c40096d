//! Kubernetes 1.26: what later versions changed of claims.

use serde::{Deserialize, Serialize};

use super::{ClassicConsumer, ClassicMeta, ResourceClaimSpecV1Alpha2};
use crate::{core::NodeSelector, resource::or_empty};

/// A claim.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceClaimV1Alpha1 {
    /// Name and identity.
    pub metadata: ClassicMeta,
    /// What was asked for.
    pub spec: ResourceClaimSpecV1Alpha2,
    /// What was given.
    pub status: ResourceClaimStatusV1Alpha1,
}

/// What a claim was given, and who has it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatusV1Alpha1 {
    /// The driver that allocated.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver_name: String,
    /// What it gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResultV1Alpha1>,
    /// Who may use it.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub reserved_for: Vec<ClassicConsumer>,
    /// Whether it shall be taken back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deallocation_requested: bool,
}

/// What the driver gave.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResultV1Alpha1 {
    /// What the driver tells its nodes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_handle: String,
    /// Where it can be used; anywhere where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_on_nodes: Option<NodeSelector>,
    /// Whether several can use it at the same time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shareable: bool,
}
