//! Decides when DeviceTaintRules are looked up again: the role, the API and the release of schedulers may change while
//! this process leads. No I/O, and no clock of its own.

use std::time::Duration;

use hostler_cluster::Backoff;
use tokio::time::Instant;

use super::rules::RulesPlace;

/// Pause before the first new try: a role is often applied a moment after the controller that needs it.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause: each try is some refusals in the server's log.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Notices that the state of DeviceTaintRules differs from that at the start of the term.
#[derive(Debug)]
pub(super) struct LaterRules {
    known: RulesPlace,
    pauses: Backoff,
    due: Instant,
    is_asked: bool,
    is_other: bool,
}

impl LaterRules {
    pub(super) fn new(known: RulesPlace, now: Instant) -> Self {
        let pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut later = Self { known, pauses, due: now, is_asked: false, is_other: false };
        later.look_again(now);
        later
    }

    /// Sets the time of the next lookup: an upgrade changes rules that are served, a role grants rules that are not.
    fn look_again(&mut self, now: Instant) {
        let pause = if self.known.close() { LONGEST_PAUSE } else { self.pauses.next_pause() };
        (self.due, self.is_asked) = (now + pause, false);
    }

    /// The time of the next lookup.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.is_asked && !self.is_other).then_some(self.due)
    }

    /// True if a lookup is due by then. No lookup is due before the last one has its answer.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let is_due = self.due().is_some_and(|due| due <= now);
        self.is_asked |= is_due;
        is_due
    }

    /// Takes the answer; `None` where the server does not answer. Rules that were served are not forgotten for one
    /// answer without them.
    pub(super) fn answered(&mut self, known: Option<&RulesPlace>, now: Instant) {
        let is_known = |new: &&RulesPlace| **new != self.known && **new != RulesPlace::Missing;
        self.is_other = known.as_ref().is_some_and(is_known);
        self.look_again(now);
    }

    /// True if a new term has to begin.
    pub(super) fn is_other(&self) -> bool {
        self.is_other
    }
}

#[cfg(test)]
mod tests {
    use hostler_cluster::Collection;

    use super::*;

    fn rules() -> Collection {
        Collection::custom("resource.k8s.io", "v1beta2", "DeviceTaintRule", "devicetaintrules")
    }

    #[test]
    fn it_is_looked_ever_more_seldom_and_never_while_a_look_is_under_way() {
        let mut now = Instant::now();
        let mut later = LaterRules::new(RulesPlace::Missing, now);
        assert!(!later.take_due(now));
        let pauses: Vec<Duration> = (0..14)
            .map(|_| {
                let due = later.due().unwrap();
                let pause = due - now;
                now = due;
                assert!(later.take_due(now) && !later.take_due(now + LONGEST_PAUSE));
                assert_eq!(later.due(), None);
                later.answered(None, now);
                pause
            })
            .collect();
        assert!(pauses[0] <= FIRST_PAUSE && pauses[13] >= LONGEST_PAUSE / 2, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE), "{pauses:?}");
        assert!(!later.is_other());
    }

    #[test]
    fn rules_that_come_and_schedulers_of_another_release_are_noticed() {
        let (heeded, ignored) = (RulesPlace::Heeded(rules()), RulesPlace::Ignored(rules(), "v1.36.2".to_owned()));
        for (before, after, is_other) in [
            (&RulesPlace::Missing, &heeded, true),
            (&RulesPlace::Missing, &RulesPlace::Missing, false),
            (&ignored, &heeded, true),
            (&heeded, &ignored, true),
            (&heeded, &heeded, false),
            (&heeded, &RulesPlace::Missing, false),
        ] {
            let now = Instant::now();
            let mut later = LaterRules::new(before.clone(), now);
            assert!(later.take_due(now + LONGEST_PAUSE));
            later.answered(Some(after), now + LONGEST_PAUSE);
            assert_eq!((later.is_other(), later.due().is_none()), (is_other, is_other), "{before:?} {after:?}");
        }
    }
}
