//! Nodes, with the fields that matter for giving devices.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{core::NodeSpec, well_known::CONTROLLER_FIELD_MANAGER};
use serde::Deserialize;
use serde_json::Value;

use crate::classic::model::{NodeAccess, NodeState};

/// Prefix of taints that describe a node's condition; Kubernetes removes them by itself.
const CONDITION_TAINT: &str = "node.kubernetes.io/";

/// A Node in the server's JSON.
#[derive(Debug, Deserialize)]
pub(crate) struct ClassicNode {
    metadata: ClassicNodeMeta,
    #[serde(default)]
    spec: NodeSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClassicNodeMeta {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    managed_fields: Vec<FieldsOfManager>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FieldsOfManager {
    manager: String,
    fields_v1: Value,
}

impl ClassicNode {
    /// Returns the node's name, and the fields that matter.
    pub(crate) fn named_state(self) -> (String, NodeState) {
        let ClassicNodeMeta { name, labels, managed_fields } = self.metadata;
        let ours = managed_fields.iter().filter(|fields| fields.manager == CONTROLLER_FIELD_MANAGER);
        let fields = ours.filter_map(|fields| fields.fields_v1["f:metadata"]["f:labels"].as_object());
        let keys: BTreeSet<String> = fields
            .flat_map(|labels| labels.keys())
            .filter_map(|key| key.strip_prefix("f:").map(str::to_owned))
            .collect();
        let own_labels = keys.into_iter().filter(|key| labels.contains_key(key)).collect();
        (name, NodeState { labels, own_labels, access: access(&self.spec) })
    }
}

fn access(spec: &NodeSpec) -> NodeAccess {
    let mut keeping = spec.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule").peekable();
    let is_tainted = keeping.peek().is_some();
    if spec.unschedulable || keeping.any(|taint| taint.key.starts_with(CONDITION_TAINT)) {
        NodeAccess::Closed
    } else if is_tainted {
        NodeAccess::Tainted
    } else {
        NodeAccess::Open
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_that_takes_no_pods_now_is_another_thing_than_one_that_takes_those_that_tolerate_it() {
        let access = |spec: Value| {
            let node = json!({"metadata": {"name": "n"}, "spec": spec});
            serde_json::from_value::<ClassicNode>(node).unwrap().named_state().1.access
        };
        let taint = |key: &str, effect: &str| json!({"taints": [{"key": key, "effect": effect}]});
        assert_eq!(access(json!({})), NodeAccess::Open);
        assert_eq!(access(taint("slow", "PreferNoSchedule")), NodeAccess::Open);
        assert_eq!(access(taint("gpu", "NoSchedule")), NodeAccess::Tainted);
        assert_eq!(access(taint("node.kubernetes.io/not-ready", "NoExecute")), NodeAccess::Closed);
        assert_eq!(access(json!({"unschedulable": true})), NodeAccess::Closed);
    }

    #[test]
    fn labels_that_somebody_else_wrote_are_not_our_own() {
        let labels = |key: &str| json!({"f:metadata": {"f:labels": {(format!("f:{key}")): {}}}});
        let node = json!({"metadata": {"name": "n", "labels": {"d/a": "true", "d/b": "true"}, "managedFields": [
            {"manager": "hostler-controller", "fieldsV1": labels("d/a")}, {"manager": "kubectl", "fieldsV1": labels("d/b")},
        ]}});
        let (_, state) = serde_json::from_value::<ClassicNode>(node).unwrap().named_state();
        assert_eq!(state.own_labels, BTreeSet::from(["d/a".to_owned()]));
    }
}
