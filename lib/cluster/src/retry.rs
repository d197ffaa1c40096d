//! Pauses between tries of one call: after failures that pass by themselves, and after refusals.
//!
//! ```text
//!   outage, outage, … ──► up to the longest pause of outages
//!   403, 403, …       ──► 1 s, 2 s, 4 s, … up to the longest pause of refusals; after 10 s they are held for lasting
//! ```
//!
//! An API server that has just started has not read its roles yet and refuses every caller for some seconds. So a
//! refusal is first asked again soon, and only one that lasts is explained with a missing role.

use std::time::Duration;

use tokio::time::Instant;

use crate::{ApiFailure, Backoff};

/// The longest pause after a first refusal.
const FIRST_REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// A server that starts has read its roles long before.
pub(crate) const ROLES_ARE_READ: Duration = Duration::from_secs(10);
/// The explanation of a refusal that does not last yet.
pub(crate) const MAY_NOT_HAVE_READ_ROLES: &str =
    "an API server that has just started refuses everything until it has read its roles: it is asked again soon";

/// The pauses of one caller.
#[derive(Debug)]
pub struct RetryPauses {
    outages: Backoff,
    refusals: Backoff,
    refused_since: Option<Instant>,
}

impl RetryPauses {
    /// The first pause after an outage is at most `first`, and none is longer than `longest`; after refusals, none is
    /// longer than `longest_refused`.
    pub fn new(first: Duration, longest: Duration, longest_refused: Duration) -> Self {
        Self {
            outages: Backoff::new(first, longest),
            refusals: Backoff::new(FIRST_REFUSED_PAUSE, longest_refused),
            refused_since: None,
        }
    }

    /// The pause after a failure that passes by itself. A server that was away may have started anew.
    pub fn after_outage(&mut self, failure: &ApiFailure) -> Duration {
        self.forget_refusals();
        self.outages.next_pause().max(failure.retry_after().unwrap_or_default())
    }

    /// The pause after a refusal that only people can change, unless the server has just started.
    pub fn after_refusal(&mut self, failure: &ApiFailure) -> Duration {
        self.refused_since.get_or_insert_with(Instant::now);
        self.refusals.next_pause().max(failure.retry_after().unwrap_or_default())
    }

    /// The call has worked: the next failure is a first one.
    pub fn reset(&mut self) {
        self.outages.reset();
        self.forget_refusals();
    }

    /// True if the server refuses for longer than one that has just started does.
    pub fn is_refused_for_long(&self) -> bool {
        self.refused_since.is_some_and(|since| since.elapsed() >= ROLES_ARE_READ)
    }

    /// The explanation of a 403: `lasting` if it lasts.
    pub fn advice<'a>(&self, lasting: &'a str) -> &'a str {
        if self.is_refused_for_long() { lasting } else { MAY_NOT_HAVE_READ_ROLES }
    }

    fn forget_refusals(&mut self) {
        self.refusals.reset();
        self.refused_since = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::{CallError, StatusError};

    const SECOND: Duration = Duration::from_secs(1);

    fn failure(code: u16, retry_after: Option<Duration>) -> ApiFailure {
        let source = CallError::Status(StatusError { code, retry_after, ..StatusError::default() });
        ApiFailure::Call { step: "get Node n1".to_owned(), source }
    }

    fn pauses() -> RetryPauses {
        RetryPauses::new(SECOND / 5, SECOND * 8, SECOND * 300)
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_refusal_is_asked_again_soon_and_a_lasting_one_rarely() {
        let (mut pauses, refused) = (pauses(), failure(403, None));
        let (mut waited, mut tries) = (Duration::ZERO, 0);
        while waited < SECOND * 3600 {
            let pause = pauses.after_refusal(&refused);
            assert_eq!(pauses.advice("apply deploy/cluster") == "apply deploy/cluster", waited >= SECOND * 10);
            assert!(pause <= SECOND * 300 && (tries > 0 || pause <= SECOND), "try {tries}: {pause:?}");
            advance(pause).await;
            (waited, tries) = (waited + pause, tries + 1);
        }
        assert!((15..=40).contains(&tries), "{tries} tries within an hour");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_away_may_refuse_for_a_while_again() {
        let mut pauses = pauses();
        let refused = failure(403, None);
        for _ in 0..12 {
            advance(pauses.after_refusal(&refused)).await;
        }
        assert!(pauses.is_refused_for_long());
        pauses.after_outage(&failure(503, None));
        assert!(pauses.after_refusal(&refused) <= SECOND && !pauses.is_refused_for_long());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_left_alone_for_as_long_as_it_asks() {
        let mut pauses = pauses();
        let busy = failure(429, Some(SECOND * 7));
        assert_eq!((pauses.after_outage(&busy), pauses.after_refusal(&busy)), (SECOND * 7, SECOND * 7));
    }
}
