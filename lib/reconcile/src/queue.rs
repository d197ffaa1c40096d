//! The work queue: which key is reconciled when. A key is reconciled soon after it changed, again after a while, and ever later where
//! that fails; never twice at the same time. Pure: the time comes in as a value.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::Doubling;

/// Pauses after failures, and while others are to act first.
const PAUSES: Doubling = Doubling::new(Duration::from_secs(1), Duration::from_secs(30));

/// When a key is reconciled again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Requeue {
    /// At once: something was done, and there may be more to do.
    Now,
    /// After this time, or when the key changes.
    After(Duration),
    /// After ever longer pauses, or when the key changes: others act first.
    Waiting,
    /// After ever longer pauses: reconciling failed.
    Failed,
}

/// Keys that are to be reconciled.
#[derive(Debug)]
pub struct WorkQueue<K> {
    due: BTreeMap<K, Duration>,
    busy: BTreeSet<K>,
    /// Keys that changed while they were reconciled.
    changed: BTreeSet<K>,
    failures: BTreeMap<K, u32>,
    /// Numbers of times that a key waited for others since it changed.
    waits: BTreeMap<K, u32>,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            busy: BTreeSet::new(),
            changed: BTreeSet::new(),
            failures: BTreeMap::new(),
            waits: BTreeMap::new(),
        }
    }
}

impl<K: Clone + Ord> WorkQueue<K> {
    /// Adds a key that changed.
    pub fn changed(&mut self, key: &K, now: Duration) {
        self.waits.remove(key);
        if self.busy.contains(key) {
            self.changed.insert(key.clone());
        } else {
            self.due.insert(key.clone(), now);
        }
    }

    /// Drops a key with all that is remembered of it.
    pub fn forget(&mut self, key: &K) {
        self.due.remove(key);
        self.changed.remove(key);
        self.failures.remove(key);
        self.waits.remove(key);
    }

    /// Takes the key that has been due for longest, while fewer than `most` are being reconciled.
    pub fn begin(&mut self, now: Duration, most: usize) -> Option<K> {
        if self.busy.len() >= most {
            return None;
        }
        let due = self.due.iter().filter(|(_, at)| **at <= now).min_by_key(|(_, at)| **at);
        let key = due.map(|(key, _)| key.clone())?;
        self.due.remove(&key);
        self.busy.insert(key.clone());
        Some(key)
    }

    /// Notes that a key was reconciled.
    pub fn ended(&mut self, key: &K, now: Duration, requeue: Requeue) {
        self.busy.remove(key);
        let has_changed = self.changed.remove(key);
        let at = match requeue {
            Requeue::Now => now,
            Requeue::After(pause) => now + pause,
            Requeue::Waiting => now + longer(&mut self.waits, key),
            Requeue::Failed => now + longer(&mut self.failures, key),
        };
        if requeue != Requeue::Failed {
            self.failures.remove(key);
        }
        if requeue == Requeue::Now {
            self.waits.remove(key);
        }
        self.due.insert(key.clone(), if has_changed { now } else { at });
    }

    /// Returns the moment at which the next key is due, if there is room for it; else the end of a reconciliation comes first.
    pub fn next(&self, most: usize) -> Option<Duration> {
        self.due.values().min().copied().filter(|_| self.busy.len() < most)
    }
}

/// Counts once more for the key, and returns the pause.
fn longer<K: Clone + Ord>(counts: &mut BTreeMap<K, u32>, key: &K) -> Duration {
    let count = counts.entry(key.clone()).or_default();
    let pause = PAUSES.after(*count);
    *count = count.saturating_add(1);
    pause
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn a_key_is_reconciled_once_at_a_time_and_again_if_it_changes_meanwhile() {
        let mut queue = WorkQueue::default();
        queue.changed(&"a", NOW);
        assert_eq!(queue.begin(NOW, 2), Some("a"));
        queue.changed(&"a", NOW);
        assert_eq!(queue.begin(NOW, 2), None);
        queue.ended(&"a", NOW, Requeue::After(NOW));
        assert_eq!(queue.begin(NOW, 2), Some("a"));
        queue.ended(&"a", NOW, Requeue::After(NOW));
        assert_eq!((queue.begin(NOW, 2), queue.next(2)), (None, Some(NOW + NOW)));
        assert_eq!(queue.begin(NOW + NOW, 2), Some("a"));
    }

    #[test]
    fn a_key_that_fails_is_tried_later_and_later_and_one_that_is_forgotten_never() {
        let mut queue = WorkQueue::default();
        let pauses = [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs);
        queue.changed(&"a", NOW);
        for pause in pauses {
            let now = queue.next(1).unwrap();
            queue.begin(now, 1).unwrap();
            queue.ended(&"a", now, Requeue::Failed);
            assert_eq!(queue.next(1), Some(now + pause));
        }
        queue.forget(&"a");
        assert_eq!(queue.next(1), None);
    }

    #[test]
    fn a_key_that_waits_for_others_is_tried_later_and_later_and_soon_again_after_a_change() {
        let mut queue = WorkQueue::default();
        queue.changed(&"a", NOW);
        for pause in [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
            let now = queue.next(1).unwrap();
            queue.begin(now, 1).unwrap();
            queue.ended(&"a", now, Requeue::Waiting);
            assert_eq!(queue.next(1), Some(now + pause));
        }
        queue.changed(&"a", NOW);
        assert_eq!(queue.begin(NOW, 1), Some("a"));
        queue.ended(&"a", NOW, Requeue::Waiting);
        assert_eq!(queue.next(1), Some(NOW + PAUSES.after(0)));
    }

    #[test]
    fn no_more_keys_are_reconciled_at_a_time_than_are_allowed() {
        let mut queue = WorkQueue::default();
        ["a", "b", "c"].iter().for_each(|key| queue.changed(key, NOW));
        assert_eq!([queue.begin(NOW, 2), queue.begin(NOW, 2)].iter().flatten().count(), 2);
        assert_eq!(queue.begin(NOW, 2), None);
        queue.ended(&"a", NOW, Requeue::After(NOW));
        assert_eq!(queue.begin(NOW, 2), Some("c"));
    }
}
