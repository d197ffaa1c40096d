//! NodeHardware, as far as a controller that allocates reads and writes it: what there is, and what was given of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClassicMeta, NodeGrant};
use crate::{
    hardware::{Condition, HardwareConditionType},
    resource::or_empty,
};

/// A NodeHardware with devices that claims of classic DRA are given. One without a node offers what several nodes can use.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct NodeHardwareJournal {
    /// Has the name of the node, where there is one.
    pub metadata: ClassicMeta,
    /// What the controller says.
    pub spec: NodeHardwareJournalSpec,
    /// What the daemon says.
    pub status: NodeHardwareJournalStatus,
}

/// What was given, by the controller.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeHardwareJournalSpec {
    /// The node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// By UID of the claim.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, NodeGrant>,
}

/// What there is, by the daemon.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeHardwareJournalStatus {
    /// Whether this can be relied on.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The devices: each has what the spec of a ResourceSlice has in later releases.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Value>,
}

impl NodeHardwareJournalStatus {
    /// Whether what it says can be relied on.
    pub fn is_ready(&self) -> bool {
        let ready = HardwareConditionType::Ready.as_str();
        self.conditions.iter().any(|condition| condition.kind == ready && condition.is_true())
    }
}
