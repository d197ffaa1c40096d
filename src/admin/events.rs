//! The latest changes of claims and devices, for users who watch: `GET /v1/events?after=CURSOR&timeout=30s`.
//!
//! In memory and bounded; a daemon that starts anew begins a new log. Writers: the task that [`EventLog::follow`]
//! starts, and the reader of the configuration. Owners of state know nothing of it: two states of theirs are compared.

mod facts;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json,
    extract::{Query, State},
};
use hostler_api::Chain;
use hostler_backend::duration;
use serde::Deserialize;
use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        watch,
    },
    time::timeout,
};

use self::facts::EventFacts;
use super::{
    AdminService,
    changes::LONGEST,
    types::{AdminEvent, AdminEventSubject, AdminEvents},
};
use crate::{
    claims::{ClaimFailure, ClaimTable, ClaimsHandle},
    inventory::{Inventory, InventoryReader},
    tasks::Tasks,
};

/// Changes that are kept: those of a busy hour, in less than 100 KiB.
const KEPT: usize = 256;
/// Time in which most of a burst of changes is over: states that last shorter are no news.
const SETTLE: Duration = Duration::from_millis(50);

/// The latest changes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventLog {
    /// Random number of this daemon: another one's cursors are no cursors here.
    daemon: u64,
    ring_tx: Arc<watch::Sender<EventRing>>,
}

/// The changes that are kept.
#[derive(Debug, Default)]
struct EventRing {
    events: VecDeque<AdminEvent>,
    /// Number of the next change.
    next: u64,
}

impl Default for EventLog {
    fn default() -> Self {
        Self { daemon: fastrand::u64(..), ring_tx: Arc::new(watch::Sender::new(EventRing::default())) }
    }
}

impl EventLog {
    /// Notes a change that has just been seen.
    pub fn note(&self, subject: AdminEventSubject, name: &str, change: &str, message: String) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.ring_tx.send_modify(|ring| {
            let (name, change) = (name.to_owned(), change.to_owned());
            ring.events.push_back(AdminEvent { number: ring.next, time, subject, name, change, message });
            ring.next += 1;
            if ring.events.len() > KEPT {
                ring.events.pop_front();
            }
        });
    }

    /// Notes every change of claims and devices from now on, until the daemon stops.
    pub fn follow(&self, node: &str, inventory: &InventoryReader, claims: &ClaimsHandle, tasks: &Tasks) {
        let (log, stop) = (self.clone(), tasks.stop_token());
        let states = (inventory.subscribe(), claims.table());
        let failures_rx = claims.failures();
        self.note(AdminEventSubject::Daemon, node, "started", String::new());
        tasks.job(async move {
            tokio::select! {
                // Dropped at the stop: no caller asks any more.
                () = log.collect(states, failures_rx) => {}
                () = stop.cancelled() => {}
            }
        });
    }

    async fn collect(
        &self,
        (mut inventory_rx, mut claims_rx): (watch::Receiver<Arc<Inventory>>, watch::Receiver<Arc<ClaimTable>>),
        mut failures_rx: broadcast::Receiver<ClaimFailure>,
    ) {
        let (mut inventory, mut table) =
            (inventory_rx.borrow_and_update().clone(), claims_rx.borrow_and_update().clone());
        let (mut devices, mut claims) = (EventFacts::of_devices(&inventory), EventFacts::of_claims(&table));
        loop {
            tokio::select! {
                // All are cancel safe: what was not seen is still unseen.
                Ok(()) = inventory_rx.changed() => {}
                Ok(()) = claims_rx.changed() => {}
                failure = failures_rx.recv() => match failure {
                    Ok(ClaimFailure { claim, operation, error, .. }) => {
                        let name = format!("{}/{}", claim.namespace, claim.name);
                        let message = format!("{operation}: {}", Chain(&*error));
                        self.note(AdminEventSubject::Claim, &name, "failed", message);
                        continue;
                    }
                    // The newest matter most.
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return,
                },
                else => return,
            }
            tokio::time::sleep(SETTLE).await;
            let latest = (inventory_rx.borrow_and_update().clone(), claims_rx.borrow_and_update().clone());
            // Claims follow from devices. A claim that comes is no reason to look at all devices.
            if !Arc::ptr_eq(&latest.0, &inventory) {
                devices = self.compare(&devices, EventFacts::of_devices(&latest.0));
            }
            if !Arc::ptr_eq(&latest.1, &table) {
                claims = self.compare(&claims, EventFacts::of_claims(&latest.1));
            }
            (inventory, table) = latest;
        }
    }

    /// Notes what is different, and returns the later facts.
    fn compare(&self, before: &EventFacts, now: EventFacts) -> EventFacts {
        for (subject, name, change, message) in before.differences(&now) {
            self.note(subject, &name, change, message);
        }
        now
    }

    /// Returns what came after a cursor, and the number that the next change will have.
    fn after(&self, cursor: Option<&str>) -> (AdminEvents, u64) {
        let ring = self.ring_tx.borrow();
        let first = ring.events.front().map_or(ring.next, |event| event.number);
        let (from, missing) = match cursor.map(|cursor| self.number(cursor).filter(|number| *number <= ring.next)) {
            None => (first, None),
            Some(None) => {
                let why = "the daemon was started anew; changes between its last answer and its start are not known";
                (first, Some(why.to_owned()))
            }
            Some(Some(number)) if number < first => {
                (first, Some(format!("{} changes are not kept any more", first - number)))
            }
            Some(Some(number)) => (number, None),
        };
        let items = ring.events.iter().filter(|event| event.number >= from).cloned().collect();
        (AdminEvents { cursor: format!("{:016x}-{}", self.daemon, ring.next), missing, items }, ring.next)
    }

    /// Returns the number in a cursor of this daemon.
    fn number(&self, cursor: &str) -> Option<u64> {
        let (daemon, number) = cursor.split_once('-')?;
        (u64::from_str_radix(daemon, 16).ok()? == self.daemon).then(|| number.parse().ok())?
    }
}

/// `?after=CURSOR&timeout=30s`; without a time the answer comes at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    after: Option<String>,
    #[serde(default, with = "duration")]
    timeout: Duration,
}

/// Returns changes after a cursor, as soon as there are any.
pub(super) async fn events(
    State(admin): State<AdminService>,
    Query(EventsQuery { after, timeout: patience }): Query<EventsQuery>,
) -> Json<AdminEvents> {
    let log = &admin.0.events;
    let (events, next) = log.after(after.as_deref());
    if !events.items.is_empty() || events.missing.is_some() || patience.is_zero() {
        return Json(events);
    }
    // A caller without a place gets the empty answer at once, and asks again.
    let Some(_place) = admin.0.watchers.place() else { return Json(events) };
    let mut ring_rx = log.ring_tx.subscribe();
    let news = async {
        tokio::select! {
            // Cancel safe: nothing is taken out of the ring.
            _ = ring_rx.wait_for(|ring| ring.next > next) => {}
            () = admin.0.watchers.stopped() => {}
        }
    };
    let _ = timeout(patience.min(LONGEST), news).await;
    Json(log.after(after.as_deref()).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(count: usize) -> EventLog {
        let log = EventLog::default();
        (0..count)
            .for_each(|number| log.note(AdminEventSubject::Claim, &format!("ml/{number}"), "prepared", String::new()));
        log
    }

    fn names(events: &AdminEvents) -> Vec<&str> {
        events.items.iter().map(|event| event.name.as_str()).collect()
    }

    #[test]
    fn a_cursor_leads_to_what_came_after_it() {
        let log = noted(2);
        let (all, next) = log.after(None);
        assert_eq!((names(&all), &all.missing, next), (vec!["ml/0", "ml/1"], &None, 2));
        assert!(log.after(Some(&all.cursor)).0.items.is_empty());
        log.note(AdminEventSubject::Device, "fpga/card-0", "drained", "fan".to_owned());
        assert_eq!(names(&log.after(Some(&all.cursor)).0), ["fpga/card-0"]);
    }

    #[test]
    fn a_cursor_of_another_daemon_or_of_none_gets_everything_and_is_told_so() {
        let (log, cursor) = (noted(1), noted(1).after(None).0.cursor);
        let beyond = format!("{:016x}-9", log.daemon);
        for cursor in [&*cursor, "", "x-1", &beyond] {
            let (events, _) = log.after(Some(cursor));
            assert_eq!(names(&events), ["ml/0"], "{cursor}");
            assert!(events.missing.unwrap().contains("started anew"), "{cursor}");
        }
    }

    #[test]
    fn the_log_has_an_end_and_says_how_much_is_gone() {
        let log = noted(1);
        let cursor = log.after(None).0.cursor;
        (0..KEPT + 2).for_each(|_| log.note(AdminEventSubject::Claim, "ml/x", "prepared", String::new()));
        let (events, _) = log.after(Some(&cursor));
        assert_eq!(events.items.len(), KEPT);
        assert_eq!(events.missing.as_deref(), Some("2 changes are not kept any more"));
    }
}
