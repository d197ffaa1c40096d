//! From the start to the end: what ends the daemon, and what is finished before it goes.
//!
//! ```text
//!   start ──► calls come through: promised ──► started ──► a signal, or a part has ended
//!     │ signal                      │ signal                   │
//!     ▼                             └──────────────┬───────────┘
//!   exit, the next start recovers                  ▼
//!             successor registered ► parts stop ► calls in flight finish ► exit   (a second signal: at once)
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use hostler_api::Chain;
use hostler_process::{StopSignals, notify::stopping};
use tokio::sync::mpsc;
use tracing::{error, info};

use super::DaemonError;
use crate::{
    config::KubeletSocketPaths,
    kubelet,
    tasks::{EndedService, Tasks},
};

/// Parts that decide about the daemon's end.
pub(super) struct DaemonLife {
    pub(super) signals: StopSignals,
    pub(super) ended_rx: mpsc::UnboundedReceiver<EndedService>,
    pub(super) kubelet_sockets: Option<KubeletSocketPaths>,
    pub(super) tasks: Tasks,
}

impl DaemonLife {
    /// Starts the daemon, waits for its end and stops it. `promised` is true once others rely on it.
    pub(super) async fn lead(
        mut self,
        starting: impl Future<Output = Result<(), DaemonError>>,
        promised: &AtomicBool,
    ) -> Result<(), DaemonError> {
        let result = tokio::select! {
            // Dropped when a signal comes first: a restart starts the rest.
            started = starting => match started {
                Ok(()) => self.end().await,
                Err(error) => Err(error),
            },
            () = self.signals.recv() => Ok(()),
        };
        if promised.load(Ordering::Relaxed) {
            return self.stop(result).await;
        }
        // Work under way was not asked for by a caller, and may be stuck: recovery sees to it.
        self.tasks.stop_token().cancel();
        result
    }

    async fn end(&mut self) -> Result<(), DaemonError> {
        tokio::select! {
            // Cancel safe: a message that was not taken stays in the channel; a signal is remembered.
            Some(EndedService { name, outcome }) = self.ended_rx.recv() => {
                Err(DaemonError::Ended { name, source: outcome.err() })
            }
            () = self.signals.recv() => Ok(()),
        }
    }

    async fn stop(mut self, result: Result<(), DaemonError>) -> Result<(), DaemonError> {
        match &result {
            Ok(()) => info!("stopping"),
            Err(error) => error!(error = %Chain(error), "stopping, since the daemon cannot go on"),
        }
        stopping();
        if let Some(sockets) = self.kubelet_sockets.filter(|_| result.is_ok()) {
            tokio::select! {
                // Cancel safe: it only waits.
                () = kubelet::hand_over(&sockets) => {}
                // Cancel safe: a signal that was not taken is still pending.
                () = self.signals.recv() => return Err(DaemonError::Impatient),
            }
        }
        self.tasks.stop_token().cancel();
        tokio::select! {
            () = self.tasks.drain() => result,
            () = self.signals.recv() => Err(DaemonError::Impatient),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::{Arc, atomic::AtomicUsize},
    };

    use nix::sys::signal::{Signal, raise};

    use super::*;

    /// A start in which a call comes and then a signal; gives how many calls were finished.
    async fn calls_finished_by_a_start(promises: bool) -> usize {
        let (tasks, ended_rx) = Tasks::new();
        let (finished, promised) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
        let call = {
            let (finished, stop) = (finished.clone(), tasks.stop_token());
            async move {
                stop.cancelled().await;
                finished.fetch_add(1, Ordering::Relaxed);
            }
        };
        let life =
            DaemonLife { signals: StopSignals::new().unwrap(), ended_rx, kubelet_sockets: None, tasks: tasks.clone() };
        let starting = async {
            promised.store(promises, Ordering::Relaxed);
            drop(tasks.job(call));
            raise(Signal::SIGTERM).unwrap();
            pending().await
        };
        life.lead(starting, &promised).await.unwrap();
        finished.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn a_signal_in_a_start_lets_calls_finish_as_soon_as_there_can_be_any() {
        assert_eq!(calls_finished_by_a_start(true).await, 1);
        assert_eq!(calls_finished_by_a_start(false).await, 0);
    }
}
