//! Parameters of claims and classes as 1.30 has them itself, for drivers whose own kinds are translated into these.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClassicMeta, ClassicParametersReference};
use crate::resource::or_empty;

/// What claims that name it, or the object that it was made from, ask for.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimParameters {
    /// Name.
    pub metadata: ClassicMeta,
    /// The object that it was made from, in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generated_from: Option<ClassicParametersReference>,
    /// Whether several pods can use a claim at the same time.
    pub shareable: bool,
    /// What is asked of each driver.
    #[serde(deserialize_with = "or_empty")]
    pub driver_requests: Vec<DriverRequests>,
}

/// What is asked of one driver.
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
    /// Configuration for it.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub vendor_parameters: Value,
    /// What it must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_resources: Option<NamedResourcesRequest>,
}

/// What a device must be.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct NamedResourcesRequest {
    /// In the CEL of 1.30.
    pub selector: String,
}

/// What all claims of a class get.
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
    /// What every device must be.
    #[serde(deserialize_with = "or_empty")]
    pub filters: Vec<ResourceFilter>,
}

/// Configuration for one driver.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VendorParameters {
    /// The driver.
    pub driver_name: String,
    /// Whatever it understands.
    pub parameters: Value,
}

/// What every device of a driver must be.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFilter {
    /// The driver.
    pub driver_name: String,
    /// What it must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_resources: Option<NamedResourcesRequest>,
}
