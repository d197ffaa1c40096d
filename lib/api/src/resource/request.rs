//! Requests of a claim, and the additions of a class.
//!
//! v1beta1 has the fields of `exactly` in the request itself; it is read as v1.

use serde::{Deserialize, Serialize};

use crate::{
    Quantity,
    core::ObjectMeta,
    resource::{DeviceToleration, OpaqueDeviceConfiguration, SliceQuantity, SortedMap},
};

/// Spec of a claim: its requests.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceClaimSpec {
    /// Devices that are asked for.
    pub devices: DeviceClaim,
}

impl ResourceClaimSpec {
    /// True if nothing is asked for: a claim that an operator satisfied by hand says no more.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The devices that a claim asks for.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(default)]
pub struct DeviceClaim {
    /// Requests, served one after the other; each gets devices of its own.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<DeviceRequest>,
    /// Attributes that the devices of several requests must have in common, or must not.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<DeviceConstraint>,
    /// Configuration for the drivers.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<DeviceClaimConfiguration>,
}

impl DeviceClaim {
    /// The amount of a capacity that a request asks of each device, in whole units. `request` is its name in an allocation:
    /// `request`, or `request/subrequest`.
    pub fn asked(&self, request: &str, capacity: &str) -> Option<Quantity> {
        let (name, alternative) = request.split_once('/').map_or((request, None), |(name, sub)| (name, Some(sub)));
        let request = self.requests.iter().find(|it| it.name == name)?;
        let requirements = match alternative {
            None => request.exactly.as_ref()?.capacity.as_ref()?,
            Some(sub) => request.first_available.iter().find(|it| it.name == sub)?.capacity.as_ref()?,
        };
        Quantity::try_from(requirements.requests.get(capacity)?.get()?.in_whole_units()).ok()
    }
}

/// One request: either exactly this, or the first of several alternatives that can be had.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default, from = "WrittenRequest")]
pub struct DeviceRequest {
    /// Unique in the claim.
    pub name: String,
    /// Exactly this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exactly: Option<ExactDeviceRequest>,
    /// Alternatives, of which the first that can be had is taken.
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

/// Request for a number of devices of a class.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactDeviceRequest {
    /// The class.
    pub device_class_name: String,
    /// Conditions that a device must meet, beside those of the class.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// Mode of the number: a count, or all.
    pub allocation_mode: DeviceAllocationMode,
    /// Number of devices; one where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Administrative access: others may hold the devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    /// Taints that are tolerated.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    /// Parts of capacities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRequirements>,
}

/// One of several ways to satisfy a request.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSubRequest {
    /// Unique in the request.
    pub name: String,
    /// The class.
    pub device_class_name: String,
    /// Conditions that a device must meet, beside those of the class.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// Mode of the number: a count, or all.
    pub allocation_mode: DeviceAllocationMode,
    /// Number of devices; one where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Taints that are tolerated.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    /// Parts of capacities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRequirements>,
}

/// Mode of the number of devices.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum DeviceAllocationMode {
    /// A number of devices, `count`; also where no mode is written.
    #[default]
    ExactCount,
    /// Every device of the node that matches.
    All,
    /// A mode that is not known here.
    #[serde(untagged)]
    Other(String),
}

/// Condition that a device must meet.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(default)]
pub struct DeviceSelector {
    /// Condition in CEL; a selector of a later kind has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<CelDeviceSelector>,
}

/// A condition in CEL.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct CelDeviceSelector {
    /// The condition.
    pub expression: String,
}

/// Parts of capacities that a request takes of each device.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(default)]
pub struct CapacityRequirements {
    /// By the name of the capacity.
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub requests: SortedMap<SliceQuantity>,
}

/// Attribute that the devices of several requests must have in common, or must not.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceConstraint {
    /// Requests that are constrained; all where empty.
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
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(default)]
pub struct DeviceClaimConfiguration {
    /// Requests that the configuration is for; all where empty.
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
    /// Selectors and configuration.
    #[serde(default)]
    pub spec: DeviceClassSpec,
}

/// Selectors and configuration of a class.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpec {
    /// Conditions that a device of the class must meet.
    #[serde(deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// Configuration for the drivers.
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
