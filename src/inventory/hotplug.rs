//! Listens to uevents on a thread of its own and turns bursts of them into rescans.

use std::{io, sync::mpsc as std_mpsc, time::Instant};

use hostler_linux::uevent::{self, StopSignal, UeventCoalescer, UeventMonitor, UeventSource};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::{hints::UeventInterests, task::ScanRequest};
use crate::tasks::Tasks;

/// Parts of the listener to uevents.
#[derive(Debug)]
pub struct HotplugParts {
    /// Sender of the events.
    pub source: UeventSource,
    /// Time to collect.
    pub quiet: uevent::QuietPeriod,
    /// Words of events that are not dropped.
    pub interests: UeventInterests,
    /// Channel on which rescans are asked for.
    pub requests_tx: mpsc::Sender<ScanRequest>,
}

/// Subscribes to the host's uevents and asks for rescans from then on. Events after the return are not missed.
/// Blocking, for a moment.
///
/// # Errors
/// When no subscription can be had, in a sandbox for example. Only the timed rescan notices changes then.
pub fn listen(parts: HotplugParts, tasks: &Tasks) -> io::Result<()> {
    let (stop_handle, stop_signal) = uevent::stop_pair()?;
    let (opened_tx, opened_rx) = std_mpsc::channel();
    let (source, stop) = (parts.source, tasks.stop_token());
    // libudev's objects belong to one thread, and a blocking wait needs one anyway.
    let running = tasks.blocking(move || {
        run(&parts, stop_signal, &opened_tx);
        if stop.is_cancelled() { Ok(()) } else { Err("the socket failed".into()) }
    });
    opened_rx.recv().unwrap_or_else(|_| Err(io::Error::other("the listener ended before it began")))?;
    info!(source = ?source, "listening to uevents");
    tasks.blocking_service("uevents", running);
    let stop = tasks.stop_token();
    tasks.job(async move {
        stop.cancelled().await;
        drop(stop_handle);
    });
    Ok(())
}

fn run(parts: &HotplugParts, stop: StopSignal, opened_tx: &std_mpsc::Sender<io::Result<()>>) {
    let (monitor, answer) = match UeventMonitor::open(parts.source, stop) {
        Ok(monitor) => (Some(monitor), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // The other end waits for exactly this.
    let _ = opened_tx.send(answer);
    let mut coalescer = UeventCoalescer::new(parts.quiet);
    while let Some(monitor) = monitor.as_ref().filter(|monitor| !monitor.is_stopped()) {
        match monitor.wait(coalescer.due_in(Instant::now())) {
            Ok(events) => {
                let now = Instant::now();
                let wanted = events.into_iter().flat_map(|event| parts.interests.words(event));
                wanted.for_each(|event| coalescer.push(&event, now));
            }
            Err(error) => {
                warn!(error = %error, "uevent socket failed");
                return;
            }
        }
        let Some(due) = coalescer.take(Instant::now()) else { continue };
        debug!(rescan = ?due, "uevents ask for a rescan");
        // Fails only when the inventory task is gone, and the daemon with it.
        if parts.requests_tx.blocking_send(due.into()).is_err() {
            return;
        }
    }
}
