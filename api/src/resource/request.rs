//! What a claim asks for, and what a class adds to it.
//!
//! v1beta1 has the fields of `exactly` in the request itself; it is read as v1.

use serde::{Deserialize, Serialize};

use crate::{
    core::ObjectMeta,
    resource::{DeviceToleration, OpaqueDeviceConfiguration, SliceQuantity, SortedMap},
};

/// What was asked for.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceClaimSpec {
    /// Devices.
    pub devices: DeviceClaim,
}

impl ResourceClaimSpec {
    /// Whether nothing is asked for: a claim that an operator satisfied by hand says no more.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The devices that a claim asks for.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DeviceClaim {
    /// One after the other; each gets devices of its own.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<DeviceRequest>,
    /// What the devices of several requests must have in common.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<DeviceConstraint>,
    /// For the drivers.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<DeviceClaimConfiguration>,
}

/// One request: either exactly this, or the first of several that can be had.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default, from = "WrittenRequest")]
pub struct DeviceRequest {
    /// Unique in the claim.
    pub name: String,
    /// Exactly this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exactly: Option<ExactDeviceRequest>,
    /// The first of these that can be had.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_available: Vec<DeviceSubRequest>,
}

/// A request as any version writes it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenRequest {
    name: String,
    exactly: Option<ExactDeviceRequest>,
    #[serde(deserialize_with = "super::or_empty")]
    first_available: Vec<DeviceSubRequest>,
    #[serde(flatten)]
    flat: ExactDeviceRequest,
}

impl From<WrittenRequest> for DeviceRequest {
    fn from(written: WrittenRequest) -> Self {
        let WrittenRequest { name, exactly, first_available, flat } = written;
        let exactly = exactly.or_else(|| (!flat.device_class_name.is_empty()).then_some(flat));
        Self { name, exactly, first_available }
    }
}

/// So many devices of a class.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactDeviceRequest {
    /// The class.
    pub device_class_name: String,
    /// What a device must be, beside what the class says.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// How many: a number, or all.
    pub allocation_mode: DeviceAllocationMode,
    /// The number; one where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Only to look after the devices: others may hold them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    /// Taints that do not matter.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    /// Parts of capacities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRequirements>,
}

/// One of several ways to satisfy a request.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSubRequest {
    /// Unique in the request.
    pub name: String,
    /// The class.
    pub device_class_name: String,
    /// What a device must be, beside what the class says.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// How many: a number, or all.
    pub allocation_mode: DeviceAllocationMode,
    /// The number; one where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Taints that do not matter.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    /// Parts of capacities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRequirements>,
}

/// How many devices.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum DeviceAllocationMode {
    /// As many as `count` says; also where nothing is written.
    #[default]
    ExactCount,
    /// Every device of the node that matches.
    All,
    /// Something that is not known here.
    #[serde(untagged)]
    Other(String),
}

/// What a device must be.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct DeviceSelector {
    /// In CEL; a selector of a later kind has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<CelDeviceSelector>,
}

/// A condition in CEL.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct CelDeviceSelector {
    /// The condition.
    pub expression: String,
}

/// Parts of capacities that a request wants of each device.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct CapacityRequirements {
    /// By the name of the capacity.
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub requests: SortedMap<SliceQuantity>,
}

/// What the devices of several requests must have in common, or must not.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceConstraint {
    /// Of which requests; all where empty.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    /// The attribute that has one value on all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_attribute: Option<String>,
    /// The attribute that has another value on each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinct_attribute: Option<String>,
}

/// Configuration that a claim brings along.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DeviceClaimConfiguration {
    /// For which requests; all where empty.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    /// The configuration; a kind of a later version has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<OpaqueDeviceConfiguration>,
}

/// A DeviceClass: devices of one kind, under a name.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DeviceClass {
    /// Name.
    pub metadata: ObjectMeta,
    /// What it says.
    #[serde(default)]
    pub spec: DeviceClassSpec,
}

/// What a class says.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpec {
    /// What a device must be to belong to it.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// For the drivers.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<DeviceClassConfiguration>,
    /// The extended resource that pods can ask for instead of writing a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_resource_name: Option<String>,
}

/// Configuration that a class brings along.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DeviceClassConfiguration {
    /// The configuration; a kind of a later version has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<OpaqueDeviceConfiguration>,
}

#[cfg(test)]
mod tests;
