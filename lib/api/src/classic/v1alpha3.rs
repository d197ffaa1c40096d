//! Kubernetes 1.31: claims as they are today, and fields beside them for a controller that allocates.

use serde::{Deserialize, Serialize};

use super::{ClassicConsumer, ClassicMeta};
use crate::{
    core::NodeSelector,
    resource::{DeviceAllocationResult, DeviceClaim, DeviceClassConfiguration, DeviceSelector, or_empty},
};

/// Class that requests name.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DeviceClassV1Alpha3 {
    /// Name.
    pub metadata: ClassicMeta,
    /// Selectors and configuration.
    pub spec: DeviceClassSpecV1Alpha3,
}

/// Selectors, configuration and nodes of a class.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpecV1Alpha3 {
    /// Conditions that a device must meet.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// Configuration for the drivers.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<DeviceClassConfiguration>,
    /// The only nodes that can have such devices; heeded only where a controller allocates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suitable_nodes: Option<NodeSelector>,
}

/// A claim.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceClaimV1Alpha3 {
    /// Name and identity.
    pub metadata: ClassicMeta,
    /// Request of the claim.
    pub spec: ResourceClaimSpecV1Alpha3,
    /// Allocation and consumers of the claim.
    pub status: ResourceClaimStatusV1Alpha3,
}

/// Request of a claim, and the driver that it is addressed to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceClaimSpecV1Alpha3 {
    /// Requested devices.
    pub devices: DeviceClaim,
    /// The driver whose controller allocates; the scheduler where absent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub controller: String,
}

/// Allocation and consumers of a claim.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatusV1Alpha3 {
    /// Allocation of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResultV1Alpha3>,
    /// Consumers that may use the claim.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub reserved_for: Vec<ClassicConsumer>,
    /// True if the allocation is to be taken back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deallocation_requested: bool,
}

/// Allocation of a claim. A result says request, driver, pool and device here; shares are in a configuration of the
/// driver.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResultV1Alpha3 {
    /// The devices.
    pub devices: DeviceAllocationResult,
    /// Nodes on which the devices can be used; any node where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// The driver whose controller allocated; the scheduler where absent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub controller: String,
}
