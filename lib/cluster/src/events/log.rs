//! Decides which warnings become new Events, which are counted on one that was written, and which are left out. Pure.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use hostler_api::limits::MAX_OBJECT_NAME;

use super::{EventNote, EventSubject};

/// For how long the same warning about an object is counted on the Event of the last one.
const SAME: Duration = Duration::from_secs(600);
/// So many Events may be written at once …
const BURST: u32 = 25;
/// … and one more after each of these. A node full of failures must not fill the cluster's storage.
const REFILL: Duration = Duration::from_secs(2);

/// Events that were written, by object.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    told: HashMap<(EventSubject, EventNote), WrittenEvent>,
    /// When the allowance will be full again.
    full_at: Option<SystemTime>,
}

#[derive(Debug)]
struct WrittenEvent {
    name: String,
    count: u32,
    last: SystemTime,
}

/// Decision on a warning.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum EventDecision {
    /// Write an Event of this name.
    Create(String),
    /// Write that it came again.
    Count {
        /// Name of the Event.
        name: String,
        /// How often it came, with this time.
        count: u32,
    },
    /// Nothing: there were too many.
    LeaveOut,
}

impl EventLog {
    /// Decides on a warning of `at` this time.
    pub(super) fn decide(&mut self, subject: &EventSubject, note: &EventNote, at: SystemTime) -> EventDecision {
        let age = |last: SystemTime| at.duration_since(last).unwrap_or_default();
        self.told.retain(|_, told| age(told.last) < SAME);
        if !self.allow(at) {
            return EventDecision::LeaveOut;
        }
        let key = (subject.clone(), note.clone());
        if let Some(told) = self.told.get_mut(&key) {
            told.count = told.count.saturating_add(1);
            told.last = at;
            return EventDecision::Count { name: told.name.clone(), count: told.count };
        }
        let name = event_name(&subject.name, at);
        self.told.insert(key, WrittenEvent { name: name.clone(), count: 1, last: at });
        EventDecision::Create(name)
    }

    /// The Event could not be written: the next warning of this kind writes it anew.
    pub(super) fn forget(&mut self, subject: &EventSubject, note: &EventNote) {
        self.told.remove(&(subject.clone(), note.clone()));
    }

    fn allow(&mut self, at: SystemTime) -> bool {
        let full_at = self.full_at.map_or(at, |full_at| full_at.max(at)) + REFILL;
        let within = full_at.duration_since(at).unwrap_or_default() <= REFILL * BURST;
        if within {
            self.full_at = Some(full_at);
        }
        within
    }
}

/// Unique, and no longer than a name may be.
fn event_name(subject: &str, at: SystemTime) -> String {
    /// The time takes the rest.
    const LONGEST_SUBJECT: usize = MAX_OBJECT_NAME - 53;
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let subject: String = subject.chars().take(LONGEST_SUBJECT).collect();
    format!("{}.{:x}", subject.trim_end_matches(['.', '-']), since.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(uid: &str) -> EventSubject {
        EventSubject {
            api_version: "resource.k8s.io/v1".to_owned(),
            kind: "ResourceClaim",
            namespace: "ml".to_owned(),
            name: "train".to_owned(),
            uid: uid.to_owned(),
        }
    }

    fn note(message: &str) -> EventNote {
        EventNote::new("DeviceHeld", message.to_owned())
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn name(decision: EventDecision) -> String {
        match decision {
            EventDecision::Create(name) => name,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_same_failure_within_ten_minutes_is_counted_and_later_is_new() {
        let mut log = EventLog::default();
        let name = name(log.decide(&claim("u1"), &note("held"), at(0)));
        assert!(name.starts_with("train."), "{name}");
        for (seconds, count) in [(90, 2), (600, 3), (1100, 4)] {
            assert_eq!(
                log.decide(&claim("u1"), &note("held"), at(seconds)),
                EventDecision::Count { name: name.clone(), count }
            );
        }
        assert!(matches!(log.decide(&claim("u1"), &note("held"), at(1700)), EventDecision::Create(new) if new != name));
    }

    #[test]
    fn another_claim_or_another_message_is_another_event() {
        let mut log = EventLog::default();
        assert!(matches!(log.decide(&claim("u1"), &note("held by a"), at(0)), EventDecision::Create(_)));
        assert!(matches!(log.decide(&claim("u1"), &note("held by b"), at(0)), EventDecision::Create(_)));
        assert!(matches!(log.decide(&claim("u2"), &note("held by a"), at(0)), EventDecision::Create(_)));
    }

    #[test]
    fn a_failure_whose_event_was_lost_is_written_anew() {
        let mut log = EventLog::default();
        log.decide(&claim("u1"), &note("held"), at(0));
        log.forget(&claim("u1"), &note("held"));
        assert!(matches!(log.decide(&claim("u1"), &note("held"), at(1)), EventDecision::Create(_)));
    }

    #[test]
    fn a_burst_is_cut_off_and_the_allowance_comes_back() {
        let mut log = EventLog::default();
        let mut decide = |uid: u64, seconds| log.decide(&claim(&format!("u{uid}")), &note("held"), at(seconds));
        let written = (0..100).filter(|uid| decide(*uid, 0) != EventDecision::LeaveOut).count();
        assert_eq!(written, 25);
        assert_eq!(decide(200, 1), EventDecision::LeaveOut);
        assert_ne!(decide(201, 2), EventDecision::LeaveOut);
        assert_eq!(decide(202, 2), EventDecision::LeaveOut);
        let written = (300..400).filter(|uid| decide(*uid, 1000) != EventDecision::LeaveOut).count();
        assert_eq!(written, 25);
    }

    #[test]
    fn a_long_claim_name_makes_a_name_that_the_server_takes() {
        let mut long = claim("u1");
        long.name = "a-".repeat(126);
        let name = event_name(&long.name, at(0));
        assert!(name.len() <= 253 && !name.contains("-."), "{name}");
    }
}
