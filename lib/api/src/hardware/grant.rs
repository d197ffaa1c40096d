//! The journal of allocations: devices of one object that a controller gave to claims.

use serde::{Deserialize, Serialize};

use crate::resource::{DeviceRequestAllocationResult, or_empty};

/// Devices that a claim was given, in `spec.claims` of the NodeHardware that offers them, by the UID of the claim. It
/// is written before the claim's status says so, with the version of the object that was read: of two controllers
/// that give the same device to different claims, one fails here.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeGrant {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// Version of the claim when the devices were given. The claim is allocated in this version or not at all: once
    /// the claim has another version and is not allocated, no reader relies on this entry any more.
    pub claim_version: String,
    /// Devices of this object.
    #[serde(deserialize_with = "or_empty")]
    pub devices: Vec<DeviceRequestAllocationResult>,
}
