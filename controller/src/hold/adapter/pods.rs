//! Pods, and how important they are: what is read of them, and what is asked of the server about them.

use std::collections::BTreeMap;

use hostler_allocator::plan::ObjectKey;
use hostler_api::{
    Chain,
    reservation::{OwnerController, RESERVATION_ALLOCATED},
};
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use serde::Deserialize;
use serde_json::json;

use crate::hold::{HoldOutcome, OwnerPod, PodWrite};

/// With what the controller is allowed to make room.
const RIGHT: &str = "give the controller the role of deploy/holds/evictions";

#[derive(Deserialize)]
struct SeenPod {
    metadata: SeenPodMeta,
    #[serde(default)]
    spec: SeenPodSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenPodMeta {
    uid: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<PodOwner>,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenPodSpec {
    node_name: String,
    priority: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodOwner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
}

impl SeenPod {
    fn owner(self) -> OwnerPod {
        let Self { metadata, spec } = self;
        let controller = metadata.owner_references.into_iter().find(|owner| owner.controller);
        let controller = controller.map(|owner| OwnerController {
            api_version: owner.api_version,
            kind: owner.kind,
            namespace: String::new(),
            name: owner.name,
            uid: owner.uid,
        });
        OwnerPod {
            uid: metadata.uid,
            labels: metadata.labels,
            annotations: metadata.annotations,
            controller,
            node: spec.node_name,
            priority: spec.priority,
            is_deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

fn pods(key: &ObjectKey) -> Collection {
    Collection::core("Pod", "pods").of(&key.namespace)
}

/// A pod, if there is one.
pub(super) async fn read(client: &ApiClient, key: &ObjectKey) -> Result<Option<Box<OwnerPod>>, String> {
    match client.get::<SeenPod>(&pods(key), &key.name).await {
        Ok(pod) => Ok(Some(Box::new(pod.owner()))),
        Err(failure) if failure.code() == Some(404) => Ok(None),
        Err(failure) => Err(Chain(&failure).to_string()),
    }
}

/// Carries out a write about a pod.
pub(super) async fn write(client: &ApiClient, write: &PodWrite) -> Result<(), ApiFailure> {
    match write {
        PodWrite::Evict { pod, uid } => client.evict(&pods(pod), &pod.name, uid).await,
        PodWrite::Annotate { pod, uid, value } => {
            // Another UID than the object's is a conflict.
            let patch = json!({"metadata": {"uid": uid, "annotations": {RESERVATION_ALLOCATED: value}}});
            client.merge("annotate", &pods(pod), &pod.name, &patch).await
        }
    }
}

/// What a failed eviction means, where that is not what other failures mean: also "not now" is a plain no, and the pod stays.
pub(super) fn came_of_eviction(failure: &ApiFailure) -> Option<HoldOutcome> {
    let said = Chain(failure).to_string();
    match failure.code()? {
        403 => Some(HoldOutcome::Refused(format!("{said}; {RIGHT}"))),
        429 => {
            let budgets = failure.disruption_budgets();
            let said = if budgets.is_empty() { said } else { format!("{said} {}", budgets.join("; ")) };
            Some(HoldOutcome::Refused(said))
        }
        // More budgets than one are about it.
        500 => Some(HoldOutcome::Refused(said)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_says_where_it_runs_how_important_it_is_and_whether_it_goes() {
        let pod: SeenPod = serde_json::from_value(json!({
            "metadata": {
                "name": "p", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "cu"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "ru", "controller": true},
                ],
            },
            "spec": {"nodeName": "n", "priority": -7},
        }))
        .unwrap();
        let pod = pod.owner();
        assert_eq!((&*pod.node, pod.priority, pod.is_deleting), ("n", -7, true));
        assert_eq!(pod.controller.unwrap().name, "r");
    }
}
