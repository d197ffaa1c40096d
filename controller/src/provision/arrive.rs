//! Pods of a request that exist: which of them still wait for kept devices. Pure.
//!
//! A pod that took kept devices is their owner from then on. A pod that got other devices, or whose claims do not
//! tolerate the kept ones, needs no kept device any more: the devices kept for it are opened to every pod. But the
//! webhook's repair replaces the claim of a pod that waits with a single one, so that such a pod still needs them: pods
//! that a batch system creates before it asks have claims that no webhook could change.

use std::sync::Arc;

use hostler_allocator::plan::{ClaimFacts, PodSet};
use hostler_api::reservation::ReservedDeviceState;

use super::{
    booked::BookedPart,
    context::ProvisionContext,
    membership::members,
    toleration::{has_chosen, tolerates},
};
use crate::{
    requests::{ConsumerPod, SeenRequest},
    reservation_object::ReservationObject,
};

/// Returns for each set the number of pods that still need kept devices.
pub(super) fn waiting(
    request: &SeenRequest,
    sets: &[PodSet],
    open: &[(&BookedPart, &Arc<ReservationObject>)],
    cx: &ProvisionContext<'_>,
) -> Vec<u32> {
    let came = members(request, sets, cx.objects.consumers_of(&request.key), cx);
    let of_set = |(at, pods): (usize, Vec<&ConsumerPod>)| {
        let kept: Vec<&ReservationObject> =
            open.iter().filter(|(part, _)| part.set == at).map(|(_, known)| &***known).collect();
        let done = pods.into_iter().filter(|pod| needs_nothing(pod, &kept, cx)).count();
        sets[at].count.saturating_sub(u32::try_from(done).unwrap_or(u32::MAX))
    };
    came.into_iter().enumerate().map(of_set).collect()
}

/// Returns true if a pod has all its devices, or can never have one of the kept devices.
fn needs_nothing(pod: &ConsumerPod, kept: &[&ReservationObject], cx: &ProvisionContext<'_>) -> bool {
    // A claim that does not exist yet may tolerate kept devices.
    if pod.claims.len() < pod.shape.claims_made() {
        return false;
    }
    let claims: Option<Vec<_>> = pod.claims.iter().map(|claim| cx.facts.claim(claim)).collect();
    let Some(claims) = claims else { return false };
    let waits = |value: &str| claims.iter().any(|it| it.devices.is_none() && tolerates(&it.spec, value));
    let mut values = kept.iter().filter_map(|it| it.status.toleration_value.as_deref());
    if values.any(waits) || cx.leads_pods && !kept.is_empty() && is_repaired(pod, &claims) {
        return false;
    }
    // A kept device that the pod has, and that its Reservation does not call handed over yet, will be.
    let mut devices = claims.iter().filter_map(|it| it.devices.as_ref()).flatten();
    !devices.any(|device| kept.iter().any(|it| is_kept(it, device)))
}

/// Returns true if the webhook's repair replaces the claim of a pod: its only one, which has no devices.
fn is_repaired(pod: &ConsumerPod, claims: &[ClaimFacts]) -> bool {
    let is_empty = |claim: &ClaimFacts| claim.devices.is_none() && !has_chosen(&claim.spec);
    pod.shape.claims_made() == 1 && matches!(claims, [only] if is_empty(only)) && !pod.is_scheduled
}

fn is_kept(known: &ReservationObject, [driver, pool, device]: &[String; 3]) -> bool {
    let mut left = known.status.kept().filter(|it| it.state != ReservedDeviceState::HandedOver);
    left.any(|it| it.key() == (driver, pool, device))
}
