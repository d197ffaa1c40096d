//! Reservations whose request is gone: the time of their deletion, and the requests that wait for it. Only the core
//! writes and reads this state, and begins anew in every term.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::{
    ObjectKey,
    reservation::{ReservedDevice, ReservedDeviceState},
    well_known::HELD_TAINT,
};

use super::{
    booked::REQUEST_LABEL,
    booking::{BOOKING_TAKES, taken_back_of, unserved},
    context::{Keeping, ProvisionContext},
    event::ReservationWrite,
};
use crate::reservation_object::ReservationObject;

/// Time for which the request of a Reservation may be unseen: the two kinds have separate watches, and an earlier
/// leader may have made both.
const ORPHANED_AFTER: Duration = Duration::from_secs(10);
/// Limit of the wait for open devices: a node that does not answer can keep devices closed without an end. Opening may
/// take as long as closing.
const OPENED_AFTER: Duration = ORPHANED_AFTER.saturating_add(BOOKING_TAKES);

/// Bookings whose requests are gone.
#[derive(Debug, Default)]
pub(super) struct OrphanedBookings {
    /// The time at which a booking was first seen without its request, by the request's UID.
    since: BTreeMap<String, Duration>,
    /// Names of requests whose devices are not open to others yet, and the time until which a new request of the same
    /// name waits.
    opening: BTreeMap<ObjectKey, Duration>,
    /// Devices of such bookings as long as their taints are seen, by Reservation: the watches of Reservations and of
    /// slices are separate, and the planner may see the taint of a Reservation that is gone.
    tainted: BTreeMap<String, TaintedDevices>,
}

/// Devices that were kept for a request that is gone.
#[derive(Debug)]
struct TaintedDevices {
    requests: Vec<ObjectKey>,
    until: Duration,
    /// Value of the taint.
    value: String,
    devices: Vec<ReservedDevice>,
}

impl OrphanedBookings {
    /// Compares with the present state. Returns writes that take Reservations back, and the time to come back at.
    pub(super) fn see(
        &mut self,
        now: Duration,
        cx: &ProvisionContext<'_>,
    ) -> (Vec<ReservationWrite>, Option<Duration>) {
        self.opening.clear();
        if *cx.keeping != Keeping::Kept {
            return (Vec::new(), None);
        }
        let is_there: BTreeSet<&str> = cx.objects.requests.values().map(|it| it.uid()).collect();
        let made_for = cx.reservations.values().filter_map(|it| Some((it.labels.get(REQUEST_LABEL)?, it)));
        let alone: Vec<(&String, _)> = made_for.filter(|(uid, _)| !is_there.contains(&***uid)).collect();
        let gone: BTreeSet<&String> = alone.iter().map(|(uid, _)| *uid).collect();
        self.since.retain(|uid, _| gone.contains(uid));
        let (mut writes, mut next) = (Vec::new(), None);
        for (uid, known) in alone {
            let since = *self.since.entry(uid.clone()).or_insert(now);
            if now < since + OPENED_AFTER && is_opening(known) {
                self.opening.extend(requests_of(known).map(|request| (request, since + OPENED_AFTER)));
                if let Some(devices) = TaintedDevices::of(known, since + OPENED_AFTER) {
                    self.tainted.insert(known.name.clone(), devices);
                }
            }
            let due = since + ORPHANED_AFTER;
            if now < due {
                next = next.into_iter().chain([due]).min();
            } else {
                writes.extend(taken_back_of(known, true));
            }
        }
        self.tainted.retain(|_, it| now < it.until && it.are_seen(cx));
        let tainted =
            self.tainted.values().flat_map(|it| it.requests.iter().map(|request| (request.clone(), it.until)));
        self.opening.extend(tainted);
        (writes, next)
    }

    /// Returns the time until which a request waits at most for devices that are still kept for an earlier one of the
    /// same name, which is gone. Kueue makes requests anew under the same name: before the devices are open, the
    /// request's own earlier booking would cause a no.
    pub(super) fn opened_by(&self, request: &ObjectKey) -> Option<Duration> {
        self.opening.get(request).copied()
    }
}

impl TaintedDevices {
    fn of(known: &ReservationObject, until: Duration) -> Option<Self> {
        let closed = known.status.devices.iter().filter(|it| it.state != ReservedDeviceState::HandedOver);
        let value = known.status.toleration_value.clone()?;
        Some(Self { requests: requests_of(known).collect(), until, value, devices: closed.cloned().collect() })
    }

    /// Returns true if the planner would still see the taint on a device.
    fn are_seen(&self, cx: &ProvisionContext<'_>) -> bool {
        let mut devices = self.devices.iter();
        devices.any(|it| cx.facts.has_taint([&it.driver, &it.pool, &it.device], HELD_TAINT, &self.value))
    }
}

/// Returns true while a Reservation keeps a device that no pod has taken, or may still keep one.
fn is_opening(known: &ReservationObject) -> bool {
    let is_closed = known.status.devices.iter().any(|it| it.state != ReservedDeviceState::HandedOver);
    is_closed || (!known.status.phase.is_over() && unserved(known) > 0)
}

fn requests_of(known: &ReservationObject) -> impl Iterator<Item = ObjectKey> {
    let requests = known.spec.owners.iter().filter_map(|owner| owner.provisioning_request.as_ref());
    requests.map(|it| ObjectKey { namespace: it.namespace.clone(), name: it.name.clone() })
}
