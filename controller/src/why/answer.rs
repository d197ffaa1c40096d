//! The answer to why a pod waits. docs/kubectl-hostler.md describes it.

use std::collections::BTreeMap;

use hostler_allocator::plan::SetPlan;
use hostler_api::{few, hardware::DeviceState};
use hostler_cli::output::API_VERSION;
use serde::Serialize;

use super::{
    cause::{CauseKind, PodCause},
    claims::{ClaimRequest, ExplainedClaim, FoundClaim},
    pod::ExplainedPod,
    world::WhyWorld,
};
use crate::plan::ReasonAnswer;

/// The answer about one pod.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WhyAnswer {
    api_version: &'static str,
    kind: &'static str,
    /// Namespace of the pod.
    pub(super) namespace: String,
    /// Name of the pod.
    pub(super) pod: String,
    /// The state in a few words: `waits`.
    pub(super) state: &'static str,
    /// The reason of the state, and its fix.
    #[serde(flatten)]
    pub(super) cause: PodCause,
    /// The claims of the pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) claims: Vec<ClaimAnswer>,
    /// Claims that have devices for which the pod waits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) holders: Vec<WaitedHolder>,
    /// Nodes that would take the pod now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) room: Vec<String>,
    /// The first reason of each other node, the reason of most nodes first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) nodes: Vec<ReasonAnswer>,
    /// The last Events about the pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<String>,
    /// Facts that make the answer less certain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
}

/// A request of a claim, or a claim of which no more is known.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimAnswer {
    /// Name of the claim in the pod.
    pub(super) claim: String,
    /// The object: `ResourceClaim ml/train-gpu`.
    pub(super) object: String,
    /// State of the claim.
    pub(super) state: String,
    /// Request, or `request/subrequest`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) request: String,
    /// The class.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) class: String,
    /// Number of devices; `all` for all that match.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) wanted: String,
    /// Number of devices of the cluster that match, and of those in each state.
    pub(super) matching: usize,
    pub(super) free: usize,
    pub(super) allocated: usize,
    pub(super) held: usize,
    /// Devices that are unhealthy, drained, unknown or blocked.
    pub(super) other: usize,
}

/// A claim that has devices for which a pod waits.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WaitedHolder {
    /// `namespace/name` of the claim.
    pub(super) claim: String,
    /// Pods that use the claim.
    pub(super) pods: Vec<String>,
    /// Number of matching devices that it has, or has a part of.
    pub(super) devices: usize,
    /// Nodes of the devices.
    pub(super) nodes: Vec<String>,
}

impl WhyAnswer {
    /// Makes an answer about a pod without anything beside the cause.
    pub(super) fn new(key: &hostler_api::ObjectKey, cause: PodCause) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "Why",
            namespace: key.namespace.clone(),
            pod: key.name.clone(),
            state: state(cause.cause),
            cause,
            claims: Vec::new(),
            holders: Vec::new(),
            room: Vec::new(),
            nodes: Vec::new(),
            events: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Returns the answer in a sentence.
    pub(super) fn sentence(&self) -> String {
        let Self { namespace, pod, state, cause, .. } = self;
        let colon = if *state == "runs" { "" } else { ":" };
        format!("Pod {namespace}/{pod} {state}{colon} {}", cause.reason)
    }

    /// Adds what the planner says of the nodes.
    pub(super) fn take_fit(&mut self, fit: &SetPlan) {
        self.room.clone_from(&fit.room);
        self.nodes = ReasonAnswer::all_of(fit);
        self.notes.extend(fit.unsupported.iter().map(|what| format!("not judged: {what}")));
    }
}

fn state(cause: CauseKind) -> &'static str {
    match cause {
        CauseKind::Running => "runs",
        CauseKind::Ended => "has ended",
        CauseKind::Deleting => "ends",
        CauseKind::Starting | CauseKind::PrepareFailed | CauseKind::ContainerWaits | CauseKind::NodeSilent => {
            "does not run yet"
        }
        _ => "waits",
    }
}

/// Returns the claims of a pod, a row for each request.
pub(super) fn claim_rows(world: &WhyWorld, pod: &ExplainedPod, claims: &[ExplainedClaim<'_>]) -> Vec<ClaimAnswer> {
    let rows = claims.iter().flat_map(|claim| {
        let (object, state) = found(world, pod, &claim.found);
        let row = ClaimAnswer { claim: claim.name.to_owned(), object, state, ..ClaimAnswer::default() };
        let of_request = |request: &ClaimRequest| ClaimAnswer { ..row_of(request, &row) };
        match &claim.requests[..] {
            [] => vec![row],
            requests => requests.iter().map(of_request).collect(),
        }
    });
    rows.collect()
}

fn found(world: &WhyWorld, pod: &ExplainedPod, claim: &FoundClaim<'_>) -> (String, String) {
    let absent = |plural: &str| {
        if world.may_read(plural) { "does not exist" } else { "not found, or may not be read" }.to_owned()
    };
    let of = |kind: &str, key: &hostler_api::ObjectKey| format!("{kind} {}", key.name);
    match claim {
        // Kubernetes deletes claims that it made for a pod when the pod has ended.
        FoundClaim::Absent(key) if pod.has_ended() && world.may_read("resourceclaims") => {
            (of("ResourceClaim", key), "deleted: the pod has ended".to_owned())
        }
        FoundClaim::Absent(key) => (of("ResourceClaim", key), absent("resourceclaims")),
        FoundClaim::NoTemplate(key) => (of("ResourceClaimTemplate", key), absent("resourceclaimtemplates")),
        FoundClaim::NotMade(key) => (of("ResourceClaimTemplate", key), "no claim made yet".to_owned()),
        FoundClaim::There(key, claim) => {
            let results = claim.status.allocation.as_ref().map(|it| &it.devices.results);
            let state = match results {
                _ if claim.metadata.deletion_timestamp.is_some() => "being deleted".to_owned(),
                Some(results) => {
                    format!("allocated: {}", few(results.iter().map(|it| format!("{}/{}", it.pool, it.device))))
                }
                None => "not allocated".to_owned(),
            };
            (of("ResourceClaim", key), state)
        }
    }
}

fn row_of(request: &ClaimRequest, row: &ClaimAnswer) -> ClaimAnswer {
    let count = |state| request.count(state);
    let (free, allocated, held) = (count(DeviceState::Free), count(DeviceState::Allocated), count(DeviceState::Held));
    let matching = request.devices.len();
    ClaimAnswer {
        request: request.name.clone(),
        class: request.class.clone(),
        wanted: request.wanted.map_or_else(|| "all".to_owned(), |wanted| wanted.to_string()),
        matching,
        free,
        allocated,
        held,
        other: matching - free - allocated - held,
        ..row.clone()
    }
}

/// Returns the claims that have matching devices of unallocated claims, the greatest first.
pub(super) fn waited_holders(claims: &[ExplainedClaim<'_>]) -> Vec<WaitedHolder> {
    let mut holders: BTreeMap<String, WaitedHolder> = BTreeMap::new();
    let open = claims.iter().filter(|claim| claim.given().is_none()).flat_map(|claim| &claim.requests);
    for device in open.flat_map(|request| &request.devices) {
        for holder in &device.holders {
            let name = holder.claim.to_string();
            let known = holders.entry(name.clone()).or_insert_with(|| WaitedHolder {
                claim: name,
                pods: holder.pods.clone(),
                devices: 0,
                nodes: Vec::new(),
            });
            known.devices += 1;
            let node = device.node.as_deref().unwrap_or("-");
            if known.nodes.iter().all(|it| it != node) {
                known.nodes.push(node.to_owned());
            }
        }
    }
    let mut holders: Vec<WaitedHolder> = holders.into_values().collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.devices));
    holders
}
