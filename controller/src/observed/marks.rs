//! Pods and claims that have a keeper: those that say that they were made for a Reservation, and pods that wait to be
//! placed. They are marked with their version; their keeper reads them anew where this changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_api::{
    ObjectKey,
    core::Pod,
    reservation::{PLACEMENT_GATE, PLACES_NAMESPACE, made_for, placement_name, reserve_pod_name},
};
use hostler_reconcile::ObjectStamp;

use super::{ObservedKind, ObservedObject};
use crate::reservation_object::ReservationObject;

/// An object that was made for a Reservation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ReservationMark {
    /// The name of the Reservation.
    pub(crate) reservation: String,
    /// Version of the object.
    pub(crate) stamp: ObjectStamp,
}

/// Pods and claims that have a keeper.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReservationMarks {
    /// Objects that were made for Reservations.
    pub(crate) made: BTreeMap<(ObservedKind, ObjectKey), ReservationMark>,
    /// Pods that wait to be placed: those with the gate, and those without it that a Reservation was made for, until
    /// they are bound.
    pub(crate) placed: BTreeMap<ObjectKey, PlacedPod>,
    /// Their claims, as far as these were seen since.
    pub(crate) placed_claims: BTreeMap<ObjectKey, Option<ObjectStamp>>,
}

/// A pod that waits to be placed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PlacedPod {
    /// Version of the pod.
    pub(crate) stamp: ObjectStamp,
    /// Claims of the pod.
    pub(crate) claims: BTreeSet<ObjectKey>,
}

/// Updates the mark of an object; marks are not copied for objects that have none.
pub(crate) fn see(
    marks: &mut Arc<ReservationMarks>,
    (kind, key): (ObservedKind, &ObjectKey),
    stamp: ObjectStamp,
    object: &ObservedObject,
    reservations: &BTreeMap<String, Arc<ReservationObject>>,
) {
    let reservation = match object {
        ObservedObject::ResourceClaim(claim) => {
            see_placed_claim(marks, key, Some(stamp));
            made_for(&key.name, &claim.metadata.annotations)
        }
        ObservedObject::Pod(pod) => {
            if is_to_be_placed(pod, reservations) {
                see_placed(marks, key, PlacedPod { stamp, claims: claims_of(key, pod) });
            } else {
                forget_placed(marks, key);
            }
            let made = made_for(&key.name, &pod.metadata.annotations);
            // Pods that ask for devices, and those that stand in places, are made for a Reservation: those that use
            // them have owners of their own.
            made.filter(|name| key.name == reserve_pod_name(name) || key.namespace == PLACES_NAMESPACE)
        }
        _ => return,
    };
    match reservation {
        Some(reservation) => {
            let mark = ReservationMark { reservation: reservation.to_owned(), stamp };
            Arc::make_mut(marks).made.insert((kind, key.clone()), mark);
        }
        None => forget_made(marks, kind, key),
    }
}

pub(crate) fn forget(marks: &mut Arc<ReservationMarks>, kind: ObservedKind, key: &ObjectKey) {
    forget_made(marks, kind, key);
    match kind {
        ObservedKind::Pod => forget_placed(marks, key),
        ObservedKind::ResourceClaim => see_placed_claim(marks, key, None),
        _ => {}
    }
}

fn is_to_be_placed(pod: &Pod, reservations: &BTreeMap<String, Arc<ReservationObject>>) -> bool {
    let is_gated = pod.spec.scheduling_gates.iter().any(|gate| gate.name == PLACEMENT_GATE);
    let is_bound = pod.spec.node_name.as_deref().is_some_and(|node| !node.is_empty());
    // Names of all that were made for it begin with its UID.
    let is_made = |first: String| reservations.range(first.clone()..).next().is_some_and(|it| it.0.starts_with(&first));
    !is_bound && (is_gated || pod.metadata.uid.as_deref().map(placement_name).is_some_and(is_made))
}

/// Returns the claims of a pod, as far as they are made.
fn claims_of(key: &ObjectKey, pod: &Pod) -> BTreeSet<ObjectKey> {
    let all = pod.spec.resource_claims.iter().chain(&pod.status.resource_claim_statuses);
    all.filter_map(|claim| Some(ObjectKey::new(&key.namespace, claim.resource_claim_name.as_deref()?))).collect()
}

fn see_placed(marks: &mut Arc<ReservationMarks>, key: &ObjectKey, pod: PlacedPod) {
    let marks = Arc::make_mut(marks);
    for claim in &pod.claims {
        marks.placed_claims.entry(claim.clone()).or_default();
    }
    let before = marks.placed.insert(key.clone(), pod);
    marks.drop_claims(before.map(|it| it.claims).unwrap_or_default());
}

fn see_placed_claim(marks: &mut Arc<ReservationMarks>, key: &ObjectKey, stamp: Option<ObjectStamp>) {
    if marks.placed_claims.contains_key(key) {
        Arc::make_mut(marks).placed_claims.insert(key.clone(), stamp);
    }
}

fn forget_placed(marks: &mut Arc<ReservationMarks>, key: &ObjectKey) {
    if marks.placed.contains_key(key) {
        let marks = Arc::make_mut(marks);
        let gone = marks.placed.remove(key);
        marks.drop_claims(gone.map(|it| it.claims).unwrap_or_default());
    }
}

impl ReservationMarks {
    /// Drops claims of pods that are not to be placed any more: of several pods the last one counts.
    fn drop_claims(&mut self, claims: BTreeSet<ObjectKey>) {
        for claim in claims {
            if !self.placed.values().any(|pod| pod.claims.contains(&claim)) {
                self.placed_claims.remove(&claim);
            }
        }
    }
}

fn forget_made(marks: &mut Arc<ReservationMarks>, kind: ObservedKind, key: &ObjectKey) {
    let place = (kind, key.clone());
    if marks.made.contains_key(&place) {
        Arc::make_mut(marks).made.remove(&place);
    }
}
