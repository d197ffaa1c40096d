//! The pod that a claim is made for, read from the API server: the watch is a moment behind, and the pod is younger
//! than that.

use std::collections::BTreeMap;

use hostler_api::core::{PodResourceClaim, PodSpec};
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use serde::Deserialize;

use super::review::GeneratedClaim;
use crate::hold::{
    OwnerPod,
    adapter::{PodOwner, controller_of},
};

/// A pod, with the fields that decide which Reservation it uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WebhookPod {
    /// Identity, labels, annotations and controller of the pod.
    pub(super) owner: OwnerPod,
    /// The pod's spec.
    pub(super) spec: PodSpec,
    /// The claims that were made for the pod.
    pub(super) made_claims: Vec<String>,
}

/// State of a pod, as far as it decides whether the pod may be deleted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodState {
    /// The resourceVersion: another one is another state.
    pub(super) version: String,
    pub(super) phase: String,
    pub(super) is_deleting: bool,
    pub(super) has_node: bool,
    /// True if the scheduler has looked at the pod, and found no place.
    pub(super) is_refused: bool,
}

#[derive(Deserialize)]
struct PendingPod {
    metadata: PendingPodMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: SeenStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PendingPodMeta {
    uid: String,
    #[serde(default)]
    resource_version: String,
    deletion_timestamp: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<PodOwner>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenStatus {
    phase: String,
    conditions: Vec<SeenCondition>,
    resource_claim_statuses: Vec<PodResourceClaim>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SeenCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
}

impl PendingPod {
    fn state(&self) -> PodState {
        let is_refusal =
            |it: &SeenCondition| it.kind == "PodScheduled" && it.status == "False" && it.reason == "Unschedulable";
        PodState {
            version: self.metadata.resource_version.clone(),
            phase: self.status.phase.clone(),
            is_deleting: self.metadata.deletion_timestamp.is_some(),
            has_node: self.spec.node_name.as_ref().is_some_and(|node| !node.is_empty()),
            is_refused: self.status.conditions.iter().any(is_refusal),
        }
    }
}

impl From<PendingPod> for WebhookPod {
    fn from(PendingPod { metadata, spec, status }: PendingPod) -> Self {
        let PendingPodMeta { uid, labels, annotations, owner_references, .. } = metadata;
        let controller = controller_of(owner_references);
        let named = OwnerPod { uid, labels, annotations, ..OwnerPod::default() };
        let made_claims = status.resource_claim_statuses.into_iter().filter_map(|it| it.resource_claim_name);
        Self { owner: OwnerPod { controller, ..named }, spec, made_claims: made_claims.collect() }
    }
}

/// Reads the pod of a claim; `None` if the claim is not made for it any more.
pub(super) async fn pod_of(client: &ApiClient, claim: &GeneratedClaim) -> Result<Option<WebhookPod>, ApiFailure> {
    Ok(pod_and_state(client, claim).await?.map(|(pod, _)| pod))
}

/// Reads the same pod, with its state.
pub(super) async fn pod_and_state(
    client: &ApiClient,
    claim: &GeneratedClaim,
) -> Result<Option<(WebhookPod, PodState)>, ApiFailure> {
    let pods = Collection::core("Pod", "pods").of(&claim.namespace);
    let found = client.find::<PendingPod>(&pods, &claim.pod.name).await?.map(|pod| {
        let state = pod.state();
        (WebhookPod::from(pod), state)
    });
    Ok(found.filter(|(pod, _)| pod.owner.uid == claim.pod.uid))
}
