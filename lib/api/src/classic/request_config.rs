//! Terms of a request that 1.31 has no fields for: an opaque configuration of the driver, for the controller.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::resource::SliceQuantity;

/// The kind of the configuration.
pub const REQUEST_CONFIG_KIND: &str = "RequestConfig";

/// Further terms of a request. The controller heeds them; they are no part of an allocation.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RequestConfig {
    /// `hostler.dev/v1alpha1`.
    pub api_version: String,
    /// `RequestConfig`.
    pub kind: String,
    /// True if fewer devices than the count will do, or none at all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// Parts of capacities, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, SliceQuantity>,
}
