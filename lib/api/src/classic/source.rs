//! NodeHardware, as far as a controller that allocates reads and writes it: the devices that there are, and those
//! that were given to claims.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ClassicMeta;
use crate::{
    hardware::{Condition, HardwareConditionType, NodeGrant},
    resource::or_empty,
};

/// A NodeHardware with devices that claims of classic DRA are given. One without a node offers what several nodes can
/// use.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct NodeHardwareJournal {
    /// Has the name of the node, where there is one.
    pub metadata: ClassicMeta,
    /// Part that the controller writes.
    pub spec: NodeHardwareJournalSpec,
    /// Part that the daemon writes.
    pub status: NodeHardwareJournalStatus,
}

/// Devices that the controller gave to claims.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeHardwareJournalSpec {
    /// The node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// Devices of each claim, by UID of the claim.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, NodeGrant>,
}

/// Devices that there are, as the daemon says.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeHardwareJournalStatus {
    /// Conditions, among them the one that says whether the report can be relied on.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The devices: each has what the spec of a ResourceSlice has in later releases.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Value>,
}

impl NodeHardwareJournalStatus {
    /// True if the report can be relied on.
    pub fn is_ready(&self) -> bool {
        let ready = HardwareConditionType::Ready.as_str();
        self.conditions.iter().any(|condition| condition.kind == ready && condition.is_true())
    }
}
