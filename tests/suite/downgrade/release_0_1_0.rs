//! The reader of claim records of release 0.1.0: its types as they were, and its rules. Never changes.

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
pub(crate) struct Record {
    pub(crate) claim: Claim,
    pub(crate) state: State,
    pub(crate) boot_id: String,
    pub(crate) devices: Vec<Device>,
}

#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct Claim {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Preparing,
    Prepared,
}

#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct Device {
    pub(crate) backend: String,
    pub(crate) grant: Grant,
    pub(crate) plan: Plan,
    #[serde(default)]
    pub(crate) edits: Edits,
}

#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct Grant {
    pub(crate) request: String,
    pub(crate) pool: String,
    pub(crate) device: String,
    #[serde(default)]
    pub(crate) share_id: Option<String>,
    #[serde(default)]
    pub(crate) access: Access,
    /// Amounts are texts.
    #[serde(default)]
    pub(crate) consumed: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) config: Vec<Value>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
pub(crate) enum Access {
    #[default]
    Use,
    Admin,
}

#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct Plan {
    #[serde(default)]
    pub(crate) pinning: Pinning,
    #[serde(default)]
    pub(crate) data: Value,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
pub(crate) struct Pinning {
    #[serde(default)]
    pub(crate) cpus: BTreeSet<u32>,
    #[serde(default)]
    pub(crate) mems: BTreeSet<u32>,
}

/// Edits had these fields and refused any other.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Edits {
    pub(crate) env: Vec<String>,
    pub(crate) device_nodes: Vec<Value>,
    pub(crate) net_devices: Vec<Value>,
    pub(crate) hooks: Vec<Value>,
    pub(crate) mounts: Vec<Value>,
    pub(crate) intel_rdt: Option<Value>,
    pub(crate) additional_gids: Vec<u32>,
}

/// The record in the bytes of a file, or why 0.1.0 would have quarantined it.
pub(crate) fn decode(bytes: &[u8]) -> Result<Record, String> {
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
