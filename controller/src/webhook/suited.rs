//! Reservations that suit a pod: those with devices where the pod can run; and of the Reservations that were made for
//! its ProvisioningRequest, those of its pod set. Pure.

use hostler_api::{
    core::PodTemplateSpec,
    reservation::{OwnerCandidate, ReservationPhase, ReservedDevice, ReservedDeviceState},
};

use crate::{
    hold::OfferedReservation, provision::booked_set, requests::PodShape, reservation_object::ReservationObject,
    view::ClusterView,
};

use super::pod::WebhookPod;

/// The most values of Reservations that a pod tolerates: a request has room for twice as many, and the pod needs some
/// of its own.
const MOST_VALUES: usize = 8;

/// Returns all Reservations that are for the pod, with or without free devices.
pub(super) fn suited<'a>(
    view: &'a ClusterView,
    pod: &WebhookPod,
    candidate: &OwnerCandidate<'_>,
) -> Vec<&'a ReservationObject> {
    let shape = PodShape::of(&pod.spec);
    let all = view.reservations.values().map(|it| &**it);
    // Reservations of the pod's ProvisioningRequest, and the likeness of the pod to their pods.
    let of_request = |it: &ReservationObject| {
        it.spec.owners.iter().any(|owner| owner.provisioning_request.is_some() && owner.matches(candidate))
    };
    let likeness = |it: &ReservationObject| {
        let template: PodTemplateSpec = serde_json::from_value(it.spec.template.clone()).ok()?;
        shape.likeness(&PodShape::of(&template.spec))
    };
    let (of_request, others): (Vec<_>, Vec<_>) = all.partition(|it| of_request(it));
    let most = of_request.iter().filter_map(|it| likeness(it)).max();
    // A pod that is like none of them may be of any set.
    let of_set = of_request.into_iter().filter(|it| most.is_none() || likeness(it) == most);
    of_set.chain(others).filter(|it| is_reachable(view, pod, it)).collect()
}

/// True if a device of the Reservation is on a node where the pod can run. A node that takes no pods now counts: it may
/// take some again. The devices of a Reservation that is not Available yet may change.
fn is_reachable(view: &ClusterView, pod: &WebhookPod, reservation: &ReservationObject) -> bool {
    let is_wanted = |device: &ReservedDevice| {
        let node = view.facts.node(&device.node_name);
        node.is_none_or(|node| pod.spec.wants_node(&device.node_name, &node.metadata.labels))
    };
    let is_once = reservation.spec.is_once();
    let mut left = reservation.status.kept().filter(|it| !is_once || it.state != ReservedDeviceState::HandedOver);
    reservation.status.phase != ReservationPhase::Available || left.any(is_wanted)
}

/// Returns the first Reservation, and those that are for the same pods: a large set of a ProvisioningRequest has
/// several, and it is not known which of them has devices left when the scheduler decides.
pub(super) fn together<'a, 'b>(open: &'b [OfferedReservation<'a>]) -> Vec<&'b OfferedReservation<'a>> {
    let Some((first, others)) = open.split_first() else { return Vec::new() };
    let set = booked_set(first.reservation);
    let is_beside = |it: &&OfferedReservation<'a>| set.is_some() && booked_set(it.reservation) == set;
    [first].into_iter().chain(others.iter().filter(is_beside)).take(MOST_VALUES).collect()
}
