//! Pods of a request that exist: which of them still wait for kept devices. Pure.
//!
//! A pod that took kept devices is their owner from then on. A pod that got other devices, or whose claims do not
//! tolerate the kept ones, needs no kept device any more: the devices kept for it are opened to every pod.

use std::sync::Arc;

use hostler_allocator::plan::PodSet;
use hostler_api::reservation::ReservedDeviceState;

use super::{booked::BookedPart, context::ProvisionContext, membership::members, toleration::tolerates};
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
    if values.any(waits) {
        return false;
    }
    // A kept device that the pod has, and that its Reservation does not call handed over yet, will be.
    let mut devices = claims.iter().filter_map(|it| it.devices.as_ref()).flatten();
    !devices.any(|device| kept.iter().any(|it| is_kept(it, device)))
}

fn is_kept(known: &ReservationObject, [driver, pool, device]: &[String; 3]) -> bool {
    let mut left = known.status.kept().filter(|it| it.state != ReservedDeviceState::HandedOver);
    left.any(|it| it.key() == (driver, pool, device))
}
