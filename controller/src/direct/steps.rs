//! The steps that more than one reason leads to, each with its write.

use hostler_api::{ObjectKey, reservation::PLACEMENT_GATE};

use super::context::{DirectClaim, DirectPod, DirectStep, DirectWrite, version_of};
use crate::{
    claim_write::{ClaimWrite, DELETE_PROTECTION, WrittenClaimStatus},
    reservation_object::ReservationObject,
};

pub(super) fn release(reservation: &ReservationObject) -> DirectWrite {
    DirectWrite::Release(reservation.name.clone(), version_of(reservation))
}

/// Adds the finalizer without which the claim would not be freed.
pub(super) fn finalizers(claim: &DirectClaim) -> DirectStep {
    let all = claim.metadata.finalizers.iter().cloned().chain([DELETE_PROTECTION.to_owned()]);
    DirectStep::Write(DirectWrite::Claim(ClaimWrite::Finalizers(claim.written(), all.collect())))
}

/// Takes all devices from the claim.
pub(super) fn clear(claim: &DirectClaim) -> DirectStep {
    status(claim, WrittenClaimStatus::default())
}

pub(super) fn status(claim: &DirectClaim, status: WrittenClaimStatus) -> DirectStep {
    DirectStep::Write(DirectWrite::Claim(ClaimWrite::Status(claim.written(), Box::new(status))))
}

pub(super) fn ungate(pod: &DirectPod) -> DirectStep {
    let others = pod.spec.scheduling_gates.iter().filter(|gate| gate.name != PLACEMENT_GATE);
    let key = ObjectKey::new(&pod.metadata.namespace, &pod.metadata.name);
    DirectStep::Write(DirectWrite::Gates(key, pod.metadata.version(), others.map(|gate| gate.name.clone()).collect()))
}
