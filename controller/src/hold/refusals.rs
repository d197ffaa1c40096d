//! Pauses after writes that the server refuses: each try is a refusal in the server's log.

use std::time::Duration;

use hostler_api::Doubling;

const PAUSES: Doubling = Doubling::new(Duration::from_secs(1), Duration::from_secs(300));

/// The time of the next try of refused writes.
#[derive(Debug, Default)]
pub(super) struct RefusalPause {
    not_before: Duration,
    pause: Duration,
}

impl RefusalPause {
    /// True if a write may be tried now.
    pub(super) fn are_over(&self, now: Duration) -> bool {
        self.not_before <= now
    }

    /// Takes another refusal, at this time. Returns the pause until the next try.
    pub(super) fn again(&mut self, now: Duration) -> Duration {
        // Answers to writes that were sent at the same moment are one refusal.
        if self.are_over(now) {
            self.pause = PAUSES.next(Some(self.pause));
            self.not_before = now + self.pause;
        }
        self.not_before - now
    }
}
