//! A work queue of topics: each is reconciled now, or at a later time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The pause before the first answer to a gain: claims of a Job that ends go one after the other, and count as one
/// gain.
const FIRST_GAIN_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause while something gets free all the time.
const LONGEST_GAIN_PAUSE: Duration = Duration::from_secs(1);
/// The shortest time between two reconciles for changes of the inventory: changes that come together are one.
pub(crate) const SHORTEST_REFRESH: Duration = Duration::from_secs(1);
/// The longest time between two reconciles of everything, while the inventory goes on changing.
pub(crate) const LONGEST_REFRESH: Duration = Duration::from_secs(30);

/// The topics to reconcile.
#[derive(Debug)]
pub(crate) struct DecisionQueue<T> {
    pub(crate) now: Duration,
    /// The topic to reconcile when a change concerns all that wait.
    refresh: T,
    due: BTreeSet<T>,
    later: BTreeMap<T, Duration>,
    /// The time of the last or next answer to a gain, and the pause before it.
    gain: Option<(Duration, Duration)>,
    last_refresh: Option<Duration>,
    interval: Duration,
    /// True if a change of the inventory is not reconciled yet. A reconcile for another reason may cover the change,
    /// but the change does not wait for one.
    has_changed: bool,
    told_wake: Option<Duration>,
}

impl<T: Clone + Ord> DecisionQueue<T> {
    pub(crate) fn new(refresh: T) -> Self {
        let (now, interval) = (Duration::ZERO, Duration::ZERO);
        let (due, later) = (BTreeSet::new(), BTreeMap::new());
        Self { now, refresh, due, later, gain: None, last_refresh: None, interval, has_changed: false, told_wake: None }
    }

    /// Queues a topic for this step.
    pub(crate) fn now(&mut self, topic: T) {
        self.due.insert(topic);
    }

    /// Queues a topic for a later time. Another event may bring it earlier.
    pub(crate) fn after(&mut self, delay: Duration, topic: T) {
        let at = self.now + delay;
        self.later.entry(topic).and_modify(|known| *known = at.min(*known)).or_insert(at);
    }

    /// Notes a gain: more may fit than before, and all that wait are answered at once. If gains go on, the pauses get
    /// longer, up to the time of four answers, each of which takes `cost`.
    pub(crate) fn gained(&mut self, cost: Duration) {
        let longest = LONGEST_GAIN_PAUSE.max(cost * 4);
        let pause = match self.gain {
            // A reconcile for another reason may have come in between: its answers do not include this gain.
            Some((due, _)) if due > self.now => return self.after(due - self.now, self.refresh.clone()),
            Some((due, pause)) if self.now - due < longest => (pause * 2).min(longest),
            _ => FIRST_GAIN_PAUSE,
        };
        self.gain = Some((self.now + pause, pause));
        self.has_changed = true;
        self.after(pause, self.refresh.clone());
    }

    /// Notes a change of the inventory: all that wait are answered anew, soon. The longer the inventory goes on
    /// changing, the longer the pauses.
    pub(crate) fn inventory_changed(&mut self) {
        if self.has_changed || self.due.contains(&self.refresh) {
            return;
        }
        self.has_changed = true;
        let Some(last) = self.last_refresh else { return self.after(SHORTEST_REFRESH, self.refresh.clone()) };
        let quiet = self.now.saturating_sub(last);
        let next = if quiet > self.interval + SHORTEST_REFRESH { SHORTEST_REFRESH } else { self.interval * 2 };
        self.interval = next.clamp(SHORTEST_REFRESH, LONGEST_REFRESH);
        self.after(self.interval.saturating_sub(quiet).max(SHORTEST_REFRESH), self.refresh.clone());
    }

    /// Notes that answers to all that wait are being made.
    pub(crate) fn refreshed(&mut self) {
        self.last_refresh = Some(self.now);
    }

    /// Notes the present time, and queues the topics that are due.
    pub(crate) fn pass(&mut self, now: Duration) {
        self.now = now.max(self.now);
        let is_due = |at: &Duration| *at <= self.now;
        let due: Vec<T> = self.later.iter().filter(|(_, at)| is_due(at)).map(|(topic, _)| topic.clone()).collect();
        for topic in due {
            self.later.remove(&topic);
            self.now(topic);
        }
        self.told_wake = self.told_wake.filter(|at| *at > self.now);
    }

    /// Takes the next topic.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let topic = self.due.pop_first()?;
        self.has_changed &= topic != self.refresh;
        Some(topic)
    }

    /// Exchanges a popped topic for the first one of its kind from `from` on, if there is one.
    pub(crate) fn pop_instead(&mut self, popped: T, from: &T, is_of_kind: impl Fn(&T) -> bool) -> T {
        let other = self.due.range(from..).next().filter(|other| is_of_kind(other)).cloned();
        let Some(other) = other else { return popped };
        self.due.remove(&other);
        self.due.insert(popped);
        other
    }

    /// Returns the time of the next step, if it is earlier than the last one that was returned.
    pub(crate) fn wake(&mut self) -> Option<Duration> {
        let next = if self.due.is_empty() { self.later.values().min().copied() } else { Some(self.now) };
        let news = next.filter(|next| self.told_wake.is_none_or(|told| *next < told));
        if news.is_some() {
            self.told_wake = news;
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
    enum TestTopic {
        Source(String),
        Refresh,
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// When refreshes come if the inventory changes ten times a second for a while.
    fn refreshes(queue: &mut DecisionQueue<TestTopic>, from: u64, until: u64) -> Vec<u64> {
        let mut seen = Vec::new();
        for tenth in from * 10..until * 10 {
            queue.pass(Duration::from_millis(tenth * 100));
            while let Some(topic) = queue.pop() {
                assert_eq!(topic, TestTopic::Refresh);
                queue.refreshed();
                seen.push(tenth / 10);
            }
            queue.inventory_changed();
        }
        seen
    }

    #[test]
    fn while_the_inventory_goes_on_changing_it_is_looked_at_less_and_less_often() {
        let mut queue = DecisionQueue::new(TestTopic::Refresh);
        let seen = refreshes(&mut queue, 0, 200);
        assert_eq!(&seen[..4], [1, 2, 4, 8]);
        let distances: Vec<u64> = seen.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(distances.iter().all(|distance| (1..=30).contains(distance)), "{distances:?}");
        let last = *seen.last().unwrap();
        queue.pass(seconds(last + 40));
        assert_eq!(queue.pop(), Some(TestTopic::Refresh));
        queue.refreshed();
        let again = refreshes(&mut queue, last + 100, last + 102);
        assert_eq!(again, [last + 101], "after a quiet time the first change counts soon");
    }

    #[test]
    fn what_gets_free_is_looked_at_at_once_however_often_others_have_taken_something_before() {
        let mut queue = DecisionQueue::new(TestTopic::Refresh);
        let seen = refreshes(&mut queue, 0, 200);
        assert!(seen.windows(2).any(|pair| pair[1] - pair[0] == 30), "{seen:?}");
        let freed = seconds(200) + Duration::from_millis(30);
        queue.pass(freed);
        assert_eq!(queue.pop(), None);
        queue.gained(Duration::ZERO);
        queue.pass(freed + FIRST_GAIN_PAUSE);
        assert_eq!(queue.pop(), Some(TestTopic::Refresh));
    }

    #[test]
    fn what_gets_free_after_answers_that_were_early_is_looked_at_in_time() {
        let mut queue = DecisionQueue::new(TestTopic::Refresh);
        queue.gained(Duration::ZERO);
        let early = FIRST_GAIN_PAUSE / 2;
        queue.after(early, TestTopic::Refresh);
        queue.pass(early);
        assert_eq!(queue.pop(), Some(TestTopic::Refresh));
        queue.refreshed();
        queue.gained(Duration::ZERO);
        queue.pass(FIRST_GAIN_PAUSE);
        assert_eq!(queue.pop(), Some(TestTopic::Refresh));
    }

    #[test]
    fn what_gets_free_all_the_time_is_looked_at_once_a_second_and_less_often_where_that_takes_long() {
        for (cost, distance) in [(0, 1000), (2000, 8000)] {
            let mut queue = DecisionQueue::new(TestTopic::Refresh);
            let mut seen: Vec<u64> = Vec::new();
            for at in 0..60_000 {
                queue.pass(Duration::from_millis(at));
                while queue.pop().is_some() {
                    queue.refreshed();
                    seen.push(at);
                }
                queue.gained(Duration::from_millis(cost));
            }
            assert_eq!(seen[0], 50);
            let last = &seen[seen.len() - 2..];
            assert!(last[1] - last[0] >= distance && last[1] - last[0] <= distance + 1, "{seen:?}");
        }
    }

    #[test]
    fn a_change_does_not_wait_for_the_time_at_which_it_would_be_looked_at_anyway() {
        let mut queue = DecisionQueue::new(TestTopic::Refresh);
        queue.after(seconds(30), TestTopic::Refresh);
        queue.inventory_changed();
        assert_eq!(queue.wake(), Some(SHORTEST_REFRESH));
        queue.pass(SHORTEST_REFRESH);
        assert_eq!(queue.pop(), Some(TestTopic::Refresh));
        queue.refreshed();
        queue.inventory_changed();
        queue.inventory_changed();
        assert_eq!(queue.wake(), Some(SHORTEST_REFRESH * 2), "however often it changes in between");
    }

    #[test]
    fn what_comes_later_is_looked_at_once_and_told_once() {
        let mut queue = DecisionQueue::new(TestTopic::Refresh);
        queue.after(seconds(5), TestTopic::Source("a".to_owned()));
        queue.after(seconds(9), TestTopic::Source("a".to_owned()));
        assert_eq!(queue.wake(), Some(seconds(5)));
        assert_eq!(queue.wake(), None);
        queue.pass(seconds(5));
        assert_eq!(queue.pop(), Some(TestTopic::Source("a".to_owned())));
        assert_eq!((queue.pop(), queue.wake()), (None, None));
    }
}
