//! Turns hints into rescans: bursts are collected, removals are hardly delayed. Pure: times are passed in.

use std::{
    collections::BTreeSet,
    mem,
    time::{Duration, Instant},
};

use super::MonitorEvent;

/// Time in which a storm of removals is one rescan: less than a user notices, and more than a rescan takes that reads only
/// what went.
const URGENT: Duration = Duration::from_millis(10);

/// Time to collect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QuietPeriod {
    /// Time without an event after which a burst is over.
    pub quiet: Duration,
    /// A subsystem that never becomes quiet is rescanned this often.
    pub limit: Duration,
}

impl Default for QuietPeriod {
    /// Fits bursts that settle fast: between two events of one plugged card, or of one memory region, there were at
    /// most 81 ms on an emulated machine, which is slow. The limit keeps the promise that something new is offered
    /// within 350 ms.
    fn default() -> Self {
        Self { quiet: Duration::from_millis(100), limit: Duration::from_millis(200) }
    }
}

/// Time after which a storm of removals alone is rescanned as a whole: what went is out of the inventory by then.
const REMOVALS_LIMIT: Duration = Duration::from_secs(1);

/// Limit on the folders that a rescan names: a look that has to compare each answer with more reads all sooner.
const MOST_REMOVED: usize = 64;

/// Devices to look at again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RescanScope {
    /// Everything: hints were lost.
    All,
    /// Devices that these subsystems feed.
    Subsystems(BTreeSet<String>),
    /// The devices that are left of those that these subsystems feed: some went, and a rescan of all follows when it
    /// has become quiet.
    Removals {
        /// The subsystems.
        subsystems: BTreeSet<String>,
        /// The devices that went: paths below `/sys`, as events have them. Of CPUs, memory blocks and nodes, the folder of
        /// their kind.
        devpaths: BTreeSet<String>,
    },
}

/// Collects hints until it is time to rescan.
///
/// A removal and a loss of hints are due at once, and once more when it has become quiet: the kernel sends a removal
/// before it has taken all of the device out of sysfs. The first of a removal names the devices, so that nothing else
/// has to be read; a whole rescan amid a storm of removals would only hold up the next of these.
#[derive(Debug, Default)]
pub struct UeventCoalescer {
    collected: Option<PendingBurst>,
    /// The part of the collected events that does not wait for quiet.
    urgent: WantedSubsystems,
    /// Time at which a rescan was given last.
    given: Option<Instant>,
    quiet: QuietPeriod,
}

#[derive(Debug)]
struct PendingBurst {
    wanted: WantedSubsystems,
    first: Instant,
    /// The first that is no removal.
    first_other: Option<Instant>,
    last: Instant,
}

impl PendingBurst {
    fn due(&self, quiet: QuietPeriod) -> Instant {
        let limit = self.first + REMOVALS_LIMIT.max(quiet.limit);
        let limit = self.first_other.map_or(limit, |first| limit.min(first + quiet.limit));
        limit.min(self.last + quiet.quiet)
    }
}

#[derive(Debug, Default)]
struct WantedSubsystems {
    everything: bool,
    subsystems: BTreeSet<String>,
    /// Devices of urgent hints; as many as tell that there are too many to name.
    devpaths: BTreeSet<String>,
}

impl WantedSubsystems {
    fn add(&mut self, event: &MonitorEvent) {
        match event {
            MonitorEvent::Overflow => self.everything = true,
            MonitorEvent::Hint(hint) if !self.subsystems.contains(&hint.subsystem) => {
                self.subsystems.insert(hint.subsystem.clone());
            }
            MonitorEvent::Hint(_) => {}
        }
    }

    fn add_removal(&mut self, event: &MonitorEvent) {
        self.add(event);
        if let MonitorEvent::Hint(hint) = event {
            let devpath = removed_folder(&hint.devpath);
            if self.devpaths.len() <= MOST_REMOVED && !self.devpaths.contains(devpath) {
                self.devpaths.insert(devpath.to_owned());
            }
        }
    }

    fn is_empty(&self) -> bool {
        !self.everything && self.subsystems.is_empty()
    }

    fn into_rescan(self) -> RescanScope {
        if self.everything { RescanScope::All } else { RescanScope::Subsystems(self.subsystems) }
    }

    fn into_removals(self) -> RescanScope {
        if self.everything || self.devpaths.len() > MOST_REMOVED {
            return self.into_rescan();
        }
        RescanScope::Removals { subsystems: self.subsystems, devpaths: self.devpaths }
    }
}

/// The folder that a removal names. Memory goes by thousands of blocks, of which each touches all the others: their common
/// folder says as much as all their names.
fn removed_folder(devpath: &str) -> &str {
    const SYSTEM: &str = "/devices/system/";
    let of_system = devpath.strip_prefix(SYSTEM).and_then(|rest| rest.split_once('/'));
    of_system.map_or(devpath, |(kind, _)| &devpath[..SYSTEM.len() + kind.len()])
}

impl UeventCoalescer {
    /// A coalescer with nothing collected.
    pub fn new(quiet: QuietPeriod) -> Self {
        Self { quiet, ..Self::default() }
    }

    /// Takes an event that was received at `now`.
    pub fn push(&mut self, event: &MonitorEvent, now: Instant) {
        let is_removal = matches!(event, MonitorEvent::Hint(hint) if hint.action.takes_away());
        if is_removal || *event == MonitorEvent::Overflow {
            self.urgent.add_removal(event);
        }
        let fresh = || PendingBurst { wanted: WantedSubsystems::default(), first: now, first_other: None, last: now };
        let collected = self.collected.get_or_insert_with(fresh);
        collected.wanted.add(event);
        if !is_removal {
            collected.first_other.get_or_insert(now);
        }
        collected.last = collected.last.max(now);
    }

    /// Time from `now` until [`Self::take`] gives something; `None` if nothing is collected.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        let settled = self.collected.as_ref()?.due(self.quiet);
        let due = self.urgent_due(now).map_or(settled, |urgent| urgent.min(settled));
        Some(due.saturating_duration_since(now))
    }

    fn urgent_due(&self, now: Instant) -> Option<Instant> {
        let due = || self.given.map_or(now, |given| given + URGENT);
        (!self.urgent.is_empty()).then(due)
    }

    /// Takes the rescan that is due at `now`; it is not given again.
    pub fn take(&mut self, now: Instant) -> Option<RescanScope> {
        let quiet = self.quiet;
        let settled = self.collected.take_if(|collected| collected.due(quiet) <= now);
        let urgent = self.urgent_due(now).is_some_and(|due| due <= now);
        // Urgent events have been collected as well.
        let urgent = (urgent || settled.is_some()).then(|| mem::take(&mut self.urgent)).filter(|it| !it.is_empty());
        let rescan = settled.map(|collected| collected.wanted.into_rescan());
        let rescan = rescan.or_else(|| urgent.map(WantedSubsystems::into_removals))?;
        self.given = Some(now);
        Some(rescan)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{super::UeventAction, *};
    use crate::uevent::UeventHint;

    fn hint(subsystem: &str, action: UeventAction) -> MonitorEvent {
        MonitorEvent::Hint(UeventHint { action, ..removed(subsystem) })
    }

    fn removed(subsystem: &str) -> UeventHint {
        let devpath = "/devices/x".to_owned();
        UeventHint { subsystem: subsystem.to_owned(), action: UeventAction::Remove, devpath }
    }

    fn only(subsystems: &[&str]) -> Option<RescanScope> {
        Some(RescanScope::Subsystems(subsystems.iter().map(|name| (*name).to_owned()).collect()))
    }

    /// Those of devices of one subsystem that went.
    fn removal(subsystem: &str) -> Option<RescanScope> {
        let (subsystems, devpaths) = ([subsystem.to_owned()].into(), ["/devices/x".to_owned()].into());
        Some(RescanScope::Removals { subsystems, devpaths })
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_is_one_rescan_after_quiet() {
        let (mut coalescer, start) = (UeventCoalescer::default(), Instant::now());
        assert_eq!(coalescer.due_in(start), None);
        coalescer.push(&hint("pci", UeventAction::Add), start);
        coalescer.push(&hint("cxl", UeventAction::Add), start + 80 * MS);
        assert_eq!(coalescer.due_in(start + 80 * MS), Some(100 * MS));
        assert_eq!(coalescer.take(start + 179 * MS), None);
        assert_eq!(coalescer.take(start + 180 * MS), only(&["cxl", "pci"]));
        assert_eq!(coalescer.take(start + 999 * MS), None);
        assert_eq!(coalescer.due_in(start + 999 * MS), None);
    }

    #[test]
    fn endless_noise_is_rescanned_as_often_as_the_limit_says() {
        let (mut coalescer, start) = (UeventCoalescer::default(), Instant::now());
        for step in 0..20 {
            assert_eq!(coalescer.take(start + step * 10 * MS), None);
            coalescer.push(&hint("block", UeventAction::Change), start + step * 10 * MS);
        }
        assert_eq!(coalescer.take(start + 200 * MS), only(&["block"]));
    }

    #[test]
    fn a_removal_is_due_at_once_and_again_after_quiet() {
        let (mut coalescer, start) = (UeventCoalescer::default(), Instant::now());
        coalescer.push(&hint("memory", UeventAction::Online), start);
        coalescer.push(&hint("pci", UeventAction::Remove), start + MS);
        assert_eq!(coalescer.due_in(start + MS), Some(Duration::ZERO));
        assert_eq!(coalescer.take(start + MS), removal("pci"));
        assert_eq!(coalescer.take(start + 2 * MS), None);
        assert_eq!(coalescer.take(start + 101 * MS), only(&["memory", "pci"]));
        assert_eq!(coalescer.due_in(start + 101 * MS), None);
    }

    #[test]
    fn a_storm_of_removals_is_a_rescan_every_10_ms() {
        let (mut coalescer, start) = (UeventCoalescer::default(), Instant::now());
        let mut given = Vec::new();
        for step in 0..10_000 {
            coalescer.push(&hint("pci", UeventAction::Remove), start + step * MS / 10);
            if coalescer.take(start + step * MS / 10) == removal("pci") {
                given.push(step / 10);
            }
        }
        assert_eq!(given, (0..100).map(|number| 10 * number).collect::<Vec<_>>());
        assert_eq!(coalescer.take(start + REMOVALS_LIMIT), only(&["pci"]));
        assert_eq!(coalescer.due_in(start + REMOVALS_LIMIT), None);
    }

    #[test]
    fn an_addition_among_removals_waits_no_longer_than_alone() {
        let (mut coalescer, start) = (UeventCoalescer::default(), Instant::now());
        for step in 0..250 {
            let action = if step == 50 { UeventAction::Add } else { UeventAction::Remove };
            coalescer.push(&hint("pci", action), start + step * MS);
            assert_ne!(coalescer.take(start + step * MS), only(&["pci"]), "{step}");
        }
        assert_eq!(coalescer.take(start + 250 * MS), only(&["pci"]));
    }

    #[test]
    fn more_removals_than_can_be_named_are_a_rescan_of_their_subsystems() {
        let (mut coalescer, start) = (UeventCoalescer::default(), Instant::now());
        for number in 0..=MOST_REMOVED {
            let hint = UeventHint { devpath: format!("/devices/{number}"), ..removed("pci") };
            coalescer.push(&MonitorEvent::Hint(hint), start);
        }
        assert_eq!(coalescer.take(start), only(&["pci"]));
    }

    #[test]
    fn any_number_of_memory_blocks_is_one_folder() {
        let (mut coalescer, start) = (UeventCoalescer::default(), Instant::now());
        for number in 0..10_000 {
            let devpath = format!("/devices/system/memory/memory{number}");
            coalescer.push(&MonitorEvent::Hint(UeventHint { devpath, ..removed("memory") }), start);
        }
        let (subsystems, devpaths) = (["memory".to_owned()].into(), ["/devices/system/memory".to_owned()].into());
        assert_eq!(coalescer.take(start), Some(RescanScope::Removals { subsystems, devpaths }));
    }

    #[test]
    fn lost_hints_mean_everything_now_and_again_after_quiet() {
        let (mut coalescer, start) = (UeventCoalescer::default(), Instant::now());
        coalescer.push(&hint("pci", UeventAction::Add), start);
        coalescer.push(&MonitorEvent::Overflow, start);
        assert_eq!(coalescer.due_in(start), Some(Duration::ZERO));
        assert_eq!(coalescer.take(start), Some(RescanScope::All));
        assert_eq!(coalescer.take(start + 99 * MS), None);
        assert_eq!(coalescer.take(start + 100 * MS), Some(RescanScope::All));
        assert_eq!(coalescer.take(start + 5000 * MS), None);
    }

    /// A gap in milliseconds, then an overflow (`None`), or an addition or removal in one of three subsystems.
    fn steps() -> impl Strategy<Value = Vec<(u64, Option<(u8, bool)>)>> {
        let event = prop::option::weighted(0.95, (0..3_u8, prop::bool::weighted(0.2)));
        prop::collection::vec((0..150_u64, event), 1..60)
    }

    /// What is owed a rescan and until when: of hints in general, and of urgent ones. `*` is everything.
    #[derive(Default)]
    struct OwedRescans {
        settled: BTreeMap<String, Instant>,
        urgent: BTreeMap<String, Instant>,
    }

    impl OwedRescans {
        /// No promise was broken while the time came to be `now`.
        fn check(&self, now: Instant) {
            let late = |owed: &BTreeMap<String, Instant>| owed.values().any(|until| now > *until);
            assert!(!late(&self.settled), "a hint was forgotten");
            assert!(!late(&self.urgent), "a removal was forgotten");
        }

        fn settle(&mut self, rescan: &RescanScope, is_settled: bool) {
            let covers = |name: &String| match rescan {
                RescanScope::All => true,
                RescanScope::Subsystems(names) | RescanScope::Removals { subsystems: names, .. } => {
                    names.contains(name)
                }
            };
            self.urgent.retain(|name, _| !covers(name));
            if is_settled {
                self.settled.retain(|name, _| !covers(name));
                assert!(self.settled.is_empty(), "a settled burst leaves nothing");
            }
        }
    }

    proptest! {
        #[test]
        fn every_hint_is_rescanned_in_time_and_no_more_often_than_promised(steps in steps()) {
            let (mut coalescer, mut now) = (UeventCoalescer::default(), Instant::now());
            let (mut owed, mut last_hint, mut last_given) = (OwedRescans::default(), now, None);
            let end = [(10_000, None)];
            let last = steps.len();
            for (at, (gap, event)) in steps.into_iter().chain(end).enumerate() {
                let until = now + Duration::from_millis(gap);
                while let Some(due) = coalescer.due_in(now).filter(|due| now + *due <= until) {
                    now += due;
                    owed.check(now);
                    let rescan = coalescer.take(now).expect("it is due");
                    let first = owed.settled.values().min().copied().expect("no rescan without a hint");
                    let quiet = QuietPeriod::default();
                    let is_settled = now - last_hint >= quiet.quiet || now >= first;
                    prop_assert!(is_settled || !owed.urgent.is_empty(), "too early");
                    prop_assert!(is_settled || last_given.is_none_or(|given| now - given >= URGENT), "too often");
                    owed.settle(&rescan, is_settled);
                    last_given = Some(now);
                }
                now = until;
                owed.check(now);
                if at == last {
                    break;
                }
                let (event, name, is_urgent) = match event {
                    None => (MonitorEvent::Overflow, "*".to_owned(), true),
                    Some((subsystem, removal)) => {
                        let name = format!("s{subsystem}");
                        (hint(&name, if removal { UeventAction::Remove } else { UeventAction::Add }), name, removal)
                    }
                };
                coalescer.push(&event, now);
                last_hint = now;
                if is_urgent {
                    owed.urgent.entry(name.clone()).or_insert(now + URGENT);
                }
                let is_removal = is_urgent && name != "*";
                let until = now + if is_removal { REMOVALS_LIMIT } else { QuietPeriod::default().limit };
                let owed = owed.settled.entry(name).or_insert(until);
                *owed = until.min(*owed);
            }
            prop_assert!(owed.settled.is_empty() && owed.urgent.is_empty());
            prop_assert_eq!(coalescer.due_in(now), None);
        }
    }
}
