//! Hints to rescans: bursts are collected, removals are not delayed. Pure: times are passed in.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::Event;

/// How long to collect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Quiet {
    /// Time without an event after which a burst is over.
    pub quiet: Duration,
    /// A subsystem that never becomes quiet is rescanned this often.
    pub limit: Duration,
}

impl Default for Quiet {
    /// Bursts settle fast: the events of one plugged card, or of a memory region of 512 MiB, lie within 200 ms.
    fn default() -> Self {
        Self { quiet: Duration::from_millis(250), limit: Duration::from_secs(2) }
    }
}

/// What to look at again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Rescan {
    /// Everything: hints were lost.
    All,
    /// What these subsystems feed.
    Subsystems(BTreeSet<String>),
}

/// Collects hints until it is time to rescan.
///
/// A removal is due at once, and once more after the quiet time: the kernel sends it before it has taken all of the
/// device out of sysfs.
#[derive(Debug, Default)]
pub struct Coalescer {
    collected: Option<Collected>,
    urgent: BTreeSet<String>,
    lost: bool,
    quiet: Quiet,
}

#[derive(Debug)]
struct Collected {
    subsystems: BTreeSet<String>,
    first: Instant,
    last: Instant,
}

impl Collected {
    fn due(&self, quiet: Quiet) -> Instant {
        (self.last + quiet.quiet).min(self.first + quiet.limit)
    }
}

impl Coalescer {
    /// Nothing collected.
    pub fn new(quiet: Quiet) -> Self {
        Self { quiet, ..Self::default() }
    }

    /// Takes an event that was received at `now`.
    pub fn push(&mut self, event: Event, now: Instant) {
        let hint = match event {
            Event::Overflow => {
                self.lost = true;
                return;
            }
            Event::Hint(hint) => hint,
        };
        if hint.action.takes_away() {
            self.urgent.insert(hint.subsystem.clone());
        }
        let fresh = || Collected { subsystems: BTreeSet::new(), first: now, last: now };
        let collected = self.collected.get_or_insert_with(fresh);
        collected.subsystems.insert(hint.subsystem);
        collected.last = collected.last.max(now);
    }

    /// How long from `now` until [`Self::take`] gives something; `None` if nothing is collected.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        if self.lost || !self.urgent.is_empty() {
            return Some(Duration::ZERO);
        }
        self.collected.as_ref().map(|collected| collected.due(self.quiet).saturating_duration_since(now))
    }

    /// What is due at `now`; it is not given again.
    pub fn take(&mut self, now: Instant) -> Option<Rescan> {
        if self.lost {
            *self = Self::new(self.quiet);
            return Some(Rescan::All);
        }
        let mut subsystems = std::mem::take(&mut self.urgent);
        let quiet = self.quiet;
        if let Some(settled) = self.collected.take_if(|collected| collected.due(quiet) <= now) {
            subsystems.extend(settled.subsystems);
        }
        (!subsystems.is_empty()).then_some(Rescan::Subsystems(subsystems))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{super::Action, *};
    use crate::uevent::Hint;

    fn hint(subsystem: &str, action: Action) -> Event {
        Event::Hint(Hint { subsystem: subsystem.to_owned(), action, devpath: "/devices/x".to_owned() })
    }

    fn only(subsystems: &[&str]) -> Option<Rescan> {
        Some(Rescan::Subsystems(subsystems.iter().map(|name| (*name).to_owned()).collect()))
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_is_one_rescan_after_quiet() {
        let (mut coalescer, start) = (Coalescer::default(), Instant::now());
        assert_eq!(coalescer.due_in(start), None);
        coalescer.push(hint("pci", Action::Add), start);
        coalescer.push(hint("cxl", Action::Add), start + 100 * MS);
        assert_eq!(coalescer.due_in(start + 100 * MS), Some(250 * MS));
        assert_eq!(coalescer.take(start + 349 * MS), None);
        assert_eq!(coalescer.take(start + 350 * MS), only(&["cxl", "pci"]));
        assert_eq!(coalescer.take(start + 999 * MS), None);
        assert_eq!(coalescer.due_in(start + 999 * MS), None);
    }

    #[test]
    fn endless_noise_is_rescanned_every_two_seconds() {
        let (mut coalescer, start) = (Coalescer::default(), Instant::now());
        for step in 0..20 {
            assert_eq!(coalescer.take(start + step * 100 * MS), None);
            coalescer.push(hint("block", Action::Change), start + step * 100 * MS);
        }
        assert_eq!(coalescer.take(start + 2000 * MS), only(&["block"]));
    }

    #[test]
    fn a_removal_is_due_at_once_and_again_after_quiet() {
        let (mut coalescer, start) = (Coalescer::default(), Instant::now());
        coalescer.push(hint("memory", Action::Online), start);
        coalescer.push(hint("pci", Action::Remove), start + MS);
        assert_eq!(coalescer.due_in(start + MS), Some(Duration::ZERO));
        assert_eq!(coalescer.take(start + MS), only(&["pci"]));
        assert_eq!(coalescer.take(start + 2 * MS), None);
        assert_eq!(coalescer.take(start + 251 * MS), only(&["memory", "pci"]));
        assert_eq!(coalescer.due_in(start + 251 * MS), None);
    }

    #[test]
    fn lost_hints_mean_everything_now() {
        let (mut coalescer, start) = (Coalescer::default(), Instant::now());
        coalescer.push(hint("pci", Action::Add), start);
        coalescer.push(Event::Overflow, start);
        assert_eq!(coalescer.due_in(start), Some(Duration::ZERO));
        assert_eq!(coalescer.take(start), Some(Rescan::All));
        assert_eq!(coalescer.take(start + 5000 * MS), None);
    }

    /// A gap in milliseconds, then an overflow (`None`), or an addition or removal in one of three subsystems.
    fn steps() -> impl Strategy<Value = Vec<(u64, Option<(u8, bool)>)>> {
        let event = prop::option::weighted(0.95, (0..3_u8, prop::bool::weighted(0.1)));
        prop::collection::vec((0..700_u64, event), 1..60)
    }

    /// The subsystems that are owed a rescan, each since the oldest hint that none has followed, and the last hint.
    struct Owed {
        since: BTreeMap<String, Instant>,
        last: Instant,
    }

    impl Owed {
        /// A rescan that no removal asked for comes after quiet or at the cap, never later, and covers all that is owed.
        fn settle(&mut self, rescan: &Option<Rescan>, now: Instant) {
            let first = *self.since.values().min().expect("a rescan without a hint");
            assert!(now - self.last >= Quiet::default().quiet || now - first >= Quiet::default().limit, "too early");
            assert!(now - first <= Quiet::default().limit, "too late");
            let owed = std::mem::take(&mut self.since);
            assert_eq!(*rescan, Some(Rescan::Subsystems(owed.into_keys().collect())));
        }
    }

    proptest! {
        #[test]
        fn every_hint_is_rescanned_in_time(steps in steps()) {
            let (mut coalescer, mut now) = (Coalescer::default(), Instant::now());
            let mut owed = Owed { since: BTreeMap::new(), last: now };
            for (gap, event) in steps {
                let until = now + Duration::from_millis(gap);
                while let Some(due) = coalescer.due_in(now).filter(|due| now + *due <= until) {
                    now += due;
                    owed.settle(&coalescer.take(now), now);
                }
                now = until;
                let Some((subsystem, removal)) = event else {
                    coalescer.push(Event::Overflow, now);
                    prop_assert_eq!(coalescer.take(now), Some(Rescan::All));
                    owed.since.clear();
                    continue;
                };
                let name = format!("s{subsystem}");
                coalescer.push(hint(&name, if removal { Action::Remove } else { Action::Add }), now);
                prop_assert_eq!(coalescer.take(now), if removal { only(&[&name]) } else { None });
                owed.last = now;
                owed.since.entry(name).or_insert(now);
            }
            while let Some(due) = coalescer.due_in(now) {
                now += due;
                owed.settle(&coalescer.take(now), now);
            }
            prop_assert!(owed.since.is_empty());
        }
    }
}
