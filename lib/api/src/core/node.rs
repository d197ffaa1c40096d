//! Nodes, as far as they decide which pods run on them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ObjectMeta, Taint};
use crate::ExactQuantity;

/// Amounts of resources by name: `cpu`, `memory`, `pods`, `hugepages-2Mi`, `vendor.example/thing`.
pub type ResourceList = BTreeMap<String, ExactQuantity>;

/// A node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Node {
    /// Name and labels.
    pub metadata: ObjectMeta,
    /// Settings of the administrators.
    pub spec: NodeSpec,
    /// State that the kubelet reports.
    pub status: NodeStatus,
}

/// NodeSpec of a node.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct NodeSpec {
    /// True if no new pods shall come.
    pub unschedulable: bool,
    /// Taints that keep pods away.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

/// NodeStatus of a node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Amounts that pods can have together.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: ResourceList,
    /// All amounts of the node; used where a file says nothing of `allocatable`.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: ResourceList,
    /// Conditions of the node.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
}

/// One condition of a node.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct NodeCondition {
    /// `Ready`, and others.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

impl Node {
    /// True if the kubelet says that the node is ready. A node of a file without conditions is taken to be ready.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().find(|condition| condition.kind == "Ready").is_none_or(|it| it.status == "True")
    }

    /// Amounts that pods can have together.
    pub fn allocatable(&self) -> &ResourceList {
        if self.status.allocatable.is_empty() { &self.status.capacity } else { &self.status.allocatable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_ready_unless_its_kubelet_says_otherwise() {
        let of = |conditions: &str| -> Node {
            serde_json::from_str(&format!("{{\"status\":{{\"conditions\":{conditions}}}}}")).unwrap()
        };
        assert!(of("[]").is_ready());
        assert!(of("null").is_ready());
        assert!(of(r#"[{"type":"Ready","status":"True"}]"#).is_ready());
        assert!(!of(r#"[{"type":"Ready","status":"Unknown","reason":"x"}]"#).is_ready());
    }

    #[test]
    fn amounts_are_read_as_texts_and_as_numbers() {
        let node: Node =
            serde_json::from_str(r#"{"status":{"capacity":{"cpu":4,"memory":"8Gi","pods":"110"}}}"#).unwrap();
        assert_eq!(node.allocatable()["cpu"].rounded(), 4);
        assert_eq!(node.allocatable()["memory"].rounded(), 8 << 30);
    }
}
