//! Kubernetes 1.31: claims as they are today, and fields beside them for a controller that allocates.

use serde::{Deserialize, Serialize};

use super::{ClassicConsumer, ClassicMeta};
use crate::{
    core::NodeSelector,
    resource::{DeviceAllocationResult, DeviceClaim, DeviceClassConfiguration, DeviceSelector, or_empty},
};

/// What requests name.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DeviceClassV1Alpha3 {
    /// Name.
    pub metadata: ClassicMeta,
    /// What it says.
    pub spec: DeviceClassSpecV1Alpha3,
}

/// What a class says.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpecV1Alpha3 {
    /// What a device must be.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// For the drivers.
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
    /// What was asked for.
    pub spec: ResourceClaimSpecV1Alpha3,
    /// What was given.
    pub status: ResourceClaimStatusV1Alpha3,
}

/// What a claim asks for, and of whom.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceClaimSpecV1Alpha3 {
    /// Devices.
    pub devices: DeviceClaim,
    /// The driver whose controller allocates; the scheduler where absent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub controller: String,
}

/// What a claim was given, and who has it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatusV1Alpha3 {
    /// What was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResultV1Alpha3>,
    /// Who may use it.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub reserved_for: Vec<ClassicConsumer>,
    /// Whether it shall be taken back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deallocation_requested: bool,
}

/// What was given. A result says request, driver, pool and device here; shares are in a configuration of the driver.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResultV1Alpha3 {
    /// The devices.
    pub devices: DeviceAllocationResult,
    /// Where they can be used; anywhere where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// The driver whose controller allocated; the scheduler where absent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub controller: String,
}
