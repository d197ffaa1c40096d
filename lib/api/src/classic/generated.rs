//! Parameters of claims and classes as 1.30 has them itself, for drivers whose own kinds are translated into these.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClassicMeta, ClassicParametersReference};
use crate::resource::or_empty;

/// Requests of the claims that name this object, or the object that it was made from.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimParameters {
    /// Name.
    pub metadata: ClassicMeta,
    /// The object that it was made from, in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generated_from: Option<ClassicParametersReference>,
    /// True if several pods can use a claim at the same time.
    pub shareable: bool,
    /// Requests by driver.
    #[serde(deserialize_with = "or_empty")]
    pub driver_requests: Vec<DriverRequests>,
}

/// Requests to one driver.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DriverRequests {
    /// The driver.
    pub driver_name: String,
    /// Configuration for all requests.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub vendor_parameters: Value,
    /// One device each.
    #[serde(deserialize_with = "or_empty")]
    pub requests: Vec<ResourceRequestTerms>,
}

/// One device.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequestTerms {
    /// Configuration for the device.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub vendor_parameters: Value,
    /// Selector of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_resources: Option<NamedResourcesRequest>,
}

/// Conditions that a device must meet.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct NamedResourcesRequest {
    /// CEL expression, in the CEL of 1.30.
    pub selector: String,
}

/// Configuration and filters of all claims of a class.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClassParameters {
    /// Name.
    pub metadata: ClassicMeta,
    /// The object that it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generated_from: Option<ClassicParametersReference>,
    /// Configuration.
    #[serde(deserialize_with = "or_empty")]
    pub vendor_parameters: Vec<VendorParameters>,
    /// Conditions that every device must meet.
    #[serde(deserialize_with = "or_empty")]
    pub filters: Vec<ResourceFilter>,
}

/// Configuration for one driver.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VendorParameters {
    /// The driver.
    pub driver_name: String,
    /// Parameters in the driver's own terms.
    pub parameters: Value,
}

/// Conditions that every device of a driver must meet.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFilter {
    /// The driver.
    pub driver_name: String,
    /// Selector of the devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_resources: Option<NamedResourcesRequest>,
}
