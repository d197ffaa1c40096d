//! Decides which waiting pod is to get which place. Pure: one pod gets one place, and a place that is being handed over
//! gets no other pod.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{
    ObjectKey,
    reservation::{RESERVATION_ORDER, ReservationPhase},
};

use super::decide::open_places;
use crate::{
    reservation_affinity::{ReservationAffinity, ignores_reservations},
    reservation_object::ReservationObject,
    unscheduled_pods::UnscheduledPod,
    view::ClusterView,
};

/// Pods that are to get places: by Reservation and replica.
pub(super) type PlaceCandidates = BTreeMap<String, BTreeMap<u32, ObjectKey>>;

/// Returns the pods that are to get places, the oldest pod first. Of several Reservations a pod gets the one with the
/// lowest order that is not 0, then the oldest.
pub(super) fn assign(view: &ClusterView) -> PlaceCandidates {
    let mut open: Vec<(&ReservationObject, BTreeSet<u32>)> = view
        .reservations
        .values()
        .filter(|it| takes_pods(it))
        .map(|it| (&**it, open_places(it).into_keys().collect::<BTreeSet<u32>>()))
        .filter(|(_, replicas)| !replicas.is_empty())
        .collect();
    open.sort_by_cached_key(|(reservation, _)| {
        let order = reservation.labels.get(RESERVATION_ORDER).and_then(|text| text.parse::<i64>().ok());
        let order = order.filter(|order| *order != 0);
        (order.is_none(), order, reservation.created, reservation.name.clone())
    });
    let mut assigned = PlaceCandidates::new();
    if open.is_empty() {
        return assigned;
    }
    let taken = view.reservations.values().flat_map(|it| &it.status.places).flat_map(|place| &place.owners);
    let taken: BTreeSet<&str> = taken.map(|owner| &*owner.uid).collect();
    let mut pods: Vec<(&ObjectKey, &UnscheduledPod)> =
        view.unscheduled_pods.iter().map(|(key, pod)| (key, &**pod)).collect();
    pods.retain(|(_, pod)| !taken.contains(&*pod.owner.uid));
    pods.sort_by_key(|(key, pod)| (&pod.created, *key));
    for (key, pod) in pods {
        let Some((name, replica)) = open.iter().find_map(|(it, replicas)| fit(it, replicas, key, pod)) else {
            continue;
        };
        if let Some((_, replicas)) = open.iter_mut().find(|(it, _)| it.name == name) {
            replicas.remove(&replica);
        }
        assigned.entry(name).or_default().insert(replica, key.clone());
    }
    assigned
}

fn takes_pods(reservation: &ReservationObject) -> bool {
    reservation.status.phase == ReservationPhase::Available
        && !reservation.is_deleting
        && !reservation.spec.unschedulable.unwrap_or(false)
}

/// Returns the first of these places of a Reservation that is for the pod.
fn fit(
    reservation: &ReservationObject,
    replicas: &BTreeSet<u32>,
    key: &ObjectKey,
    pod: &UnscheduledPod,
) -> Option<(String, u32)> {
    let wants = || {
        let affinity = ReservationAffinity::of(&pod.owner).ok()?;
        let is_borne =
            reservation.spec.taints.iter().all(|taint| affinity.tolerations.iter().any(|it| it.tolerates(taint)));
        (is_borne && affinity.wants(reservation)).then_some(())
    };
    if !reservation.spec.is_owned_by(&pod.owner.candidate(key)) || ignores_reservations(&pod.owner) {
        return None;
    }
    wants()?;
    let places = open_places(reservation);
    let free = places.into_iter().filter(|(replica, _)| replicas.contains(replica));
    let mut fitting = free.filter(|(_, place)| place.has_room(&pod.requests));
    fitting.next().map(|(replica, _)| (reservation.name.clone(), replica))
}
