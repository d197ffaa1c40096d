//! Which failures become new Events, which are counted on one that was written, and which are left out. Pure.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use super::{ClaimRef, ClaimUid, Notice};

/// For how long the same failure of a claim is counted on the Event of the last one.
const SAME: Duration = Duration::from_secs(600);
/// So many Events may be written at once …
const BURST: u32 = 25;
/// … and one more after each of these. A node full of failing claims must not fill the cluster's storage.
const REFILL: Duration = Duration::from_secs(2);

/// What was told of which claim.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    told: HashMap<(ClaimUid, Notice), Told>,
    /// When the allowance will be full again.
    full_at: Option<SystemTime>,
}

#[derive(Debug)]
struct Told {
    name: String,
    count: u32,
    last: SystemTime,
}

/// What to do with a failure.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Step {
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
    Drop,
}

impl EventLog {
    /// What to do with a failure that came `at` this time.
    pub(super) fn step(&mut self, claim: &ClaimRef, notice: &Notice, at: SystemTime) -> Step {
        let age = |last: SystemTime| at.duration_since(last).unwrap_or_default();
        self.told.retain(|_, told| age(told.last) < SAME);
        if !self.allow(at) {
            return Step::Drop;
        }
        let key = (claim.uid.clone(), notice.clone());
        if let Some(told) = self.told.get_mut(&key) {
            told.count = told.count.saturating_add(1);
            told.last = at;
            return Step::Count { name: told.name.clone(), count: told.count };
        }
        let name = event_name(claim, at);
        self.told.insert(key, Told { name: name.clone(), count: 1, last: at });
        Step::Create(name)
    }

    /// The Event could not be written: the next failure of this kind writes it anew.
    pub(super) fn forget(&mut self, claim: &ClaimUid, notice: &Notice) {
        self.told.remove(&(claim.clone(), notice.clone()));
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

/// Unique, and below the 253 characters that a name may have.
fn event_name(claim: &ClaimRef, at: SystemTime) -> String {
    const LONGEST_CLAIM: usize = 200;
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let claim: String = claim.name.chars().take(LONGEST_CLAIM).collect();
    format!("{}.{:x}", claim.trim_end_matches(['.', '-']), since.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::{super::Reason, *};

    fn claim(uid: &str) -> ClaimRef {
        ClaimRef { namespace: "ml".to_owned(), name: "train".to_owned(), uid: ClaimUid::new(uid).unwrap() }
    }

    fn notice(message: &str) -> Notice {
        Notice { reason: Reason::DeviceHeld, message: message.to_owned() }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn name(step: Step) -> String {
        match step {
            Step::Create(name) => name,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_same_failure_within_ten_minutes_is_counted_and_later_is_new() {
        let mut log = EventLog::default();
        let name = name(log.step(&claim("u1"), &notice("held"), at(0)));
        assert!(name.starts_with("train."), "{name}");
        for (seconds, count) in [(90, 2), (600, 3), (1100, 4)] {
            assert_eq!(log.step(&claim("u1"), &notice("held"), at(seconds)), Step::Count { name: name.clone(), count });
        }
        assert!(matches!(log.step(&claim("u1"), &notice("held"), at(1700)), Step::Create(new) if new != name));
    }

    #[test]
    fn another_claim_or_another_message_is_another_event() {
        let mut log = EventLog::default();
        assert!(matches!(log.step(&claim("u1"), &notice("held by a"), at(0)), Step::Create(_)));
        assert!(matches!(log.step(&claim("u1"), &notice("held by b"), at(0)), Step::Create(_)));
        assert!(matches!(log.step(&claim("u2"), &notice("held by a"), at(0)), Step::Create(_)));
    }

    #[test]
    fn a_failure_whose_event_was_lost_is_written_anew() {
        let mut log = EventLog::default();
        log.step(&claim("u1"), &notice("held"), at(0));
        log.forget(&claim("u1").uid, &notice("held"));
        assert!(matches!(log.step(&claim("u1"), &notice("held"), at(1)), Step::Create(_)));
    }

    #[test]
    fn a_burst_is_cut_off_and_the_allowance_comes_back() {
        let mut log = EventLog::default();
        let mut step = |uid: u64, seconds| log.step(&claim(&format!("u{uid}")), &notice("held"), at(seconds));
        let written = (0..100).filter(|uid| step(*uid, 0) != Step::Drop).count();
        assert_eq!(written, 25);
        assert_eq!(step(200, 1), Step::Drop);
        assert_ne!(step(201, 2), Step::Drop);
        assert_eq!(step(202, 2), Step::Drop);
        let written = (300..400).filter(|uid| step(*uid, 1000) != Step::Drop).count();
        assert_eq!(written, 25);
    }

    #[test]
    fn a_long_claim_name_makes_a_name_that_the_server_takes() {
        let mut long = claim("u1");
        long.name = "a-".repeat(126);
        let name = event_name(&long, at(0));
        assert!(name.len() <= 253 && !name.contains("-."), "{name}");
    }
}
