//! Grants, the devices that a claim was given, and their identifiers, as they stand in claim records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DeviceName, QualifiedName, Quantity};

/// Tells apart the shares that one claim holds of one shared device.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ShareId(pub String);

/// Kind of access: a grant takes the device or only looks after it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Access {
    /// The grant uses the device, or its part of it.
    #[default]
    Use,
    /// Administrative access: others may hold the device, nothing is reserved and nothing may be reset.
    Admin,
}

/// One device, or a part of one, given to a claim.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Grant {
    /// Name of the request in the claim, `request` or `request/subrequest`.
    pub request: String,
    /// Name of the pool.
    pub pool: String,
    /// Name of the device in the pool.
    pub device: DeviceName,
    /// Share of the device, where it is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<ShareId>,
    /// Use or administration.
    #[serde(default)]
    pub access: Access,
    /// The parts of the device's capacities that the grant takes. A capacity that is absent is taken whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed: BTreeMap<QualifiedName, Quantity>,
    /// Opaque configuration for this request, classes before claims; the last one wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<serde_json::Value>,
}

impl Grant {
    /// The top-level request: what the kubelet knows.
    pub fn top_level_request(&self) -> &str {
        self.request.split_once('/').map_or(&*self.request, |(request, _)| request)
    }
}
