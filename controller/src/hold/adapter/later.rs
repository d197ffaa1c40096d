//! When it is looked again whether DeviceTaintRules can be written: the role and the API may come later than this process leads.
//! No I/O, and no clock of its own.

use std::time::Duration;

use hostler_cluster::Backoff;
use tokio::time::Instant;

/// Roles are often applied a moment after what needs them.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// Each look is some refusals in the server's books.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Looks for rules where there were none.
#[derive(Debug)]
pub(super) struct LaterRules {
    pauses: Backoff,
    due: Option<Instant>,
    are_there: bool,
}

impl LaterRules {
    pub(super) fn new(has_rules: bool, now: Instant) -> Self {
        let mut later = Self { pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), due: None, are_there: false };
        if !has_rules {
            later.look_again(now);
        }
        later
    }

    fn look_again(&mut self, now: Instant) {
        self.due = Some(now + self.pauses.next_pause());
    }

    /// When it is looked.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether it is to be looked by then. Not again before there is an answer.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// What came of it; what nobody can say is no yes.
    pub(super) fn answered(&mut self, are_there: bool, now: Instant) {
        self.are_there = are_there;
        if !are_there {
            self.look_again(now);
        }
    }

    /// Whether there are rules now.
    pub(super) fn are_there(&self) -> bool {
        self.are_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_ever_more_seldom_and_never_while_a_look_is_under_way() {
        let mut now = Instant::now();
        let mut later = LaterRules::new(false, now);
        assert!(!later.take_due(now));
        let pauses: Vec<Duration> = (0..14)
            .map(|_| {
                let due = later.due().unwrap();
                let pause = due - now;
                now = due;
                assert!(later.take_due(now) && !later.take_due(now + LONGEST_PAUSE));
                assert_eq!(later.due(), None);
                later.answered(false, now);
                pause
            })
            .collect();
        assert!(pauses[0] <= FIRST_PAUSE && pauses[13] >= LONGEST_PAUSE / 2, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE), "{pauses:?}");
        assert!(!later.are_there());
    }

    #[test]
    fn where_there_are_rules_nobody_looks_for_them() {
        let now = Instant::now();
        assert_eq!(LaterRules::new(true, now).due(), None);
        let mut later = LaterRules::new(false, now);
        assert!(later.take_due(now + FIRST_PAUSE));
        later.answered(true, now);
        assert!(later.are_there() && later.due().is_none());
    }
}
