//! Retries of a list of all claims that failed, and what the log says of them. No I/O, and no clock of its own.

use std::time::Duration;

use hostler_api::Chain;
use hostler_cluster::{ApiFailure, Backoff};
use tokio::time::Instant;

/// Pause before the first new try: closed devices wait for a list, and a list of all claims is expensive.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The failure of a list.
#[derive(Debug)]
pub(super) struct ListFailure {
    pub(super) error: String,
    retry_after: Option<Duration>,
}

impl From<ApiFailure> for ListFailure {
    fn from(failure: ApiFailure) -> Self {
        Self { error: Chain(&failure).to_string(), retry_after: failure.retry_after() }
    }
}

/// The list that is to be asked for again.
#[derive(Debug)]
pub(super) struct ListTurn {
    pauses: Backoff,
    trouble: Option<String>,
    later: Option<(Instant, u64)>,
}

impl ListTurn {
    pub(super) fn new() -> Self {
        Self { pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), trouble: None, later: None }
    }

    pub(super) fn succeeded(&mut self) {
        (self.trouble, self.later) = (None, None);
        self.pauses.reset();
    }

    /// Takes a failure; returns true if it differs from the last one.
    pub(super) fn failed(&mut self, list: u64, failure: &ListFailure, now: Instant) -> bool {
        let pause = self.pauses.next_pause().max(failure.retry_after.unwrap_or_default());
        self.later = Some((now + pause, list));
        let last = self.trouble.replace(failure.error.clone());
        last.as_ref() != Some(&failure.error)
    }

    /// The time of the next try.
    pub(super) fn due(&self) -> Option<Instant> {
        self.later.map(|(at, _)| at)
    }

    /// The number of the list that is due by then.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<u64> {
        self.later.take_if(|(at, _)| *at <= now).map(|(_, list)| list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(error: &str, retry_after: Option<u64>) -> ListFailure {
        ListFailure { error: error.to_owned(), retry_after: retry_after.map(Duration::from_secs) }
    }

    #[test]
    fn a_list_that_fails_on_and_on_is_asked_for_ever_more_seldom_and_told_of_once() {
        let (mut turn, now) = (ListTurn::new(), Instant::now());
        let pauses: Vec<(bool, Duration)> = (0..12)
            .map(|_| {
                let is_news = turn.failed(1, &failure("forbidden", None), now);
                let pause = turn.due().unwrap() - now;
                assert_eq!((turn.take_due(now), turn.take_due(now + pause)), (None, Some(1)));
                (is_news, pause)
            })
            .collect();
        assert_eq!(pauses.iter().map(|(is_news, _)| *is_news).collect::<Vec<_>>()[..3], [true, false, false]);
        assert!(pauses[0].1 <= FIRST_PAUSE && pauses[11].1 >= LONGEST_PAUSE / 2, "{pauses:?}");
        assert!(pauses.iter().all(|(_, pause)| *pause <= LONGEST_PAUSE), "{pauses:?}");
        assert!(turn.failed(1, &failure("another", None), now));
        turn.succeeded();
        assert!(turn.failed(2, &failure("another", None), now), "it was mended meanwhile");
        assert!(turn.due().unwrap() - now <= FIRST_PAUSE);
    }

    #[test]
    fn a_server_that_wants_to_be_left_alone_is() {
        let (mut turn, now) = (ListTurn::new(), Instant::now());
        turn.failed(1, &failure("slow down", Some(60)), now);
        assert_eq!(turn.due().unwrap() - now, Duration::from_secs(60));
    }
}
