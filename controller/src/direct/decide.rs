//! The next step for a pod that is placed directly. Pure: takes everything that was read, and returns one write.

use std::time::UNIX_EPOCH;

use hostler_allocator::plan::{NotJudged, not_kept};
use hostler_api::{
    core::PodSpec,
    few,
    reservation::{PLACED_POD_LABEL, PLACEMENT_GATE, ReservationPhase, ReservedDevice, ReservedDeviceState as State},
    resource::ResourceClaimConsumerReference,
};
use hostler_cluster::rfc3339;
use serde_json::Value;

use super::{
    allocate::allocation,
    attempt::Attempt,
    context::{DirectClaim, DirectContext, DirectPod, DirectStep},
    pinned::contradiction,
    reserve::{copied, reserve},
    steps::{clear, finalizers, release, status, ungate},
};
use crate::{
    claim_write::{DELETE_PROTECTION, WrittenClaimStatus},
    reservation_object::ReservationObject,
};

/// Decides what is done next.
pub(super) fn decide(cx: &DirectContext) -> DirectStep {
    let placed = cx.pod.as_ref().filter(|pod| !pod.is_over() && !pod.is_bound());
    let is_ours = |it: &&ReservationObject| placed.is_some_and(|pod| is_for(it, pod));
    // Of several Reservations the last plan counts.
    let own = cx.reservations.iter().filter(is_ours).max_by_key(|it| Attempt::of(it).number);
    // A Reservation keeps devices for no pod if its pod is bound, gone or another one by now.
    let mut others = cx.reservations.iter().filter(|it| own.is_none_or(|own| own.uid != it.uid));
    if let Some(other) = others.find(|it| !it.is_deleting) {
        return DirectStep::Write(release(other));
    }
    match (placed, own) {
        (Some(pod), own) if pod.is_gated() || own.is_some() => {
            own.and_then(|own| cx.say(own)).map_or_else(|| cx.step_of_pod(pod, own), DirectStep::Write)
        }
        _ => DirectStep::Rest,
    }
}

fn is_for(reservation: &ReservationObject, pod: &DirectPod) -> bool {
    reservation.labels.get(PLACED_POD_LABEL) == Some(&pod.metadata.uid)
}

impl DirectContext {
    fn step_of_pod(&self, pod: &DirectPod, own: Option<&ReservationObject>) -> DirectStep {
        let Some(names) = pod.claim_names() else { return DirectStep::Rest };
        let claims: Option<Vec<(&String, &DirectClaim)>> =
            names.iter().map(|(name, _)| self.claims.get_key_value(name)).collect();
        // The controller of claims makes the missing claim.
        let Some(claims) = claims else { return DirectStep::Wait };
        if claims.iter().any(|(_, claim)| claim.metadata.deletion_timestamp.is_some()) {
            return DirectStep::Wait;
        }
        let Some(own) = own else {
            if let Some(why) = contradiction(&claims) {
                return DirectStep::Refuse(why);
            }
            // Claims that have devices by now keep them on their nodes.
            return match claims.iter().all(|(_, claim)| claim.is_allocated()) {
                true => ungate(pod),
                false => held_back(pod)
                    .or_else(|| unjudged(pod))
                    .unwrap_or_else(|| reserve(pod, &claims, &Attempt::default())),
            };
        };
        if own.is_deleting {
            return DirectStep::Wait;
        }
        if !pod.is_gated()
            && let Some(step) = self.step_of_ungated(pod, own, &claims)
        {
            return step;
        }
        // The Reservation's node is gone, or it was ended: the pod still waits for devices, and gets a new Reservation.
        if own.status.phase.is_over() {
            return DirectStep::Write(release(own));
        }
        self.step_of_kept(pod, own, &claims)
    }

    /// Returns the step while the pod's devices are being closed to others, or are closed.
    fn step_of_kept(&self, pod: &DirectPod, own: &ReservationObject, claims: &[(&String, &DirectClaim)]) -> DirectStep {
        let devices: Vec<&ReservedDevice> = own.status.kept().collect();
        let of_claim =
            |name: &str| devices.iter().copied().filter(|it| it.claim == name).collect::<Vec<&ReservedDevice>>();
        // A written device has another user: the claim is released, and the fence stays until no claim has the device.
        let lost = claims.iter().find(|(name, claim)| {
            let is_amiss = |device: &&ReservedDevice| device.state == State::Lost || device.conflict;
            claim.is_written_for(pod) && of_claim(name).iter().any(is_amiss)
        });
        if let Some((_, claim)) = lost {
            return clear(claim);
        }
        if pod.is_gated()
            && let Some(step) = self.step_of_elsewhere(pod, own)
        {
            return step;
        }
        let lacking = claims.iter().find(|(name, claim)| !claim.is_allocated() && !of_claim(name).is_empty());
        let is_kept = own.status.phase == ReservationPhase::Available;
        match lacking {
            Some((name, claim)) if is_kept => self.step_of_claim(pod, claim, &of_claim(name)),
            Some(_) => DirectStep::Wait,
            // The step after this comes once the Reservation's status shows each device as handed over.
            None if devices.iter().any(|device| device.state != State::HandedOver) => DirectStep::Wait,
            None if pod.is_gated() && claims.iter().all(|(_, claim)| claim.is_allocated()) => ungate(pod),
            None => DirectStep::Wait,
        }
    }

    fn step_of_claim(&self, pod: &DirectPod, claim: &DirectClaim, devices: &[&ReservedDevice]) -> DirectStep {
        if devices.iter().any(|device| device.state != State::Held) {
            return DirectStep::Wait;
        }
        if !claim.metadata.finalizers.iter().any(|it| it == DELETE_PROTECTION) {
            return finalizers(claim);
        }
        let Some(allocation) = allocation(&claim.spec, devices, &self.classes, &rfc3339(UNIX_EPOCH + self.now)) else {
            return DirectStep::Wait;
        };
        // With the pod among the consumers, the controller of claims frees the claim when the pod is gone.
        let reserved_for = vec![ResourceClaimConsumerReference {
            resource: "pods".to_owned(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ResourceClaimConsumerReference::default()
        }];
        status(claim, WrittenClaimStatus { allocation: Some(allocation), reserved_for })
    }
}

/// A pod with another gate cannot start before that is gone: nothing is taken for it before ours is the last one. Once
/// it has a Reservation, it keeps what it has.
fn held_back(pod: &DirectPod) -> Option<DirectStep> {
    let others: Vec<&str> =
        pod.spec.scheduling_gates.iter().map(|gate| &*gate.name).filter(|gate| *gate != PLACEMENT_GATE).collect();
    (!others.is_empty()).then(|| {
        let gates = few(others);
        DirectStep::Refuse(format!(
            "{gates} hold it back as well; it is given devices once {PLACEMENT_GATE} is its only gate"
        ))
    })
}

/// Refuses a field that decides where the pod runs and that the planner does not judge. The Reservation would be
/// refused with advice on templates; the pod has no template, and a gate that can be left out.
fn unjudged(pod: &DirectPod) -> Option<DirectStep> {
    // A spec that cannot be understood is refused when it is planned.
    let spec: PodSpec = serde_json::from_value(Value::Object(copied(pod))).ok()?;
    let NotJudged { field, what, .. } = not_kept(&spec).into_iter().next()?;
    Some(DirectStep::Refuse(format!(
        "spec.{field} of the pod cannot be kept ({what}), and the pod might not run where its devices are kept: leave the \
         scheduling gate {PLACEMENT_GATE} out, or leave the field out or make it a preference"
    )))
}
