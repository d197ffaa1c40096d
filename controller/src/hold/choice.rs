//! Chooses the Reservation from which a pod gets its devices.

use std::{cmp::Reverse, collections::BTreeMap};

use hostler_api::{
    Quantity,
    core::Toleration,
    reservation::{OwnerCandidate, RESERVATION_ORDER, ReservationPhase},
};

use crate::reservation_object::ReservationObject;

/// A pod for which a Reservation is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReservationOffer<'a> {
    pub(crate) pod: OwnerCandidate<'a>,
    /// Tolerations of the pod.
    pub(crate) tolerations: &'a [Toleration],
    /// Devices that the pod asks for, under the names of quotas.
    pub(crate) wants: &'a BTreeMap<String, Quantity>,
}

/// A Reservation that pods can get devices from.
#[derive(Clone, Debug)]
pub(crate) struct OfferedReservation<'a> {
    pub(crate) reservation: &'a ReservationObject,
    /// The devices that the Reservation keeps once it lacks none, under the names of quotas.
    pub(crate) capacity: BTreeMap<String, Quantity>,
}

/// The Reservations that the pod can use, the best first: those that have room now, then the lowest order that is not
/// 0, then the one of which most is taken once the pod has its part, then the oldest, then by name.
pub(crate) fn open_reservations<'a>(
    offered: impl IntoIterator<Item = OfferedReservation<'a>>,
    offer: &ReservationOffer<'_>,
) -> Vec<OfferedReservation<'a>> {
    let mut open: Vec<OfferedReservation<'a>> = offered.into_iter().filter(|it| it.is_open(offer)).collect();
    open.sort_by_cached_key(|it| {
        let OfferedReservation { reservation, .. } = it;
        let order = reservation.labels.get(RESERVATION_ORDER).and_then(|text| text.parse::<i64>().ok());
        let order = order.filter(|it| *it != 0);
        let score = Reverse(score(reservation, offer.wants));
        (!it.has_room(offer), order.is_none(), order, score, reservation.created, reservation.name.clone())
    });
    open
}

impl OfferedReservation<'_> {
    /// True if the pod can use the Reservation, with or without a free device now: a claim cannot be changed later, and
    /// a device that comes back goes to a claim that tolerates its taint.
    fn is_open(&self, offer: &ReservationOffer<'_>) -> bool {
        let ReservationObject { spec, status, is_deleting, .. } = self.reservation;
        let is_borne = spec.taints.iter().all(|taint| offer.tolerations.iter().any(|it| it.tolerates(taint)));
        !status.phase.is_over()
            && !is_deleting
            && !spec.unschedulable.unwrap_or(false)
            && is_borne
            && offer.wants.keys().any(|name| self.capacity.contains_key(name))
            && offer.wants.iter().all(|want| self.fits(want, &BTreeMap::new()))
            && spec.is_owned_by(&offer.pod)
    }

    /// True if the devices that the pod wants are kept and not taken.
    pub(crate) fn has_room(&self, offer: &ReservationOffer<'_>) -> bool {
        let status = &self.reservation.status;
        status.phase == ReservationPhase::Available && offer.wants.iter().all(|want| self.fits(want, &status.allocated))
    }

    /// True if the pod's wanted amount of a class fits beside the taken amount. Devices of other classes come from
    /// elsewhere.
    fn fits(&self, (name, wanted): (&String, &Quantity), taken: &BTreeMap<String, Quantity>) -> bool {
        let Some(all) = self.capacity.get(name) else { return true };
        let is_strict = self.reservation.spec.restricts(name);
        let taken = taken.get(name).copied().unwrap_or_default();
        if is_strict { taken.plus(*wanted) <= *all } else { taken < *all || wanted.is_zero() }
    }
}

/// Share of the kept devices that is taken once the pod has its part, in thousandths: the average over the kept
/// classes.
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
