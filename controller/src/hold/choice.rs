//! Which of several Reservations a pod is led to.

use std::{cmp::Reverse, collections::BTreeMap};

use hostler_api::{
    Quantity,
    core::Toleration,
    reservation::{OwnerCandidate, RESERVATION_ORDER, ReservationAllocatePolicy, ReservationPhase},
};

use super::event::ReservationObject;

/// A pod that looks for a Reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReservationOffer<'a> {
    pub(crate) pod: OwnerCandidate<'a>,
    /// What it bears of taints of Reservations.
    pub(crate) tolerations: &'a [Toleration],
    /// What it asks for, under the names of quotas.
    pub(crate) wants: &'a BTreeMap<String, Quantity>,
}

/// The Reservations that the pod can be led to, the best one first: the lowest order that is not 0, then the one of which most is
/// taken once the pod has its part, then the oldest, then by name.
pub(crate) fn open_reservations<'a>(
    reservations: impl IntoIterator<Item = &'a ReservationObject>,
    offer: &ReservationOffer<'_>,
) -> Vec<&'a ReservationObject> {
    let mut open: Vec<&ReservationObject> = reservations.into_iter().filter(|it| is_open(it, offer)).collect();
    open.sort_by_cached_key(|it| {
        let order = it.labels.get(RESERVATION_ORDER).and_then(|text| text.parse::<i64>().ok()).filter(|it| *it != 0);
        (order.is_none(), order, Reverse(score(it, offer.wants)), it.created, it.name.clone())
    });
    open
}

fn is_open(reservation: &ReservationObject, offer: &ReservationOffer<'_>) -> bool {
    let spec = &reservation.spec;
    let is_strict = spec.allocate_policy == Some(ReservationAllocatePolicy::Restricted);
    let left = |(name, wanted): (&String, &Quantity)| {
        let (all, taken) = (reservation.status.allocatable.get(name), reservation.status.allocated.get(name));
        let taken = taken.copied().unwrap_or_default();
        // Devices of other classes come from elsewhere.
        all.is_none_or(|all| if is_strict { taken.plus(*wanted) <= *all } else { taken < *all || wanted.is_zero() })
    };
    let is_borne = spec.taints.iter().all(|taint| offer.tolerations.iter().any(|it| it.tolerates(taint)));
    reservation.status.phase == ReservationPhase::Available
        && !reservation.is_deleting
        && !spec.unschedulable.unwrap_or(false)
        && is_borne
        && spec.is_owned_by(&offer.pod)
        && offer.wants.iter().any(|(name, _)| reservation.status.allocatable.contains_key(name))
        && offer.wants.iter().all(left)
}

/// How much of what is kept is taken with the pod's part, in thousandths, on average over what it asks for.
fn score(reservation: &ReservationObject, wants: &BTreeMap<String, Quantity>) -> u128 {
    let status = &reservation.status;
    let shares: Vec<u128> = status
        .allocatable
        .iter()
        .filter(|(_, all)| **all > Quantity::default())
        .map(|(name, all)| {
            let part =
                |of: &BTreeMap<String, Quantity>| u128::from(of.get(name).and_then(|it| it.as_whole()).unwrap_or(0));
            let taken = part(&status.allocated) + part(wants);
            (taken * 1000 / u128::from(all.as_whole().unwrap_or(1).max(1))).min(1000)
        })
        .collect();
    shares.iter().sum::<u128>() / (shares.len().max(1) as u128)
}
