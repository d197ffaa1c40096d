//! A pod as the API server shows it: the fields that tell what it waits for, and who it is.

use std::collections::BTreeMap;

use hostler_api::{
    ObjectKey,
    reservation::{OwnerCandidate, OwnerController},
};
use serde::Deserialize;

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ExplainedPod {
    metadata: ExplainedPodMetadata,
    spec: ExplainedPodSpec,
    pub(super) status: ExplainedPodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExplainedPodMetadata {
    name: String,
    namespace: String,
    uid: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<ExplainedOwner>,
    deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExplainedOwner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExplainedPodSpec {
    node_name: String,
    scheduler_name: String,
}

/// Status of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExplainedPodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    pub(super) phase: String,
    /// The reason of the phase, in one word.
    pub(super) reason: String,
    /// The reason of the phase, for people.
    pub(super) message: String,
    /// The node on which the scheduler makes room for the pod.
    pub(super) nominated_node_name: String,
    conditions: Vec<ExplainedCondition>,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ExplainedCondition {
    #[serde(rename = "type")]
    kind: String,
    pub(super) status: String,
    pub(super) message: String,
}

/// Status of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    state: ContainerState,
    last_state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<ContainerWait>,
    terminated: Option<ContainerEnd>,
}

/// The reason why a container does not run yet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerWait {
    pub(super) reason: String,
    pub(super) message: String,
}

/// The end of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerEnd {
    pub(super) reason: String,
    pub(super) exit_code: i64,
}

impl ExplainedPod {
    /// Returns namespace and name.
    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.metadata.namespace, &self.metadata.name)
    }

    pub(super) fn node(&self) -> Option<&str> {
        Some(&*self.spec.node_name).filter(|name| !name.is_empty())
    }

    /// Returns the scheduler, if it is another one than that of the cluster.
    pub(super) fn other_scheduler(&self) -> Option<&str> {
        Some(&*self.spec.scheduler_name).filter(|name| !["", "default-scheduler"].contains(name))
    }

    pub(super) fn is_going(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// True if the pod has run to its end.
    pub(super) fn has_ended(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    /// True if the pod neither runs nor has ended.
    pub(super) fn is_pending(&self) -> bool {
        !self.has_ended() && self.status.phase != "Running"
    }

    /// Calls `judge` with the pod as a candidate for an owner of Reservations.
    pub(super) fn as_candidate<T>(&self, judge: impl FnOnce(&OwnerCandidate<'_>) -> T) -> T {
        let ExplainedPodMetadata { name, namespace, uid, labels, annotations, owner_references, .. } = &self.metadata;
        let controller = owner_references.iter().find(|it| it.controller).map(|it| OwnerController {
            api_version: it.api_version.clone(),
            kind: it.kind.clone(),
            namespace: namespace.clone(),
            name: it.name.clone(),
            uid: it.uid.clone(),
        });
        judge(&OwnerCandidate { namespace, name, uid, labels, annotations, controller: controller.as_ref() })
    }
}

impl ExplainedPodStatus {
    /// Returns a condition.
    pub(super) fn condition(&self, kind: &str) -> Option<&ExplainedCondition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Returns the first container that waits for more than its turn, with the end of its last run.
    pub(super) fn waiting(&self) -> Option<(&str, &ContainerWait, Option<&ContainerEnd>)> {
        let all = self.init_container_statuses.iter().chain(&self.container_statuses);
        let mut waiting = all.filter_map(|it| Some((&*it.name, it.state.waiting.as_ref()?, it.ended())));
        waiting.find(|(_, wait, _)| !["", "ContainerCreating", "PodInitializing"].contains(&&*wait.reason))
    }
}

impl ContainerStatus {
    fn ended(&self) -> Option<&ContainerEnd> {
        self.last_state.terminated.as_ref().or(self.state.terminated.as_ref())
    }
}
