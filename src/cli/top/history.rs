//! The last minutes: the machine's load in frames, and what has come, gone or changed. Both are bounded.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use hostler_api::plain_line;

use crate::{
    units::elapsed,
    usage::holders::{DeviceHealth, DeviceUsage, MachineUsage},
};

/// Frames of load: as many as a line of 80 columns has room for beside the counts of CPUs.
const MOST_LOADS: usize = 24;
/// Keys make frames as well, which say no more about the load.
const BETWEEN_LOADS: Duration = Duration::from_millis(900);
/// What is older is no news.
const LONGEST: Duration = Duration::from_secs(600);
/// Changes that are kept: of six hundred claims that come at once, the last ones.
const MOST_CHANGES: usize = 64;
/// Changes that are shown; more are counted.
const SHOWN: usize = 8;
/// Levels of load, from none to all.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What the live view remembers.
#[derive(Clone, Debug, Default)]
pub(super) struct TopHistory {
    /// Percent, the latest last.
    loads: VecDeque<u8>,
    load_noted: Option<Instant>,
    /// The latest first.
    changes: VecDeque<(Instant, String)>,
}

impl TopHistory {
    /// Notes the load of a frame, where it is known.
    pub(super) fn note_load(&mut self, percent: Option<u8>, at: Instant) {
        if self.load_noted.is_some_and(|noted| at.saturating_duration_since(noted) < BETWEEN_LOADS) {
            return;
        }
        self.load_noted = Some(at);
        self.loads.extend(percent);
        while self.loads.len() > MOST_LOADS {
            self.loads.pop_front();
        }
    }

    /// Notes what is different between two looks at the machine.
    pub(super) fn note_changes(&mut self, before: &MachineUsage, now: &MachineUsage, at: Instant) {
        for change in differences(facts(before), &facts(now)) {
            self.changes.push_front((at, change));
        }
        self.changes.truncate(MOST_CHANGES);
        self.changes.retain(|(then, _)| at.saturating_duration_since(*then) <= LONGEST);
    }

    /// One sign for each frame; empty before the first.
    pub(super) fn load_line(&self) -> String {
        let level = |percent: &u8| LEVELS[usize::from((*percent).min(99)) * LEVELS.len() / 100];
        self.loads.iter().map(level).collect()
    }

    /// The latest changes, each with its age.
    pub(super) fn change_lines(&self, at: Instant) -> Vec<String> {
        let line = |(then, change): &(Instant, String)| {
            format!("{:>7} ago  {change}", elapsed(at.saturating_duration_since(*then)))
        };
        let mut lines: Vec<String> = self.changes.iter().take(SHOWN).map(line).collect();
        if let Some(more @ 1..) = self.changes.len().checked_sub(SHOWN) {
            lines.push(format!("{:>7}      and {more} before", ""));
        }
        lines
    }
}

/// How each claim and each device is, by what identifies it, with the name that is shown.
type UsageFacts = BTreeMap<(&'static str, String), (String, &'static str)>;

fn facts(usage: &MachineUsage) -> UsageFacts {
    let holders = usage.holders.iter().map(|holder| {
        let name = format!("claim {}", plain_line(&holder.full_name()));
        (("claim", holder.uid.clone()), (name, holder.state.as_str()))
    });
    let devices = usage.devices.iter().map(|device| {
        let name = format!("device {}", plain_line(&device.path()));
        (("device", device.path()), (name, condition(device)))
    });
    holders.chain(devices).collect()
}

/// Whether claims can have it. Who has it says the news about claims.
fn condition(device: &DeviceUsage) -> &'static str {
    match (device.health, &device.drained) {
        (DeviceHealth::Absent, _) => "absent",
        (DeviceHealth::Unhealthy, _) => "unhealthy",
        (_, Some(_)) => "drained",
        (DeviceHealth::Unknown, None) => "unknown",
        (DeviceHealth::Healthy, None) => "in service",
    }
}

fn differences(mut before: UsageFacts, now: &UsageFacts) -> Vec<String> {
    let mut changes = Vec::new();
    for (key, (name, state)) in now {
        match before.remove(key) {
            None => changes.push(format!("{name} came, {state}")),
            Some((_, earlier)) if earlier != *state => changes.push(format!("{name} is {state}, was {earlier}")),
            Some(_) => {}
        }
    }
    changes.extend(before.into_values().map(|(name, _)| format!("{name} went")));
    changes
}

#[cfg(test)]
mod tests {
    use hostler_api::ClaimState;

    use super::*;
    use crate::usage::testing::{holder, small};

    #[test]
    fn what_came_went_and_changed_is_told_with_its_age() {
        let (begin, mut history) = (Instant::now(), TopHistory::default());
        let later = |seconds| begin + Duration::from_secs(seconds);
        let mut now = small();
        holder(&mut now, "ml", "new\nest");
        now.holders[1].state = ClaimState::Preparing;
        now.devices.iter_mut().find(|device| device.name == "card-1").unwrap().health = DeviceHealth::Healthy;
        history.note_changes(&small(), &now, begin);
        history.note_changes(&now, &small(), later(60));
        let lines = history.change_lines(later(65));
        assert_eq!(lines.len(), 6, "{lines:#?}");
        for expected in [
            "     5s ago  claim ml/new\\nest went",
            "     5s ago  device fpga/card-1 is unhealthy, was in service",
            "  1m 5s ago  claim ml/new\\nest came, prepared",
            "  1m 5s ago  claim web/front is preparing, was prepared",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
        }
        history.note_changes(&small(), &small(), later(601));
        assert_eq!(history.change_lines(later(601)).len(), 3, "the first ones are old");
    }

    #[test]
    fn a_history_has_an_end_however_much_happens() {
        let (begin, mut history) = (Instant::now(), TopHistory::default());
        let mut now = small();
        for number in 0..600 {
            holder(&mut now, "many", &format!("claim-{number}"));
        }
        history.note_changes(&small(), &now, begin);
        let lines = history.change_lines(begin);
        assert_eq!((lines.len(), history.changes.len()), (SHOWN + 1, MOST_CHANGES));
        assert!(lines[SHOWN].ends_with("and 56 before"), "{lines:#?}");
        (0..1000).for_each(|frame| history.note_load(Some(50), begin + Duration::from_secs(frame)));
        assert_eq!(history.load_line().chars().count(), MOST_LOADS);
    }

    #[test]
    fn a_line_of_loads_reaches_from_none_to_all() {
        let (begin, mut history) = (Instant::now(), TopHistory::default());
        assert_eq!(history.load_line(), "");
        for (seconds, load) in [(0, Some(0)), (1, None), (2, Some(12)), (2, Some(99)), (3, Some(50)), (4, Some(100))] {
            history.note_load(load, begin + Duration::from_secs(seconds));
        }
        assert_eq!(history.load_line(), "▁▁▅█");
    }
}
