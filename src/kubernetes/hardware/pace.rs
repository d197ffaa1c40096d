//! When a report is due. Pure.
//!
//! ```text
//!   quiet ── change ──► due a second later; more changes by then go with it
//!   quiet ── moment of the sign of life ──► due
//!   failed ──► due after the pause, changes or not
//!   refused ──► due after the pause, or with the next change: it may be mended then
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// Changes come in bursts: a pod that ends and its successor, a card that is plugged in.
pub(super) const COALESCE: Duration = Duration::from_secs(1);

/// When the next report is due.
#[derive(Debug)]
pub(super) struct ReportPace {
    sign_at: Instant,
    /// Of the first change that is not told.
    changed_at: Option<Instant>,
    pause: Option<Pause>,
}

#[derive(Debug)]
struct Pause {
    until: Instant,
    /// True if a change ends the pause.
    ends_with_change: bool,
}

impl ReportPace {
    /// The first report of a daemon is a sign of life by itself.
    pub(super) fn starting(now: Instant) -> Self {
        Self { sign_at: now, changed_at: None, pause: None }
    }

    /// True if a report is wanted even if it says nothing new.
    pub(super) fn is_sign_due(&self, now: Instant) -> bool {
        now >= self.sign_at
    }

    pub(super) fn due(&self) -> Instant {
        let changed = self.changed_at.map(|at| at + COALESCE);
        let wanted = changed.map_or(self.sign_at, |changed| changed.min(self.sign_at));
        match (&self.pause, changed) {
            (None, _) => wanted,
            (Some(Pause { until, ends_with_change: true }), Some(changed)) => changed.min(*until),
            (Some(Pause { until, .. }), _) => *until,
        }
    }

    pub(super) fn changed(&mut self, now: Instant) {
        self.changed_at.get_or_insert(now);
    }

    /// All that was known is told; the next sign of life is due in a while.
    pub(super) fn told(&mut self, now: Instant, next_sign: Duration) {
        *self = Self { sign_at: now + next_sign, changed_at: None, pause: None };
    }

    /// The report failed, and is tried again.
    pub(super) fn failed(&mut self, now: Instant, pause: Duration) {
        self.pause = Some(Pause { until: now + pause, ends_with_change: false });
    }

    /// The server said that it would not have it.
    pub(super) fn refused(&mut self, now: Instant, pause: Duration) {
        self.changed_at = None;
        self.pause = Some(Pause { until: now + pause, ends_with_change: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const SIGN: Duration = Duration::from_secs(300);

    fn told(now: Instant) -> ReportPace {
        let mut pace = ReportPace::starting(now);
        pace.told(now, SIGN);
        pace
    }

    #[test]
    fn the_first_report_is_due_at_once() {
        let now = Instant::now();
        let pace = ReportPace::starting(now);
        assert!(pace.due() == now && pace.is_sign_due(now));
    }

    #[test]
    fn a_hundred_changes_within_a_second_are_told_at_once() {
        let start = Instant::now();
        let mut pace = told(start);
        let mut reports = 0;
        for change in 0..100 {
            let now = start + SECOND * change / 100;
            pace.changed(now);
            if now >= pace.due() {
                reports += 1;
                pace.told(now, SIGN);
            }
        }
        assert_eq!((reports, pace.due()), (0, start + COALESCE));
    }

    #[test]
    fn nothing_is_due_at_rest_but_the_sign_of_life() {
        let now = Instant::now();
        let pace = told(now);
        assert_eq!(pace.due(), now + SIGN);
        assert!(!pace.is_sign_due(now + SIGN - SECOND) && pace.is_sign_due(now + SIGN));
    }

    #[test]
    fn a_change_does_not_put_off_the_sign_of_life() {
        let now = Instant::now();
        let mut pace = told(now);
        pace.changed(now + SIGN - SECOND / 2);
        assert_eq!(pace.due(), now + SIGN);
    }

    #[test]
    fn a_server_in_trouble_is_left_alone_whatever_changes() {
        let now = Instant::now();
        let mut pace = told(now);
        pace.failed(now, SECOND * 30);
        pace.changed(now + SECOND);
        assert_eq!(pace.due(), now + SECOND * 30);
        pace.told(now + SECOND * 30, SIGN);
        assert_eq!(pace.due(), now + SECOND * 30 + SIGN);
    }

    #[test]
    fn what_is_refused_is_tried_with_the_next_change_and_otherwise_rarely() {
        let now = Instant::now();
        let mut pace = told(now);
        pace.changed(now);
        pace.refused(now + COALESCE, SIGN);
        assert_eq!(pace.due(), now + COALESCE + SIGN);
        pace.changed(now + SECOND * 10);
        assert_eq!(pace.due(), now + SECOND * 11);
    }
}
