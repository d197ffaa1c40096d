//! State of the scan of one backend, and the callers that wait for it. Pure but for the answers to those callers.
//!
//! ```text
//!   idle ── due, or asked for ──► running ── answer ──► idle
//!                                    │ no answer in time: callers no longer wait for it
//!                                    └──► late ── answer, whenever it comes ──► idle
//! ```
//!
//! A backend is never asked a second question while it has not answered the first.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{sync::oneshot, time::Instant};

/// The state of one backend's scan.
#[derive(Default)]
pub(super) struct ScanState {
    /// Time from the end of a scan that found devices to the next one that nothing has asked for.
    pub(super) period: Duration,
    /// Time of that next scan; `None` before the first scan and while one is running.
    due: Option<Instant>,
    running: Option<RunningScan>,
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
    /// What these devices that went can have touched.
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
        match &self.running {
            Some(running) => {
                self.again = Some(match self.again.take() {
                    Some(again) => again.and(extent),
                    None => extent,
                });
                if running.deadline.is_some() {
                    self.waiting_again.extend(done);
                }
                None
            }
            None => {
                let deadline = Some(Instant::now() + within);
                self.running = Some(RunningScan { since: SystemTime::now(), deadline });
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

    /// True if a scan should be started that nothing has asked for.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
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
    /// asked for meanwhile.
    pub(super) fn answered(&mut self, period: Duration) -> Option<ScanExtent> {
        self.running = None;
        self.due = Some(Instant::now() + period);
        self.waiting = std::mem::take(&mut self.waiting_again);
        self.again.take()
    }

    /// True if a thread is at work that is not late.
    pub(super) fn is_at_work(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.deadline.is_some())
    }
}
