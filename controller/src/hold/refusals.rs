//! Pauses after writes that the server refuses: each try is a refusal in its books.

use std::time::Duration;

use hostler_api::Doubling;

const PAUSES: Doubling = Doubling::new(Duration::from_secs(1), Duration::from_secs(300));

/// When what was refused is written again.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    not_before: Duration,
    pause: Duration,
}

impl Refusals {
    /// Whether it may be tried now.
    pub(super) fn are_over(&self, now: Duration) -> bool {
        self.not_before <= now
    }

    /// Once more, at this time. Returns the pause until the next try.
    pub(super) fn again(&mut self, now: Duration) -> Duration {
        // Answers to what was sent at the same moment are one refusal.
        if self.are_over(now) {
            self.pause = PAUSES.next(Some(self.pause));
            self.not_before = now + self.pause;
        }
        self.not_before - now
    }
}
