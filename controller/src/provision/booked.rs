//! The Reservations of a request by their names and their label. Pure.
//!
//! Each name tells the pods and the set that the Reservation is for; a set that is too large for one Reservation has
//! several.

use std::sync::Arc;

use super::{context::SeenReservations, status::RESERVATION};
use crate::{requests::SeenRequest, reservation_object::ReservationObject};

/// Label with the UID of the request that a Reservation is for.
pub(super) const REQUEST_LABEL: &str = "hostler.dev/provisioning-request-uid";

/// Some pods of a set, whose devices one Reservation keeps.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct BookedPart {
    pub(super) name: String,
    /// Index of the request's set.
    pub(super) set: usize,
    /// Index of the first pod, and number of pods.
    pub(super) from: u32,
    pub(super) pods: u32,
}

/// Returns the Reservations that a request names in its status.
pub(super) fn parts(request: &SeenRequest) -> Vec<BookedPart> {
    let named = request.status.provisioning_class_details.get(RESERVATION);
    let named = named.map(|names| names.split(',')).into_iter().flatten();
    let mut parts: Vec<BookedPart> = named.filter_map(|name| part(request, name)).collect();
    for at in 0..parts.len() {
        let end = parts.get(at + 1).filter(|next| next.set == parts[at].set).map(|next| next.from);
        let count = || request.spec.pod_sets.get(parts[at].set).and_then(|set| u32::try_from(set.count).ok());
        parts[at].pods = end.or_else(count).unwrap_or_default().saturating_sub(parts[at].from);
    }
    parts
}

/// Parses a name of a Reservation of ours; `None` for other text that was written there.
fn part(request: &SeenRequest, name: &str) -> Option<BookedPart> {
    let place = name.strip_prefix("provreq-")?.strip_prefix(request.uid())?.strip_prefix('-')?;
    let (set, from) = place.split_once('-')?;
    Some(BookedPart { name: name.to_owned(), set: set.parse().ok()?, from: from.parse().ok()?, pods: 0 })
}

/// Returns all Reservations that were made for a request.
pub(super) fn made_for<'a>(
    request: &'a SeenRequest,
    all: &'a SeenReservations,
) -> impl Iterator<Item = &'a Arc<ReservationObject>> {
    // Names of one request are neighbours in the map.
    let prefix = format!("provreq-{}-", request.uid());
    let from = all.range(prefix.clone()..).take_while(move |(name, _)| name.starts_with(&prefix));
    from.map(|(_, it)| it).filter(|it| it.labels.get(REQUEST_LABEL).is_some_and(|uid| uid == request.uid()))
}

/// Returns all Reservations that were made for a request, with the index of their set.
pub(super) fn booked_sets<'a>(
    request: &'a SeenRequest,
    all: &'a SeenReservations,
) -> impl Iterator<Item = (usize, &'a ReservationObject)> {
    made_for(request, all).filter_map(|known| Some((part(request, &known.name)?.set, &**known)))
}

/// Returns the prefix that Reservations for the same set of a request share; `None` for Reservations without a request.
pub(crate) fn booked_set(known: &ReservationObject) -> Option<&str> {
    known.labels.get(REQUEST_LABEL)?;
    known.name.strip_prefix("provreq-")?.rsplit_once('-').map(|(set, _)| set)
}

/// Returns the Reservation of this name, if it was made for the request.
pub(super) fn own<'a>(
    request: &SeenRequest,
    name: &str,
    all: &'a SeenReservations,
) -> Option<&'a Arc<ReservationObject>> {
    all.get(name).filter(|it| it.labels.get(REQUEST_LABEL).is_some_and(|uid| uid == request.uid()))
}
