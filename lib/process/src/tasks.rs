//! The only place that spawns: a service that ends, ends the daemon; a job is waited for at shutdown.

use std::{error::Error, future::Future};

use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

/// Result of a service.
pub type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// A service that has ended.
#[derive(Debug)]
pub struct EndedService {
    /// Name of the service.
    pub name: &'static str,
    /// Result of the service.
    pub outcome: Outcome,
}

/// Spawns tasks and stops them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    ended_tx: mpsc::UnboundedSender<EndedService>,
}

impl Tasks {
    /// A new set, and the channel on which ended services arrive.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<EndedService>) {
        // Unbounded: one message per service in the life of the daemon.
        let (ended_tx, ended_rx) = mpsc::unbounded_channel();
        (Self { tracker: TaskTracker::new(), stop: CancellationToken::new(), ended_tx }, ended_rx)
    }

    /// Spawns a part of the daemon that runs until [`Tasks::stop_token`] fires. Its end, good or bad, is reported.
    pub fn service(&self, name: &'static str, service: impl Future<Output = Outcome> + Send + 'static) {
        let ended_tx = self.ended_tx.clone();
        let run = async move {
            let outcome = service.await;
            // The receiver is gone only when the daemon is already on its way out.
            let _ = ended_tx.send(EndedService { name, outcome });
        };
        self.tracker.spawn(run.instrument(tracing::info_span!("task", name)));
    }

    /// Adopts a service like [`Tasks::service`], on a thread of its own. It was begun with [`Tasks::blocking`], so
    /// that it can first tell its starter that it could not begin, and is no service then.
    pub fn blocking_service(&self, name: &'static str, running: JoinHandle<Outcome>) {
        self.service(name, async move { running.await? });
    }

    /// Spawns work that comes to an end by itself. It is finished even if its caller has gone.
    pub fn job<T: Send + 'static>(&self, job: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.tracker.spawn(job.in_current_span())
    }

    /// Runs blocking work (sysfs, fsync, ioctl) on a blocking thread.
    pub fn blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let span = tracing::Span::current();
        self.tracker.spawn_blocking(move || span.in_scope(work))
    }

    /// Runs blocking work like [`Tasks::blocking`], but a stop does not wait for it: it changes nothing, or the next
    /// start does it again.
    pub fn looking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let span = tracing::Span::current();
        tokio::task::spawn_blocking(move || span.in_scope(work))
    }

    /// Fires when the daemon stops.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until everything that was spawned has ended.
    pub async fn drain(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_service_is_reported_with_its_name() {
        let (tasks, mut ended_rx) = Tasks::new();
        tasks.service("listener", async { Err("socket closed".into()) });
        let ended = ended_rx.recv().await.unwrap();
        assert_eq!(ended.name, "listener");
        assert_eq!(ended.outcome.unwrap_err().to_string(), "socket closed");
    }

    #[tokio::test]
    async fn the_end_of_a_service_on_a_thread_is_reported_with_its_name() {
        let (tasks, mut ended_rx) = Tasks::new();
        tasks.blocking_service("uevents", tasks.blocking(|| Err("socket closed".into())));
        let ended = ended_rx.recv().await.unwrap();
        assert_eq!((ended.name, ended.outcome.unwrap_err().to_string().as_str()), ("uevents", "socket closed"));
    }

    #[tokio::test]
    async fn a_job_finishes_although_nobody_waits_for_it() {
        let (tasks, _ended_rx) = Tasks::new();
        let (done_tx, mut done_rx) = mpsc::unbounded_channel();
        drop(tasks.job(async move { done_tx.send(1) }));
        tasks.drain().await;
        assert_eq!(done_rx.recv().await, Some(1));
    }
}
