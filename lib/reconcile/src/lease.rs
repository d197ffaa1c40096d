//! Leader election: of several controllers only the one that holds the Lease writes. The others read, answer, and name the leader.
//!
//! ```text
//!   get ──► another holder's, and it changed lately ──► wait ──► get …
//!    │ without a holder, or not seen to change for as long as it says
//!    ▼
//!   write ──► lead, at most 10 s from when that write was sent ──► write again after 5 s …
//!    └ refused: get                └ told to stop: give it back
//! ```
//!
//! Time is this process's own monotonic clock, never the times in the object: clocks of hosts differ. A process that was stopped and
//! goes on finds that its term is over before it writes; a write that it had sent already names a version that is gone by then.

mod decision;
mod object;

use std::{sync::Arc, time::Duration};

use hostler_api::Chain;
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use hostler_process::Tasks;
use tokio::{
    sync::watch,
    time::{sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::object::Lease;

pub use self::decision::{LeaseCommand, LeaseCore, LeaseEvent, LeaseRecord, SeenLease};

/// Time limit of a call for the Lease: two of them fit into the time for which a leader relies on its last renewal.
const CALL_TIME: Duration = Duration::from_secs(4);

/// The leader, as this process knows it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Leadership {
    /// Holder of the Lease, as far as one was seen.
    pub holder: Option<Arc<str>>,
    /// End of this process's term, unless it renews.
    pub until: Option<std::time::Instant>,
    /// Reason why the Lease cannot be read or written.
    pub trouble: Option<Arc<str>>,
    /// Time by the API server's clock, said with the last renewal.
    pub server_time: Option<ServerTime>,
}

/// Time by the API server's clock, and the moment at which it was heard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServerTime {
    /// Since 1970.
    said: Duration,
    heard: std::time::Instant,
}

impl ServerTime {
    /// Returns the time since 1970; never later than the API server's clock.
    pub fn now(self) -> Duration {
        self.said + self.heard.elapsed()
    }
}

impl Leadership {
    /// True if this process leads now. Asked before every write.
    pub fn is_ours(&self, now: std::time::Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// A candidate of the election.
#[derive(Debug)]
pub struct LeaderElection {
    /// Connection to the API server that no watch can hold up.
    pub client: ApiClient,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of this process; no other process has it.
    pub identity: String,
}

/// Campaigns until the process stops, and gives the Lease back then.
pub fn campaign(parts: LeaderElection, tasks: &Tasks) -> watch::Receiver<Leadership> {
    let (leadership_tx, leadership_rx) = watch::channel(Leadership::default());
    let core = LeaseCore::new(&parts.identity, std::time::Instant::now());
    let leases = Collection::custom("coordination.k8s.io", "v1", "Lease", "leases").of(&parts.namespace);
    let (last, trouble, server_time) = (Lease::default(), None, None);
    let candidate = Candidate { parts, leases, core, last, trouble, server_time, leadership_tx };
    let stop = tasks.stop_token();
    tasks.service("lead", async move {
        candidate.run(stop).await;
        Ok(())
    });
    leadership_rx
}

/// The edge between [`LeaseCore`] and the API server.
struct Candidate {
    parts: LeaderElection,
    leases: Collection,
    core: LeaseCore,
    /// Lease as it was read or written last: fields of others are written back unchanged.
    last: Lease,
    trouble: Option<Arc<str>>,
    server_time: Option<ServerTime>,
    leadership_tx: watch::Sender<Leadership>,
}

impl Candidate {
    async fn run(mut self, stop: CancellationToken) {
        let mut command = None;
        while !stop.is_cancelled() {
            let event = match command {
                Some(command) => self.execute(command).await,
                None => tokio::select! {
                    // Cancel safe: it only waits.
                    () = sleep_until(self.core.due().into()) => LeaseEvent::Due,
                    // Cancel safe: the token stays cancelled.
                    () = stop.cancelled() => break,
                },
            };
            command = self.core.step(std::time::Instant::now(), event);
            self.tell();
        }
        // Another candidate can begin at once. Where that fails, it waits until the Lease has not been renewed for its time.
        if let Some(command) = self.core.step(std::time::Instant::now(), LeaseEvent::Stop) {
            match self.execute(command).await {
                LeaseEvent::Written(_) => info!("the lease is given back"),
                _ => info!("the lease could not be given back; it ends by itself"),
            }
        }
    }

    async fn execute(&mut self, command: LeaseCommand) -> LeaseEvent {
        let calling = async {
            match command {
                LeaseCommand::Read => self.read().await,
                LeaseCommand::Write { over, record, is_new_term } => self.write(over, &record, is_new_term).await,
            }
        };
        match timeout(CALL_TIME, calling).await {
            Ok(Ok(event)) => {
                self.trouble = None;
                event
            }
            Ok(Err(failure)) => self.failed(Chain(&failure).to_string()),
            Err(_) => self.failed(format!("no answer about the lease within {} s", CALL_TIME.as_secs())),
        }
    }

    async fn read(&mut self) -> Result<LeaseEvent, ApiFailure> {
        match self.parts.client.get::<Lease>(&self.leases, &self.parts.name).await {
            Ok(lease) => {
                self.last = lease;
                Ok(LeaseEvent::Read(Some(self.last.seen())))
            }
            Err(failure) if failure.code() == Some(404) => {
                self.last = Lease::default();
                Ok(LeaseEvent::Read(None))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn write(
        &mut self,
        over: Option<String>,
        record: &LeaseRecord,
        is_new_term: bool,
    ) -> Result<LeaseEvent, ApiFailure> {
        let LeaderElection { client, name, namespace, .. } = &self.parts;
        let is_over = over.is_some();
        let lease = self.last.written(namespace, name, over.as_deref(), record, is_new_term);
        let written = match over {
            Some(_) => client.replace(&self.leases, name, &lease).await,
            None => client.create(&self.leases, name, &lease).await,
        };
        match written {
            Ok(lease) => {
                self.last = lease;
                let heard = std::time::Instant::now();
                self.server_time = self.last.written_at().map(|said| ServerTime { said, heard });
                Ok(LeaseEvent::Written(self.last.seen()))
            }
            // Another candidate wrote or deleted it meanwhile. Where it was to be created, the missing object is its namespace.
            Err(failure) if failure.code() == Some(409) || (failure.code() == Some(404) && is_over) => {
                debug!(error = %Chain(&failure), "the lease is another one by now");
                Ok(LeaseEvent::Refused)
            }
            Err(failure) => Err(failure),
        }
    }

    fn failed(&mut self, error: String) -> LeaseEvent {
        if self.trouble.as_deref() != Some(&*error) {
            warn!(error, "the lease cannot be read or written");
        }
        self.trouble = Some(error.into());
        LeaseEvent::Failed
    }

    /// Publishes the leader, and logs changes.
    fn tell(&mut self) {
        let now = std::time::Instant::now();
        let leadership = Leadership { server_time: self.server_time, ..self.core.leadership(self.trouble.clone()) };
        let before = self.leadership_tx.send_replace(leadership.clone());
        match (before.is_ours(now), leadership.is_ours(now)) {
            (false, true) => info!(identity = self.parts.identity, "this controller leads"),
            (true, false) => warn!(holder = leadership.holder.as_deref(), "this controller does not lead any more"),
            (false, false) if before.holder != leadership.holder => {
                info!(holder = leadership.holder.as_deref(), "another controller leads");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
