//! How release 0.1.0 reads claim records: its types as they were, and its rules. Never changes.

#![allow(dead_code, unreachable_pub, reason = "part of several programs, of which each uses what it needs")]

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
struct Envelope {
    version: u64,
    checksum: String,
    record: Value,
}

#[derive(Debug, Deserialize, PartialEq)]
pub struct Record {
    pub claim: Claim,
    pub state: State,
    pub boot_id: String,
    pub devices: Vec<Device>,
}

#[derive(Debug, Deserialize, PartialEq)]
pub struct Claim {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Preparing,
    Prepared,
}

#[derive(Debug, Deserialize, PartialEq)]
pub struct Device {
    pub backend: String,
    pub grant: Grant,
    pub plan: Plan,
    #[serde(default)]
    pub edits: Edits,
}

#[derive(Debug, Deserialize, PartialEq)]
pub struct Grant {
    pub request: String,
    pub pool: String,
    pub device: String,
    #[serde(default)]
    pub share_id: Option<String>,
    #[serde(default)]
    pub access: Access,
    /// Amounts are texts.
    #[serde(default)]
    pub consumed: BTreeMap<String, String>,
    #[serde(default)]
    pub config: Vec<Value>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
pub enum Access {
    #[default]
    Use,
    Admin,
}

#[derive(Debug, Deserialize, PartialEq)]
pub struct Plan {
    #[serde(default)]
    pub pinning: Pinning,
    #[serde(default)]
    pub data: Value,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
pub struct Pinning {
    #[serde(default)]
    pub cpus: BTreeSet<u32>,
    #[serde(default)]
    pub mems: BTreeSet<u32>,
}

/// Edits had these fields and refused any other.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Edits {
    pub env: Vec<String>,
    pub device_nodes: Vec<Value>,
    pub net_devices: Vec<Value>,
    pub hooks: Vec<Value>,
    pub mounts: Vec<Value>,
    pub intel_rdt: Option<Value>,
    pub additional_gids: Vec<u32>,
}

/// The record in the bytes of a file, or why 0.1.0 would have quarantined it.
pub fn decode(bytes: &[u8]) -> Result<Record, String> {
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if envelope.version > 1 {
        return Err(format!("version {}", envelope.version));
    }
    let computed = format!("crc32:{:08x}", crc32fast::hash(envelope.record.to_string().as_bytes()));
    if computed != envelope.checksum {
        return Err(format!("checksum {computed} instead of {}", envelope.checksum));
    }
    serde_json::from_value(envelope.record).map_err(|error| error.to_string())
}
