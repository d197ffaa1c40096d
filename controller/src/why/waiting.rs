//! Pods without a node: gates, claims and classes, before any device is looked at.

use hostler_api::{
    ObjectKey,
    core::Pod,
    did_you_mean, few,
    provisioning::{ProvisioningConditionType, ProvisioningRequestStatus, consumed_request},
    reservation::{PLACEMENT_GATE, RESERVATION_GATE},
};

use super::{
    cause::{CauseKind, PodCause},
    claims::{ExplainedClaim, FoundClaim},
    pod::ExplainedPod,
    world::{SeenEvent, WhyWorld},
};
use crate::{
    called,
    pod_gates::{GATE_NOT_REMOVED, GATE_WAITS},
    reservation_object::ReservationObject,
};

/// The gate of a pod that Kueue has not admitted.
const KUEUE_GATE: &str = "kueue.x-k8s.io/admission";

/// Pods that can use a claim at a time.
const MOST_USERS: usize = 256;

/// Returns the first reason for which no device is looked at.
pub(super) fn before_devices(
    world: &WhyWorld,
    seen: &ExplainedPod,
    pod: &Pod,
    claims: &[ExplainedClaim<'_>],
) -> Option<PodCause> {
    gated(world, seen, pod)
        .or_else(|| no_api(world, pod))
        .or_else(|| claims.iter().find_map(|claim| of_claim(world, seen, claim)))
        .or_else(|| claims.iter().find_map(|claim| no_class(world, claim)))
        .or_else(|| no_capacity_yet(world, pod, &seen.key()))
}

fn gated(world: &WhyWorld, seen: &ExplainedPod, pod: &Pod) -> Option<PodCause> {
    let gates: Vec<&str> = pod.spec.scheduling_gates.iter().map(|gate| &*gate.name).collect();
    if let Some(refusal) = refusal(world, seen).filter(|_| gates.contains(&RESERVATION_GATE)) {
        let reason = format!("scheduling gate {RESERVATION_GATE} holds it back, and cannot be removed: {refusal}");
        let fix = format!("let hostler's controller change the pod, or remove the gate {RESERVATION_GATE} by hand");
        return Some(PodCause::new(CauseKind::Gated, reason).with_fix(fix));
    }
    let fix = match *gates.first()? {
        KUEUE_GATE => "Kueue removes it once the workload is admitted: kubectl get workloads shows the queue",
        RESERVATION_GATE => {
            "hostler's controller removes it once the place of the pod is free or its ProvisioningRequest decided; Events of the \
             pod and kubectl hostler explain reservation tell more"
        }
        PLACEMENT_GATE => {
            "hostler's controller removes it once it has found devices for the pod; Events of the pod tell what it found"
        }
        _ => "the program that set the gate removes it; nothing else can let the pod go",
    };
    let reason = match gates[..] {
        [RESERVATION_GATE] if let Some(what) = waited_for(world, seen, pod) => {
            format!("scheduling gate {RESERVATION_GATE} holds it back until it has what it waits for: {what}")
        }
        [gate] => format!("scheduling gate {gate} holds it back: no scheduler looks at it"),
        _ => format!("scheduling gates {} hold it back: no scheduler looks at it", few(&gates)),
    };
    Some(PodCause::new(CauseKind::Gated, reason).with_fix(fix))
}

/// Returns the controller's last words on a gate that it could not remove, unless it has said since that the pod waits.
fn refusal<'w>(world: &'w WhyWorld, seen: &ExplainedPod) -> Option<&'w str> {
    let key = seen.key();
    let is_told =
        |event: &&SeenEvent| [GATE_NOT_REMOVED, GATE_WAITS].contains(&&*event.reason) && event.is_about("Pod", &key);
    let last = world.events.iter().rev().find(is_told)?;
    (last.reason == GATE_NOT_REMOVED).then(|| last.message.trim())
}

/// Returns what a pod with the gate of owners waits for, as far as the objects that may be read tell.
fn waited_for(world: &WhyWorld, seen: &ExplainedPod, pod: &Pod) -> Option<String> {
    let key = seen.key();
    if let Some(name) = consumed_request(&pod.metadata) {
        let request = ObjectKey::new(&key.namespace, name);
        let status = world.requests.get(&request).map(|found| &found.status);
        let decided = [ProvisioningConditionType::Provisioned, ProvisioningConditionType::Failed];
        if !status.is_some_and(|status| decided.into_iter().any(|kind| status.is(kind))) {
            return Some(format!("the decision on ProvisioningRequest {request}"));
        }
    }
    let mut open = world.manifests.reservations.values().filter(|it| !it.status.phase.is_over());
    let is_its = |it: &ReservationObject| seen.as_candidate(|pod| it.spec.is_owned_by(pod));
    let found = open.find(|it| !it.status.places.is_empty() && is_its(it))?;
    Some(format!("a place of Reservation {}", found.name))
}

fn no_api(world: &WhyWorld, pod: &Pod) -> Option<PodCause> {
    let is_lacking = !world.has_claims && !pod.spec.resource_claims.is_empty();
    let version = world.minor.map(|minor| format!(" of Kubernetes 1.{minor}")).unwrap_or_default();
    is_lacking.then(|| {
        let reason = format!(
            "it has claims, and the API server{version} serves resource.k8s.io in none of the versions v1, v1beta2 and v1beta1"
        );
        let fix = "use Kubernetes 1.34 or newer; in 1.32 and 1.33 switch on the gate DynamicResourceAllocation and its API \
            group; for older clusters see docs/classic-dra.md";
        PodCause::new(CauseKind::NoClaimApi, reason).with_fix(fix)
    })
}

fn of_claim(world: &WhyWorld, seen: &ExplainedPod, claim: &ExplainedClaim<'_>) -> Option<PodCause> {
    let name = claim.name;
    match &claim.found {
        FoundClaim::Absent(key) if world.may_read("resourceclaims") => {
            let hint = did_you_mean(&key.name, names(world.claims.keys(), key));
            let reason = format!("its claim {name} names ResourceClaim {key}, which does not exist{hint}");
            let fix = "create the claim, or name one that is there, in the same namespace";
            Some(PodCause::new(CauseKind::NoClaim, reason).with_fix(fix))
        }
        FoundClaim::NoTemplate(key) if world.may_read("resourceclaimtemplates") => {
            let hint = did_you_mean(&key.name, names(world.manifests.templates.iter(), key));
            let reason = format!("its claim {name} names ResourceClaimTemplate {key}, which does not exist{hint}");
            let fix = "create the template, or name one that is there, in the same namespace";
            Some(PodCause::new(CauseKind::NoTemplate, reason).with_fix(fix))
        }
        FoundClaim::NotMade(template) => {
            let key = seen.key();
            let is_it =
                |event: &&SeenEvent| event.reason == "FailedResourceClaimCreation" && event.is_about("Pod", &key);
            let said = world.events.iter().rev().find(is_it).map(|event| format!(": {}", event.message.trim()));
            let said = said.unwrap_or_default();
            let reason = format!("its claim {name} was not made from ResourceClaimTemplate {template} yet{said}");
            let fix = format!(
                "kube-controller-manager makes it within seconds; if not, its log says why, and \
                 kubectl describe quota -n {} shows whether a quota is in the way",
                key.namespace
            );
            Some(PodCause::new(CauseKind::ClaimNotMade, reason).with_fix(fix))
        }
        FoundClaim::There(key, found) if found.metadata.deletion_timestamp.is_some() => {
            let users = few(found.status.reserved_for.iter().map(|user| &user.name));
            let users =
                if users.is_empty() { String::new() } else { format!("; it goes once its pods have ended: {users}") };
            let reason = format!("ResourceClaim {key} is being deleted{users}");
            let fix = "create the claim anew once it is gone";
            Some(PodCause::new(CauseKind::ClaimDeleting, reason).with_fix(fix))
        }
        FoundClaim::There(key, found) if found.status.reserved_for.len() >= MOST_USERS => {
            let reason = format!("{MOST_USERS} pods use ResourceClaim {key}, which is the most");
            let fix = "use another claim, or wait until one of these pods has ended";
            Some(PodCause::new(CauseKind::ClaimFull, reason).with_fix(fix))
        }
        _ => None,
    }
}

/// Returns the names of objects in the namespace of a key.
fn names<'w>(keys: impl Iterator<Item = &'w ObjectKey> + 'w, of: &'w ObjectKey) -> impl Iterator<Item = String> + 'w {
    keys.filter(|key| key.namespace == of.namespace).map(|key| key.name.clone())
}

fn no_class(world: &WhyWorld, claim: &ExplainedClaim<'_>) -> Option<PodCause> {
    if claim.given().is_some() || !world.may_read("deviceclasses") {
        return None;
    }
    let lacking = claim.requests.iter().find(|it| !it.has_class && !it.is_alternative)?;
    let hint = did_you_mean(&lacking.class, world.classes.keys().cloned());
    let reason = format!(
        "request {} of its claim {} names DeviceClass {}, which does not exist{hint}",
        lacking.name, claim.name, lacking.class
    );
    let fix =
        "kubectl get deviceclasses lists those that there are; hostler's come with kubectl apply -k deploy/cluster";
    Some(PodCause::new(CauseKind::NoClass, reason).with_fix(fix))
}

fn no_capacity_yet(world: &WhyWorld, pod: &Pod, key: &ObjectKey) -> Option<PodCause> {
    let name = consumed_request(&pod.metadata)?;
    let request = ObjectKey::new(&key.namespace, name);
    let explain = format!("{} explain provreq -n {} {name} says more", called::program(), key.namespace);
    let Some(found) = world.requests.get(&request) else {
        let reason = format!("it is of ProvisioningRequest {request}, which does not exist");
        let is_known = world.may_read("provisioningrequests");
        let fix = "create the request, or take the annotation away";
        return is_known.then(|| PodCause::new(CauseKind::NoCapacityYet, reason).with_fix(fix));
    };
    let status: &ProvisioningRequestStatus = &found.status;
    let said = |kind: ProvisioningConditionType| {
        status.condition(kind).map(|it| format!(": {}", it.message)).unwrap_or_default()
    };
    let reason = if status.is(ProvisioningConditionType::Failed) {
        format!("its ProvisioningRequest {request} has failed{}", said(ProvisioningConditionType::Failed))
    } else if status.is(ProvisioningConditionType::Provisioned) {
        return None;
    } else {
        let said = said(ProvisioningConditionType::Provisioned);
        format!("its ProvisioningRequest {request} was not told yes yet{said}")
    };
    Some(PodCause::new(CauseKind::NoCapacityYet, reason).with_fix(explain))
}
