//! Owners that a Reservation fits, and the reasons why they do not take their devices.

use std::collections::BTreeMap;

use hostler_api::{
    core::PodSchedulingGate,
    few,
    reservation::{OwnerCandidate, OwnerController, RESERVATION_GATE, ReservationOwner, ReservationSpec},
    resource::{DeviceTaint, DeviceToleration, ResourceClaimSpec},
    well_known::HELD_TAINT,
};
use serde::Deserialize;
use serde_json::Value;

use crate::reservation_object::ReservationObject;

/// The number of pods that have a line of their own.
const MOST_LINES: usize = 16;

/// A pod, with the fields that decide if it is an owner, and if it waits.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimPod {
    metadata: ClaimPodMeta,
    spec: ClaimPodSpec,
    status: ClaimPodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimPodMeta {
    name: String,
    namespace: String,
    uid: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<ClaimPodOwner>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimPodOwner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimPodSpec {
    node_name: String,
    scheduling_gates: Vec<PodSchedulingGate>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimPodStatus {
    phase: String,
}

/// A claim that may belong to a pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OwnedClaim {
    metadata: ClaimPodMeta,
    spec: ResourceClaimSpec,
    status: PodClaimStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodClaimStatus {
    allocation: Value,
}

/// Returns the namespaces of owners; `None` where owners may be in any namespace.
pub(super) fn namespaces(spec: &ReservationSpec) -> Option<Vec<String>> {
    // An owner without any field matches no pod.
    let said = spec.owners.iter().filter(|owner| **owner != ReservationOwner::default());
    let of_owner = |owner: &ReservationOwner| match owner.namespace() {
        None if owner.is_somewhere() => None,
        named => Some(named.unwrap_or(spec.home()).to_owned()),
    };
    let mut namespaces = said.map(of_owner).collect::<Option<Vec<String>>>()?;
    namespaces.sort();
    namespaces.dedup();
    Some(namespaces)
}

/// Names the pods of owners that wait, and the reasons.
pub(super) fn owner_lines(reservation: &ReservationObject, pods: &[ClaimPod], claims: &[OwnedClaim]) -> Vec<String> {
    let taint = DeviceTaint {
        key: HELD_TAINT.into(),
        value: reservation.status.toleration_value.as_deref().map(Into::into),
        effect: "NoSchedule".into(),
        ..DeviceTaint::default()
    };
    let waiting = pods.iter().filter(|pod| pod.waits() && pod.is_owner(reservation));
    let mut lines: Vec<String> = waiting.map(|pod| pod.line(claims, &taint)).collect();
    let more = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    lines.extend((more > 0).then(|| format!("and {more} more pods of owners wait")));
    lines
}

impl ClaimPod {
    fn waits(&self) -> bool {
        self.spec.node_name.is_empty() && matches!(&*self.status.phase, "" | "Pending")
    }

    fn is_owner(&self, reservation: &ReservationObject) -> bool {
        let ClaimPodMeta { name, namespace, uid, labels, annotations, owner_references } = &self.metadata;
        let controller = owner_references.iter().find(|owner| owner.controller).map(|owner| OwnerController {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            namespace: String::new(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        });
        let candidate = OwnerCandidate { namespace, name, uid, labels, annotations, controller: controller.as_ref() };
        reservation.spec.is_owned_by(&candidate)
    }

    fn line(&self, claims: &[OwnedClaim], taint: &DeviceTaint) -> String {
        let ClaimPodMeta { name, namespace, uid, .. } = &self.metadata;
        let is_its = |claim: &&OwnedClaim| {
            claim.metadata.namespace == *namespace
                && claim.metadata.owner_references.iter().any(|owner| owner.kind == "Pod" && owner.uid == *uid)
        };
        let open: Vec<&OwnedClaim> =
            claims.iter().filter(is_its).filter(|claim| claim.status.allocation.is_null()).collect();
        let is_gated = self.spec.scheduling_gates.iter().any(|gate| gate.name == RESERVATION_GATE);
        let why = if is_gated {
            format!("its scheduling gate {RESERVATION_GATE} goes when its place is free")
        } else if open.is_empty() {
            "it has no claim of its own that wants devices".to_owned()
        } else if open.iter().any(|claim| claim.tolerates(taint)) {
            "it tolerates what is kept, and the scheduler says in its Events what it lacks".to_owned()
        } else {
            let names = few(open.iter().map(|claim| &claim.metadata.name));
            format!(
                "its claim {names} does not tolerate what is kept; write that into its template, and make the pod anew"
            )
        };
        format!("owner {namespace}/{name} waits: {why}")
    }
}

impl OwnedClaim {
    /// True if a request of the claim may get devices that are closed with this taint.
    fn tolerates(&self, taint: &DeviceTaint) -> bool {
        let does = |tolerations: &[DeviceToleration]| tolerations.iter().any(|it| it.tolerates(taint));
        self.spec.devices.requests.iter().any(|request| {
            request.exactly.as_ref().is_some_and(|it| does(&it.tolerations))
                || request.first_available.iter().any(|it| does(&it.tolerations))
        })
    }
}
