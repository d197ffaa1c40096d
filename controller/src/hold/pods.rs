//! Decisions about pods that are not ours: a pod is evicted, or annotated with the Reservation of its devices.
//!
//! No pod is evicted before it is certain that the Reservation gets its devices. A pod that is moved is evicted once
//! all devices are kept elsewhere. Pods that make room are evicted once all devices are closed to others and only such
//! pods still have some of them. Nothing depends on annotations.

use hostler_api::{
    ObjectKey,
    reservation::{
        RESERVATION_ALLOCATED, RESERVATION_FINALIZER, ReservationPhase as Phase, ReservedDevice, ReservedDeviceState,
    },
};
use serde_json::json;

use super::{
    context::HoldContext,
    devices::devices_now,
    evictions::{replaces, wanted_evictions},
    known::PodReading,
    objects::device_key,
    reservation::Reservation,
    reservations::Related,
    writes::{HoldWrite, PodWrite},
};

/// Decides the write about a pod: an eviction goes before an annotation.
pub(super) fn decide_pod(cx: &mut HoldContext<'_>, pod: &ObjectKey) -> Option<HoldWrite> {
    let related = Related::Pod(pod.clone());
    let eviction = cx.reservations.related_to(&related).find_map(|it| decide_eviction(cx, it, pod));
    let annotation = || cx.reservations.related_to(&related).find_map(|it| decide_annotation(cx, it, pod));
    eviction.or_else(annotation).map(HoldWrite::Pod)
}

/// Decides if a Reservation evicts a pod now.
fn decide_eviction(cx: &mut HoldContext<'_>, reservation: &Reservation, pod: &ObjectKey) -> Option<PodWrite> {
    let (_, uid) = wanted_evictions(reservation).find(|(it, _)| it == pod)?;
    let evict = || PodWrite::Evict { pod: pod.clone(), uid: uid.to_owned() };
    is_prepared(cx, reservation, uid).then(evict)
}

/// True if it is certain that the Reservation gets its devices once the pod is gone.
fn is_prepared(cx: &mut HoldContext<'_>, reservation: &Reservation, uid: &str) -> bool {
    let devices = devices_now(cx, reservation);
    let (spec, status) = (&reservation.object.spec, &reservation.object.status);
    let is_settled = reservation.proposal.is_none() && status.devices == devices;
    if !is_settled || !reservation.lacking(&devices, &status.current_owners).is_empty() {
        return false;
    }
    if replaces(reservation, uid) {
        return status.phase == Phase::Available;
    }
    let is_safe = |device: &ReservedDevice| match device.state {
        ReservedDeviceState::Held | ReservedDeviceState::HandedOver | ReservedDeviceState::Releasing => true,
        ReservedDeviceState::Fencing => device.owner.is_some() && cx.is_closed_for(reservation, &device_key(device)),
        ReservedDeviceState::Lost => false,
    };
    spec.preempts() && status.phase == Phase::Waiting && devices.iter().all(is_safe)
}

/// Returns the pods that have devices of a Reservation, and may lack the annotation.
pub(super) fn owners_to_annotate(cx: &HoldContext<'_>, reservation: &Reservation) -> impl Iterator<Item = ObjectKey> {
    let (object, pods) = (&reservation.object, &cx.cluster.pods);
    // A Reservation without its finalizer is not reconciled any more.
    let is_kept = object.finalizers.iter().any(|finalizer| finalizer == RESERVATION_FINALIZER);
    let is_reconciled = cx.can_annotate && is_kept && !object.is_deleting;
    let owners = object.status.current_owners.iter().filter(move |it| is_reconciled && !it.uid.is_empty());
    owners.map(|owner| ObjectKey::new(&owner.namespace, &owner.name)).filter(|pod| match pods.get(pod) {
        Some(PodReading::Known(known)) => {
            known.as_ref().is_some_and(|known| !known.annotations.contains_key(RESERVATION_ALLOCATED))
        }
        _ => true,
    })
}

/// Decides if a pod that has devices of a Reservation is annotated now.
fn decide_annotation(cx: &mut HoldContext<'_>, reservation: &Reservation, pod: &ObjectKey) -> Option<PodWrite> {
    if !owners_to_annotate(cx, reservation).any(|it| it == *pod) {
        return None;
    }
    cx.read_pod(pod);
    let Some(PodReading::Known(Some(known))) = cx.cluster.pods.get(pod) else { return None };
    let object = &reservation.object;
    let owner = object.status.current_owners.iter().find(|it| it.uid == known.uid);
    owner.filter(|_| !known.is_deleting).map(|owner| PodWrite::Annotate {
        pod: pod.clone(),
        uid: owner.uid.clone(),
        value: json!({"name": object.name, "uid": object.uid}).to_string(),
    })
}
