//! Pods and claims that somebody looks after: those that say that they were made for a Reservation, and pods that wait to be placed.
//! Which there are, in which version; whoever looks after them reads them anew where this changes.

use std::{collections::BTreeMap, sync::Arc};

use hostler_allocator::plan::ObjectKey;
use hostler_api::{
    core::Pod,
    reservation::{PLACEMENT_GATE, made_for, reserve_pod_name},
};

use super::{ObjectStamp, ObservedKind, ObservedObject};

/// An object that was made for a Reservation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ReservationMark {
    /// The name of the Reservation.
    pub(crate) reservation: String,
    /// Its version.
    pub(crate) stamp: ObjectStamp,
}

/// Pods and claims that somebody looks after.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReservationMarks {
    /// Those that were made for Reservations.
    pub(crate) made: BTreeMap<(ObservedKind, ObjectKey), ReservationMark>,
    /// Pods that wait to be placed.
    pub(crate) gated: BTreeMap<ObjectKey, ObjectStamp>,
}

/// Whether an object has another mark now; those that have none are not copied for it.
pub(super) fn see(
    marks: &mut Arc<ReservationMarks>,
    (kind, key): (ObservedKind, &ObjectKey),
    stamp: ObjectStamp,
    object: &ObservedObject,
) {
    let (reservation, is_gated) = match object {
        ObservedObject::ResourceClaim(claim) => (made_for(&key.name, &claim.metadata.annotations), false),
        ObservedObject::Pod(pod) => {
            let made = made_for(&key.name, &pod.metadata.annotations);
            // Only the pod that asks for devices is made for a Reservation: those that use them are somebody's.
            (made.filter(|name| key.name == reserve_pod_name(name)), is_gated(pod))
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
    if is_gated {
        Arc::make_mut(marks).gated.insert(key.clone(), stamp);
    } else if kind == ObservedKind::Pod {
        forget_gated(marks, key);
    }
}

pub(super) fn forget(marks: &mut Arc<ReservationMarks>, kind: ObservedKind, key: &ObjectKey) {
    forget_made(marks, kind, key);
    if kind == ObservedKind::Pod {
        forget_gated(marks, key);
    }
}

fn is_gated(pod: &Pod) -> bool {
    pod.spec.scheduling_gates.iter().any(|gate| gate.name == PLACEMENT_GATE)
}

fn forget_made(marks: &mut Arc<ReservationMarks>, kind: ObservedKind, key: &ObjectKey) {
    let place = (kind, key.clone());
    if marks.made.contains_key(&place) {
        Arc::make_mut(marks).made.remove(&place);
    }
}

fn forget_gated(marks: &mut Arc<ReservationMarks>, key: &ObjectKey) {
    if marks.gated.contains_key(key) {
        Arc::make_mut(marks).gated.remove(key);
    }
}
