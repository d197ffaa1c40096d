//! Kubernetes 1.26: the parts of claims that later versions changed.

use serde::{Deserialize, Serialize};

use super::{ClassicConsumer, ClassicMeta, ResourceClaimSpecV1Alpha2};
use crate::{core::NodeSelector, resource::or_empty};

/// A claim.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceClaimV1Alpha1 {
    /// Name and identity.
    pub metadata: ClassicMeta,
    /// Request of the claim.
    pub spec: ResourceClaimSpecV1Alpha2,
    /// Allocation and consumers of the claim.
    pub status: ResourceClaimStatusV1Alpha1,
}

/// Allocation and consumers of a claim.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatusV1Alpha1 {
    /// The driver that allocated.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver_name: String,
    /// Allocation by the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResultV1Alpha1>,
    /// Consumers that may use the claim.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub reserved_for: Vec<ClassicConsumer>,
    /// True if the allocation is to be taken back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deallocation_requested: bool,
}

/// Allocation by the driver.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResultV1Alpha1 {
    /// Message of the driver to its nodes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_handle: String,
    /// Nodes on which the claim can be used; any node where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_on_nodes: Option<NodeSelector>,
    /// True if several pods can use the claim at the same time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shareable: bool,
}
