//! How far the scan of one backend is, and who waits for it. Pure but for the answers to those who wait.
//!
//! ```text
//!   idle ── due, or asked for ──► running ── answer ──► idle
//!                                    │ no answer in time: nobody waits for it any more
//!                                    └──► late ── answer, whenever it comes ──► idle
//! ```
//!
//! A backend is never asked a second question while it has not answered the first.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{sync::oneshot, time::Instant};

/// The state of one backend's scan.
#[derive(Default)]
pub(super) struct ScanState {
    /// Time from the end of a scan that found devices to the next one that nothing has asked for.
    pub(super) period: Duration,
    /// When that is; `None` before the first scan and while one is running.
    due: Option<Instant>,
    running: Option<RunningScan>,
    again: bool,
    /// Who waits for the scan that is running, and for the one after it.
    waiting: Vec<Arc<ScanWaiter>>,
    waiting_again: Vec<Arc<ScanWaiter>>,
}

struct RunningScan {
    since: SystemTime,
    /// When it is late; `None` once it is.
    deadline: Option<Instant>,
}

/// Answers when the last of several scans has let go of it.
pub(super) struct ScanWaiter(pub(super) Option<oneshot::Sender<()>>);

impl Drop for ScanWaiter {
    fn drop(&mut self) {
        // Whoever asked may have stopped waiting.
        self.0.take().map(|done_tx| done_tx.send(()));
    }
}

impl ScanState {
    /// One that nothing is due for before somebody asks.
    pub(super) fn every(period: Duration) -> Self {
        Self { period, ..Self::default() }
    }

    /// Whether to start a scan now, which may take so long. Where one is running, another follows it: what has changed may
    /// be behind the point that it has reached. Nobody waits behind one that is late.
    pub(super) fn ask(&mut self, done: Option<Arc<ScanWaiter>>, within: Duration) -> bool {
        match &self.running {
            Some(running) => {
                self.again = true;
                if running.deadline.is_some() {
                    self.waiting_again.extend(done);
                }
                false
            }
            None => {
                let deadline = Some(Instant::now() + within);
                self.running = Some(RunningScan { since: SystemTime::now(), deadline });
                self.due = None;
                self.waiting.extend(done);
                true
            }
        }
    }

    /// When there is something to do: a scan to be started, or one to be given up waiting for.
    pub(super) fn next(&self) -> Option<Instant> {
        self.running.as_ref().map_or(self.due, |running| running.deadline)
    }

    /// Whether a scan should be started that nothing has asked for.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Since when the scan is running, if it has just become late.
    pub(super) fn becomes_late(&mut self, now: Instant) -> Option<SystemTime> {
        let running = self.running.as_mut()?;
        running.deadline.take_if(|deadline| *deadline <= now).map(|_| running.since)
    }

    /// Lets everybody go who waits.
    pub(super) fn release(&mut self) {
        self.waiting.clear();
        self.waiting_again.clear();
    }

    /// The scan has answered; the next one that nothing asks for is due after `period`. Whether another one was asked for.
    pub(super) fn answered(&mut self, period: Duration) -> bool {
        self.running = None;
        self.due = Some(Instant::now() + period);
        self.waiting = std::mem::take(&mut self.waiting_again);
        std::mem::take(&mut self.again)
    }

    /// Whether a thread is at work that is not late.
    pub(super) fn is_at_work(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.deadline.is_some())
    }
}
