//! Notices that there may be more room than before: a request that was told no then does not wait for its pause. Only
//! the core writes and reads this state, and begins anew in every term.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use hostler_api::reservation::ReservedDevice;

use super::context::{ProvisionContext, SeenReservations};
use crate::{decision_queue::DecisionQueue, hold::taken_by_reservations, reservation_object::ReservationObject};

/// The state of everything that can make room, and the time of the next question because of it.
#[derive(Debug)]
pub(super) struct GainWatch {
    /// The pauses between gains: a flood of them must not have requests planned all the time.
    queue: DecisionQueue<()>,
    /// Gains that facts counted so far. At the beginning of a term, a no waits for at most a minute anyway.
    facts: Option<u64>,
    /// The last state of Reservations. Devices are opened before their Reservation is deleted, and facts count no gain
    /// at that deletion.
    reservations: SeenReservations,
    /// UIDs of the requests that had a booking.
    booked: BTreeSet<String>,
    /// Beginning of the current round of questions, which follow one another.
    round: Option<Duration>,
    /// The duration of the last round.
    cost: Duration,
    /// True if a device became free during a round, after some of its questions were asked.
    is_late: bool,
    wake: Option<Duration>,
}

impl GainWatch {
    pub(super) fn new() -> Self {
        Self {
            queue: DecisionQueue::new(()),
            facts: None,
            reservations: BTreeMap::new(),
            booked: BTreeSet::new(),
            round: None,
            cost: Duration::ZERO,
            is_late: false,
            wake: None,
        }
    }

    /// Compares the present state with the last one. Returns true if requests that were told no should be planned
    /// again.
    pub(super) fn see(&mut self, now: Duration, cx: &ProvisionContext<'_>, booked: BTreeSet<String>) -> bool {
        let gains = cx.facts.gains();
        let has_more = self.facts.replace(gains).is_some_and(|before| before != gains);
        let is_over = !self.booked.is_subset(&booked);
        self.booked = booked;
        self.queue.pass(now);
        if self.have_freed(cx.reservations) || has_more || is_over {
            self.queue.gained(self.cost);
        }
        let is_due = self.queue.pop().is_some();
        self.is_late |= is_due && self.round.is_some();
        is_due && self.round.is_none()
    }

    /// Notes a question: the first of a round, or a further one.
    pub(super) fn asks(&mut self, now: Duration) {
        self.round.get_or_insert(now);
    }

    /// Ends a round: no request waits for a question.
    pub(super) fn rests(&mut self, now: Duration) {
        let Some(began) = self.round.take() else { return };
        self.queue.pass(now);
        self.cost = now - began;
        if std::mem::take(&mut self.is_late) {
            self.queue.gained(self.cost);
        }
    }

    /// Returns the time to come back at. The queue returns each time once, and the core has to return it with every
    /// step.
    pub(super) fn due(&mut self, now: Duration) -> Option<Duration> {
        self.wake = self.queue.wake().or(self.wake).filter(|wake| *wake > now);
        self.wake
    }

    /// Returns true if a Reservation released a device.
    fn have_freed(&mut self, all: &SeenReservations) -> bool {
        let mut has_freed = false;
        self.reservations.retain(|name, known| {
            let after = all.get(name);
            if after.is_none_or(|after| !Arc::ptr_eq(known, after)) {
                has_freed |= frees(known, after.map(|after| &**after));
            }
            after.inspect(|after| known.clone_from(after)).is_some()
        });
        for (name, known) in all {
            if !self.reservations.contains_key(name) {
                self.reservations.insert(name.clone(), known.clone());
            }
        }
        has_freed
    }
}

/// Returns true if a Reservation kept a device that it does not name any more. A device that a pod took is still named.
fn frees(before: &ReservationObject, after: Option<&ReservationObject>) -> bool {
    let after = after.filter(|after| !after.status.phase.is_over());
    let named = |device: &ReservedDevice| (device.driver.clone(), device.pool.clone(), device.device.clone());
    let named: BTreeSet<_> = after.iter().flat_map(|after| &after.status.devices).map(named).collect();
    let taken = taken_by_reservations([&before.status]);
    taken.into_iter().any(|device| !named.contains(&(device.driver, device.pool, device.device)))
}

#[cfg(test)]
mod tests {
    use hostler_allocator::plan::ClusterFacts;

    use hostler_api::ObjectKey;

    use super::*;
    use crate::{provision::context::Keeping, requests::ProvisionObjects};

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn see(gains: &mut GainWatch, now: Duration, facts: &ClusterFacts) -> bool {
        let (objects, reservations) = (ProvisionObjects::default(), SeenReservations::new());
        let keeping = &Keeping::Unknown;
        let cx = ProvisionContext { objects: &objects, reservations: &reservations, facts, keeping, leads_pods: false };
        gains.see(now, &cx, BTreeSet::new())
    }

    /// The planner answers from what was there when it was asked.
    #[test]
    fn what_gets_free_while_questions_are_asked_is_looked_at_after_them() {
        let (mut gains, mut facts) = (GainWatch::new(), ClusterFacts::default());
        assert!(!see(&mut gains, at(0), &facts));
        gains.asks(at(0));
        facts.add_template(ObjectKey::new("default", "t"), serde_json::from_str("{}").unwrap());
        assert!(!see(&mut gains, at(100), &facts));
        assert_eq!(gains.due(at(100)), Some(at(150)));
        assert!(!see(&mut gains, at(150), &facts), "who is asked about could be told no after that");
        assert_eq!(gains.due(at(150)), None);
        gains.rests(at(400));
        let due = gains.due(at(400)).unwrap();
        assert!(due <= at(1000), "{due:?}");
        assert!(see(&mut gains, due, &facts));
        assert!(!see(&mut gains, due + at(60_000), &facts), "it is looked at once");
    }
}
