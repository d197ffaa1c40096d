//! Times of writes: soon after a change, later after a failure, and ever later while another client deletes what was
//! written.

use std::time::Duration;

use hostler_api::Doubling;
use tokio::time::Instant;

use crate::Backoff;

/// One deletion is a mistake, and mended at once.
const AFTER_DELETION: Duration = Duration::from_millis(100);
/// Several are a kubelet that starts and deletes every slice of its node: it shall be through with it.
const AFTER_DELETIONS: Duration = Duration::from_millis(300);
/// A client that deletes again within this time gets a longer pause.
const CALM: Duration = Duration::from_secs(60);
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How late slices may come back when the server does: it takes a small call of each node that often.
const LONGEST_RETRY: Duration = Duration::from_secs(8);

/// Decides when the next comparison is due.
#[derive(Debug)]
pub struct WritePace {
    wanted: Option<Instant>,
    not_before: Option<Instant>,
    backoff: Backoff,
    /// Deletions since the last comparison.
    deletions: u32,
    /// Comparisons that followed deletions, without a calm time between them.
    restores: u32,
    last_restore: Option<Instant>,
}

impl Default for WritePace {
    fn default() -> Self {
        Self {
            wanted: None,
            not_before: None,
            backoff: Backoff::new(FIRST_RETRY, LONGEST_RETRY),
            deletions: 0,
            restores: 0,
            last_restore: None,
        }
    }
}

impl WritePace {
    /// Something may have to be written at `at`.
    pub fn want(&mut self, at: Instant) {
        self.wanted = Some(self.wanted.map_or(at, |wanted| wanted.min(at)));
    }

    /// When to compare; `None` as long as nothing has changed.
    pub fn due(&self) -> Option<Instant> {
        self.wanted.map(|wanted| self.not_before.map_or(wanted, |not_before| wanted.max(not_before)))
    }

    /// A comparison begins.
    pub fn begun(&mut self, now: Instant) {
        self.wanted = None;
        self.not_before = None;
        if std::mem::take(&mut self.deletions) > 0 {
            self.restores += 1;
            self.last_restore = Some(now);
        }
    }

    /// Another client deleted a slice.
    pub fn deleted(&mut self, now: Instant) {
        if self.last_restore.is_some_and(|last| now.duration_since(last) > CALM) {
            self.restores = 0;
        }
        self.deletions += 1;
        let first = if self.deletions > 1 { AFTER_DELETIONS } else { AFTER_DELETION };
        self.hold_until(now + Doubling::new(first, LONGEST_PAUSE).after(self.restores));
        self.want(now);
    }

    /// True if slices were deleted since the last comparison.
    pub fn has_deletions(&self) -> bool {
        self.deletions > 0
    }

    /// A call failed. The next comparison is due after the pause that is given back.
    pub fn failed(&mut self, now: Instant, retry_after: Option<Duration>) -> Duration {
        let pause = self.backoff.next_pause().max(retry_after.unwrap_or_default());
        self.hold_until(now + pause);
        self.want(now);
        pause
    }

    /// Everything is as it should be.
    pub fn succeeded(&mut self) {
        self.backoff.reset();
    }

    fn hold_until(&mut self, until: Instant) {
        self.not_before = Some(self.not_before.map_or(until, |before| before.max(until)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn the_earliest_wish_counts_and_is_fulfilled_once() {
        let now = Instant::now();
        let mut pace = WritePace::default();
        assert_eq!(pace.due(), None);
        pace.want(now + 100 * MS);
        pace.want(now + 200 * MS);
        assert_eq!(pace.due(), Some(now + 100 * MS));
        pace.begun(now);
        assert_eq!(pace.due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_deletion_is_mended_sooner_than_a_burst_and_both_within_a_second() {
        let now = Instant::now();
        let mut pace = WritePace::default();
        pace.deleted(now);
        assert_eq!(pace.due(), Some(now + 100 * MS));
        for _ in 0..15 {
            pace.deleted(now + 20 * MS);
        }
        assert_eq!(pace.due(), Some(now + 320 * MS));
    }

    #[tokio::test(start_paused = true)]
    async fn who_deletes_again_and_again_waits_longer_until_a_calm_minute_has_passed() {
        let mut now = Instant::now();
        let mut pace = WritePace::default();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            pace.deleted(now);
            let due = pace.due().unwrap();
            pauses.push((due - now).as_millis());
            pace.begun(due);
            now = due + 10 * MS;
        }
        assert_eq!(&pauses[..5], [100, 200, 400, 800, 1600]);
        assert_eq!(pauses[11], 30_000);
        pace.deleted(now + Duration::from_secs(61));
        assert_eq!(pace.due(), Some(now + Duration::from_secs(61) + 100 * MS));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_each_time_and_as_long_as_the_server_asks() {
        let now = Instant::now();
        let mut pace = WritePace::default();
        for most in [200, 400, 800] {
            let pause = pace.failed(now, None);
            assert!(pause >= most * MS / 2 && pause <= most * MS, "{pause:?} after failures that allow {most} ms");
            assert!(pace.due().unwrap() >= now + pause);
        }
        assert_eq!(pace.failed(now, Some(Duration::from_secs(7))), Duration::from_secs(7));
        pace.want(now);
        assert_eq!(pace.due(), Some(now + Duration::from_secs(7)));
        pace.succeeded();
        assert!(pace.failed(now, None) <= 200 * MS);
    }
}
