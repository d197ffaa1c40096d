//! Claims and pods that say that they were made for a Reservation: which there are, in which version. Whoever looks after them
//! reads them anew where this changes.

use std::{collections::BTreeMap, sync::Arc};

use hostler_allocator::plan::ObjectKey;
use hostler_api::reservation::RESERVATION_ANNOTATION;

use super::{ObjectStamp, ObservedKind, ObservedObject};

/// An object that was made for a Reservation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ReservationMark {
    /// The name of the Reservation.
    pub(crate) reservation: String,
    /// Its version.
    pub(crate) stamp: ObjectStamp,
}

/// Objects that were made for Reservations.
pub(crate) type ReservationMarks = BTreeMap<(ObservedKind, ObjectKey), ReservationMark>;

/// Whether an object has another mark now; those that have none are not copied for it.
pub(super) fn see(
    marks: &mut Arc<ReservationMarks>,
    (kind, key): (ObservedKind, &ObjectKey),
    stamp: ObjectStamp,
    object: &ObservedObject,
) {
    let annotations = match object {
        ObservedObject::ResourceClaim(claim) => &claim.metadata.annotations,
        ObservedObject::Pod(pod) => &pod.metadata.annotations,
        _ => return,
    };
    match annotations.get(RESERVATION_ANNOTATION) {
        Some(reservation) => {
            let mark = ReservationMark { reservation: reservation.clone(), stamp };
            Arc::make_mut(marks).insert((kind, key.clone()), mark);
        }
        None => forget(marks, kind, key),
    }
}

pub(super) fn forget(marks: &mut Arc<ReservationMarks>, kind: ObservedKind, key: &ObjectKey) {
    let place = (kind, key.clone());
    if marks.contains_key(&place) {
        Arc::make_mut(marks).remove(&place);
    }
}
