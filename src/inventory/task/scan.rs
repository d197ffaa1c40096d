//! State of the scan of one backend, and the callers that wait for it. Pure but for the answers to those callers.
//!
//! ```text
//!   idle ── due, or asked for ──► running ── answer ──► idle, or rest where devices went meanwhile
//!                                    │ no answer in time: callers no longer wait for it
//!                                    └──► late ── answer, whenever it comes ──► idle
//! ```
//!
//! A backend is never asked a second question while it has not answered the first. In a storm of removals it rests between
//! two scans for them as long as the first took: backends that are slow to look at would keep the processors from others.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{sync::oneshot, time::Instant};

/// A removal waits no longer than this for a backend that has rested.
const LONGEST_REST: Duration = Duration::from_millis(25);

/// The state of one backend's scan.
#[derive(Default)]
pub(super) struct ScanState {
    /// Time from the end of a scan that found devices to the next one that nothing has asked for.
    pub(super) period: Duration,
    /// Time of that next scan; `None` before the first scan and while one is running.
    due: Option<Instant>,
    running: Option<RunningScan>,
    /// Extent of the scan that follows: at the end of the one that is running, or when it is due after a rest.
    again: Option<ScanExtent>,
    /// Callers that wait for the scan that is running, and those that wait for the one after it.
    waiting: Vec<Arc<ScanWaiter>>,
    waiting_again: Vec<Arc<ScanWaiter>>,
}

/// Part of a backend's hardware that a scan has to read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ScanExtent {
    /// All of it.
    Whole,
    /// Parts that these devices, which went, can have touched.
    Removals(BTreeSet<String>),
}

impl ScanExtent {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Removals(mut devpaths), Self::Removals(others)) => {
                devpaths.extend(others);
                Self::Removals(devpaths)
            }
            (Self::Whole, _) | (_, Self::Whole) => Self::Whole,
        }
    }
}

struct RunningScan {
    since: SystemTime,
    start: Instant,
    is_whole: bool,
    /// Time at which the scan is late; `None` once it is.
    deadline: Option<Instant>,
}

/// Answers when the last of several scans has let go of it.
pub(super) struct ScanWaiter(pub(super) Option<oneshot::Sender<()>>);

impl Drop for ScanWaiter {
    fn drop(&mut self) {
        // The caller may have stopped waiting.
        self.0.take().map(|done_tx| done_tx.send(()));
    }
}

impl ScanState {
    /// Makes a state in which nothing is due before a caller asks.
    pub(super) fn every(period: Duration) -> Self {
        Self { period, ..Self::default() }
    }

    /// Returns the extent back if a scan is to be started now, with this deadline. Where one is running, another follows
    /// it: the change may be behind the point that it has reached. No caller waits behind a scan that is late.
    pub(super) fn ask(
        &mut self,
        extent: ScanExtent,
        done: Option<Arc<ScanWaiter>>,
        within: Duration,
    ) -> Option<ScanExtent> {
        let now = Instant::now();
        let rests = self.again.is_some() && !self.is_due(now);
        let extent = match self.again.take() {
            Some(again) => again.and(extent),
            None => extent,
        };
        match &self.running {
            Some(running) => {
                self.again = Some(extent);
                if running.deadline.is_some() {
                    self.waiting_again.extend(done);
                }
                None
            }
            None if rests && extent != ScanExtent::Whole => {
                self.again = Some(extent);
                self.waiting.extend(done);
                None
            }
            None => {
                let deadline = Some(now + within);
                let is_whole = extent == ScanExtent::Whole;
                self.running = Some(RunningScan { since: SystemTime::now(), start: now, is_whole, deadline });
                self.due = None;
                self.waiting.extend(done);
                Some(extent)
            }
        }
    }

    /// Returns when there is something to do: a scan to be started, or one to be given up waiting for.
    pub(super) fn next(&self) -> Option<Instant> {
        self.running.as_ref().map_or(self.due, |running| running.deadline)
    }

    /// True if a scan should be started: one that nothing has asked for, or the one after a rest.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Part that a scan has to read which is due.
    pub(super) fn due_extent(&mut self) -> ScanExtent {
        self.again.take().unwrap_or(ScanExtent::Whole)
    }

    /// Returns since when the scan has been running, if it has just become late.
    pub(super) fn becomes_late(&mut self, now: Instant) -> Option<SystemTime> {
        let running = self.running.as_mut()?;
        running.deadline.take_if(|deadline| *deadline <= now).map(|_| running.since)
    }

    /// Lets all waiting callers go.
    pub(super) fn release(&mut self) {
        self.waiting.clear();
        self.waiting_again.clear();
    }

    /// Notes the answer of a scan; the next one that nothing asks for is due after `period`. Returns another that was
    /// asked for meanwhile, unless a rest comes before it.
    pub(super) fn answered(&mut self, period: Duration) -> Option<ScanExtent> {
        let now = Instant::now();
        self.waiting = std::mem::take(&mut self.waiting_again);
        let took = self.running.take().filter(|running| !running.is_whole).map(|running| now - running.start);
        match took {
            Some(took) if matches!(self.again, Some(ScanExtent::Removals(_))) => {
                self.due = Some(now + took.min(LONGEST_REST));
                None
            }
            _ => {
                self.due = Some(now + period);
                self.again.take()
            }
        }
    }

    /// True if a thread is at work that is not late, or will be at once.
    pub(super) fn is_at_work(&self) -> bool {
        self.again.is_some() || self.running.as_ref().is_some_and(|running| running.deadline.is_some())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn removal(devpath: &str) -> ScanExtent {
        ScanExtent::Removals([devpath.to_owned()].into())
    }

    /// A backend whose look after a removal took so long, and of which another device went meanwhile.
    async fn after_a_look_of(took: Duration) -> ScanState {
        let mut scan = ScanState::every(HOUR);
        assert_eq!(scan.ask(removal("/devices/z"), None, HOUR), Some(removal("/devices/z")));
        advance(took).await;
        assert_eq!(scan.ask(removal("/devices/a"), None, HOUR), None);
        assert_eq!(scan.answered(HOUR), None, "it rests");
        scan
    }

    #[tokio::test(start_paused = true)]
    async fn between_looks_at_what_went_a_backend_rests_for_as_long_as_the_last_one_took() {
        for (took, rest) in [(20 * MS, 20 * MS), (HOUR, LONGEST_REST)] {
            let mut scan = after_a_look_of(took).await;
            assert_eq!((scan.next(), scan.is_at_work()), (Some(Instant::now() + rest), true));
            advance(rest - MS).await;
            assert!(!scan.is_due(Instant::now()));
            assert_eq!(scan.ask(removal("/devices/b"), None, HOUR), None, "it rests still");
            advance(MS).await;
            assert!(scan.is_due(Instant::now()));
            let extent = scan.due_extent();
            assert_eq!(extent, removal("/devices/a").and(removal("/devices/b")));
            assert_eq!(scan.ask(extent.clone(), None, HOUR), Some(extent));
            assert_eq!((scan.answered(HOUR), scan.next()), (None, Some(Instant::now() + HOUR)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_at_everything_waits_for_no_rest_and_sees_what_went() {
        let mut scan = after_a_look_of(20 * MS).await;
        assert_eq!(scan.ask(ScanExtent::Whole, None, HOUR), Some(ScanExtent::Whole));
        assert_eq!(scan.ask(removal("/devices/c"), None, HOUR), None);
        assert_eq!(scan.ask(ScanExtent::Whole, None, HOUR), None);
        assert_eq!(scan.answered(HOUR), Some(ScanExtent::Whole));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_look_at_everything_no_removal_waits() {
        let mut scan = ScanState::every(HOUR);
        assert_eq!(scan.ask(ScanExtent::Whole, None, HOUR), Some(ScanExtent::Whole));
        advance(20 * MS).await;
        assert_eq!(scan.ask(removal("/devices/a"), None, HOUR), None);
        assert_eq!(scan.answered(HOUR), Some(removal("/devices/a")));
    }
}
