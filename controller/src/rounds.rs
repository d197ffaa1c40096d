//! When which object is looked at: soon after it has changed, again after a while, and later and later where that fails. Of one
//! object there is never more than one look at a time. Pure: it is told what time it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The first pause after a look that failed, or that found that others are to do something; it doubles up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What came of a look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LookEnd {
    /// Something was done: there may be more to do.
    Again,
    /// Nothing is to be done before something changes, or this time has passed.
    Rest(Duration),
    /// Others do something first, which is news; it is looked at again all the same, later and later.
    Waiting,
    /// It could not be done.
    Failed,
}

/// Objects that are looked at, by name.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    due: BTreeMap<String, Duration>,
    busy: BTreeSet<String>,
    /// What changed while it was looked at.
    changed: BTreeSet<String>,
    failures: BTreeMap<String, u32>,
    /// How often it was found that others are to do something, since there was news.
    waits: BTreeMap<String, u32>,
}

impl Rounds {
    /// It is another one than before.
    pub(crate) fn changed(&mut self, name: &str, now: Duration) {
        self.waits.remove(name);
        if self.busy.contains(name) {
            self.changed.insert(name.to_owned());
        } else {
            self.due.insert(name.to_owned(), now);
        }
    }

    /// Nobody wants to know of it any more.
    pub(crate) fn forget(&mut self, name: &str) {
        self.due.remove(name);
        self.changed.remove(name);
        self.failures.remove(name);
        self.waits.remove(name);
    }

    /// What is to be looked at now, while fewer than `most` looks are under way.
    pub(crate) fn begin(&mut self, now: Duration, most: usize) -> Option<String> {
        if self.busy.len() >= most {
            return None;
        }
        let due = self.due.iter().filter(|(_, at)| **at <= now).min_by_key(|(_, at)| **at);
        let name = due.map(|(name, _)| name.clone())?;
        self.due.remove(&name);
        self.busy.insert(name.clone());
        Some(name)
    }

    /// A look has ended.
    pub(crate) fn ended(&mut self, name: &str, now: Duration, end: LookEnd) {
        self.busy.remove(name);
        let has_changed = self.changed.remove(name);
        let at = match end {
            LookEnd::Again => now,
            LookEnd::Rest(pause) => now + pause,
            LookEnd::Waiting => now + longer(&mut self.waits, name),
            LookEnd::Failed => now + longer(&mut self.failures, name),
        };
        if end != LookEnd::Failed {
            self.failures.remove(name);
        }
        if end == LookEnd::Again {
            self.waits.remove(name);
        }
        self.due.insert(name.to_owned(), if has_changed { now } else { at });
    }

    /// When something is to be looked at next, if there is room for that; else it is when a look ends.
    pub(crate) fn next(&self, most: usize) -> Option<Duration> {
        self.due.values().min().copied().filter(|_| self.busy.len() < most)
    }
}

/// The next pause of an object.
fn longer(counts: &mut BTreeMap<String, u32>, name: &str) -> Duration {
    let count = counts.entry(name.to_owned()).or_default();
    let pause = SHORTEST_PAUSE * 2u32.saturating_pow((*count).min(5));
    *count = count.saturating_add(1);
    pause.min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn an_object_is_looked_at_once_at_a_time_and_again_if_it_changes_meanwhile() {
        let mut rounds = Rounds::default();
        rounds.changed("a", NOW);
        assert_eq!(rounds.begin(NOW, 2).as_deref(), Some("a"));
        rounds.changed("a", NOW);
        assert_eq!(rounds.begin(NOW, 2), None);
        rounds.ended("a", NOW, LookEnd::Rest(NOW));
        assert_eq!(rounds.begin(NOW, 2).as_deref(), Some("a"));
        rounds.ended("a", NOW, LookEnd::Rest(NOW));
        assert_eq!((rounds.begin(NOW, 2), rounds.next(2)), (None, Some(NOW + NOW)));
        assert_eq!(rounds.begin(NOW + NOW, 2).as_deref(), Some("a"));
    }

    #[test]
    fn what_fails_is_tried_later_and_later_and_what_is_forgotten_never() {
        let mut rounds = Rounds::default();
        let pauses = [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs);
        rounds.changed("a", NOW);
        for pause in pauses {
            let now = rounds.next(1).unwrap();
            rounds.begin(now, 1).unwrap();
            rounds.ended("a", now, LookEnd::Failed);
            assert_eq!(rounds.next(1), Some(now + pause));
        }
        rounds.forget("a");
        assert_eq!(rounds.next(1), None);
    }

    #[test]
    fn what_others_are_to_do_is_looked_for_later_and_later_and_at_once_when_there_is_news() {
        let mut rounds = Rounds::default();
        rounds.changed("a", NOW);
        for pause in [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
            let now = rounds.next(1).unwrap();
            rounds.begin(now, 1).unwrap();
            rounds.ended("a", now, LookEnd::Waiting);
            assert_eq!(rounds.next(1), Some(now + pause));
        }
        rounds.changed("a", NOW);
        assert_eq!(rounds.begin(NOW, 1).as_deref(), Some("a"));
        rounds.ended("a", NOW, LookEnd::Waiting);
        assert_eq!(rounds.next(1), Some(NOW + SHORTEST_PAUSE), "news: it goes on soon");
    }

    #[test]
    fn no_more_looks_are_under_way_than_are_allowed() {
        let mut rounds = Rounds::default();
        ["a", "b", "c"].iter().for_each(|name| rounds.changed(name, NOW));
        assert_eq!([rounds.begin(NOW, 2), rounds.begin(NOW, 2)].iter().flatten().count(), 2);
        assert_eq!(rounds.begin(NOW, 2), None);
        rounds.ended("a", NOW, LookEnd::Rest(NOW));
        assert_eq!(rounds.begin(NOW, 2).as_deref(), Some("c"));
    }
}
