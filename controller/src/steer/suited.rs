//! Reservations that suit a pod at all: those with something left where it wants to run, and of those that were made
//! for its request the ones for its set. Pure.

use hostler_api::{
    core::PodTemplateSpec,
    reservation::{OwnerCandidate, ReservationPhase, ReservedDevice, ReservedDeviceState},
};

use crate::{
    hold::{OfferedReservation, ReservationObject},
    provision::{PodShape, booked_set},
    view::ClusterView,
};

use super::pod::SteeredPod;

/// Values of Reservations that a pod tolerates at most: the pod has room for twice as many, and wants some for itself.
const MOST_VALUES: usize = 8;

/// Returns all Reservations that are for the pod, whatever they have left for it.
pub(super) fn suited<'a>(
    view: &'a ClusterView,
    pod: &SteeredPod,
    candidate: &OwnerCandidate<'_>,
) -> Vec<&'a ReservationObject> {
    let shape = PodShape::of(&pod.spec);
    let all = view.reservations.values().map(|it| &**it);
    // Those of the pod's request, and how much the pod looks like their pods.
    let of_request = |it: &ReservationObject| {
        it.spec.owners.iter().any(|owner| owner.provisioning_request.is_some() && owner.matches(candidate))
    };
    let likeness = |it: &ReservationObject| {
        let template: PodTemplateSpec = serde_json::from_value(it.spec.template.clone()).ok()?;
        shape.likeness(&PodShape::of(&template.spec))
    };
    let (of_request, others): (Vec<_>, Vec<_>) = all.partition(|it| of_request(it));
    let most = of_request.iter().filter_map(|it| likeness(it)).max();
    // A pod that looks like none may be of any.
    let of_set = of_request.into_iter().filter(|it| most.is_none() || likeness(it) == most);
    of_set.chain(others).filter(|it| is_reachable(view, pod, it)).collect()
}

/// True if a device that the Reservation keeps can come to the pod where that wants to run. Whether the node takes pods
/// now is of no matter: it may again. The devices of a Reservation that is not Available yet may change.
fn is_reachable(view: &ClusterView, pod: &SteeredPod, reservation: &ReservationObject) -> bool {
    let is_wanted = |device: &ReservedDevice| {
        let node = view.facts.node(&device.node_name);
        node.is_none_or(|node| pod.spec.wants_node(&device.node_name, &node.metadata.labels))
    };
    let is_once = reservation.spec.is_once();
    let mut left = reservation.status.kept().filter(|it| !is_once || it.state != ReservedDeviceState::HandedOver);
    reservation.status.phase != ReservationPhase::Available || left.any(is_wanted)
}

/// Returns the first of these, and those that are for the same pods as it: a set of a request has several where it is
/// large, and which of them has something left when the scheduler looks is not known.
pub(super) fn together<'a, 'b>(open: &'b [OfferedReservation<'a>]) -> Vec<&'b OfferedReservation<'a>> {
    let Some((first, others)) = open.split_first() else { return Vec::new() };
    let set = booked_set(first.reservation);
    let is_beside = |it: &&OfferedReservation<'a>| set.is_some() && booked_set(it.reservation) == set;
    [first].into_iter().chain(others.iter().filter(is_beside)).take(MOST_VALUES).collect()
}
