//! The last minutes: the machine's load in frames, and what the daemon saw come, go or change. Both are bounded.

use std::{
    collections::VecDeque,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use hostler_api::plain_line;

use crate::{
    admin::types::{AdminEvent, AdminEvents},
    units::elapsed,
};

/// Frames of load: as many as a line of 80 columns has room for beside the counts of CPUs.
const MOST_LOADS: usize = 24;
/// Keys make frames as well, which say no more about the load.
const BETWEEN_LOADS: Duration = Duration::from_millis(900);
/// Age from which a change is not shown any more.
const LONGEST: Duration = Duration::from_secs(600);
/// Changes that are kept: of six hundred claims that come at once, the last ones.
const MOST_CHANGES: usize = 64;
/// Changes that are shown; more are counted.
const SHOWN: usize = 8;
/// Levels of load, from none to all.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Memory of the live view.
#[derive(Clone, Debug, Default)]
pub(super) struct TopHistory {
    /// Percent, the latest last.
    loads: VecDeque<u8>,
    load_noted: Option<Instant>,
    /// The latest last.
    changes: VecDeque<AdminEvent>,
    /// The daemon's cursor behind them.
    cursor: Option<String>,
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

    /// The cursor for the next question about changes.
    pub(super) fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// Notes the changes that came after the cursor.
    pub(super) fn note_changes(&mut self, events: AdminEvents) {
        self.cursor = Some(events.cursor);
        self.changes.extend(events.items);
        while self.changes.len() > MOST_CHANGES {
            self.changes.pop_front();
        }
    }

    /// One sign for each frame; empty before the first.
    pub(super) fn load_line(&self) -> String {
        let level = |percent: &u8| LEVELS[usize::from((*percent).min(99)) * LEVELS.len() / 100];
        self.loads.iter().map(level).collect()
    }

    /// The latest changes, each with its age, the latest first.
    pub(super) fn change_lines(&self, now: SystemTime) -> Vec<String> {
        let age =
            |event: &AdminEvent| now.duration_since(UNIX_EPOCH + Duration::from_secs(event.time)).unwrap_or_default();
        let news: Vec<&AdminEvent> = self.changes.iter().rev().filter(|event| age(event) <= LONGEST).collect();
        let line = |event: &&AdminEvent| {
            let AdminEvent { subject, name, change, message, .. } = event;
            let words = format!("{} {name} {change} {message}", subject.as_str());
            format!("{:>7} ago  {}", elapsed(age(event)), plain_line(words.trim_end()))
        };
        let mut lines: Vec<String> = news.iter().take(SHOWN).map(line).collect();
        if let Some(more @ 1..) = news.len().checked_sub(SHOWN) {
            lines.push(format!("{:>7}      and {more} before", ""));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::types::AdminEventSubject;

    fn events(first: u64, count: u64) -> AdminEvents {
        let event = |number: u64| AdminEvent {
            number,
            time: 1000 + number,
            subject: AdminEventSubject::Claim,
            name: format!("ml/{number}"),
            change: "failed".to_owned(),
            message: "no\nroom".to_owned(),
        };
        AdminEvents { cursor: format!("c-{first}"), missing: None, items: (first..first + count).map(event).collect() }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn changes_are_told_with_their_ages_until_they_are_old() {
        let mut history = TopHistory::default();
        assert!(history.change_lines(at(1000)).is_empty() && history.cursor().is_none());
        history.note_changes(events(0, 1));
        history.note_changes(events(60, 1));
        assert_eq!(history.cursor(), Some("c-60"));
        let latest = "     5s ago  claim ml/60 failed no\\nroom";
        assert_eq!(history.change_lines(at(1065)), [latest, "  1m 5s ago  claim ml/0 failed no\\nroom"]);
        assert_eq!(history.change_lines(at(1601)).len(), 1);
    }

    #[test]
    fn a_history_has_an_end_however_much_happens() {
        let (begin, mut history) = (Instant::now(), TopHistory::default());
        history.note_changes(events(0, 600));
        let lines = history.change_lines(at(1600));
        assert_eq!((lines.len(), history.changes.len()), (SHOWN + 1, MOST_CHANGES));
        assert!(lines[0].contains("ml/599") && lines[SHOWN].ends_with("and 56 before"), "{lines:#?}");
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
