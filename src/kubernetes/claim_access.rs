//! The last word on whether the next prepare could read its claim. Every claim that is read gives one; where none is
//! for a while, the API server is asked for a claim that no pod has, as a prepare would ask.
//!
//! ```text
//!   unknown ──► asked at once ──► readable ── nothing was read for a minute ──► asked
//!                        └──► not readable: asked again after pauses that grow to half a minute
//! ```
//!
//! Slices that are published say nothing of that: a watch that stands outlives the token it was begun with. In clusters
//! up to 1.30 the kubelet says with its call what was allocated: prepares read nothing there, and no answer is a fault.

use std::{sync::Arc, time::Duration};

use hostler_api::Chain;
use hostler_cluster::Backoff;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use super::{
    ClusterNode,
    claim_reader::{ClaimReadError, ClaimReader},
};
use crate::tasks::Tasks;

/// A look is a small call of every node. Between 45 s and 75 s, so that the nodes of a cluster do not ask at once.
const PERIOD: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The claim that is asked for. One of that name would do as well.
const NAMESPACE: &str = "default";
const NAME: &str = "hostler-readiness-probe";
const UNKNOWN: &str = "no claim was read from the API server yet";

/// The last word on reading claims. Writers: all that read claims. Readers: readiness, the report of the node.
#[derive(Clone, Debug)]
pub struct ClaimAccess(Arc<watch::Sender<AccessWord>>);

/// The outcome of the last read, and when it came.
#[derive(Clone, Debug)]
struct AccessWord {
    state: AccessState,
    at: Instant,
    /// True if prepares read claims in this cluster.
    needed: bool,
}

impl AccessWord {
    fn fault(&self) -> Option<&str> {
        match &self.state {
            _ if !self.needed => None,
            AccessState::Unknown => Some(UNKNOWN),
            AccessState::Readable => None,
            AccessState::Unreadable(error) => Some(error),
        }
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum AccessState {
    Unknown,
    Readable,
    /// Not readable, and why.
    Unreadable(String),
}

impl Default for ClaimAccess {
    fn default() -> Self {
        let word = AccessWord { state: AccessState::Unknown, at: Instant::now(), needed: true };
        Self(Arc::new(watch::Sender::new(word)))
    }
}

impl ClaimAccess {
    /// Why it cannot be said that claims can be read; nothing if they can.
    pub(super) fn fault(&self) -> Option<String> {
        self.0.borrow().fault().map(str::to_owned)
    }

    /// Takes in whether prepares read claims in this cluster.
    pub(super) fn needed(&self, needed: bool) {
        self.0.send_if_modified(|last| std::mem::replace(&mut last.needed, needed) != needed);
    }

    /// For readers that wait for the next word.
    pub(super) fn subscribe(&self) -> ClaimAccessReader {
        ClaimAccessReader(self.0.subscribe())
    }

    /// Takes in what came of reading a claim.
    pub(super) fn heard<T>(&self, read: &Result<T, ClaimReadError>) {
        use ClaimReadError::{Api, Forbidden, Name, Stopping, Unauthorized, Unavailable};
        let state = match read {
            Err(error @ (Unauthorized(_) | Forbidden(_) | Unavailable(_))) => {
                AccessState::Unreadable(Chain(error).to_string())
            }
            // Something is wrong with this claim, or with the question.
            Err(Api(_) | Name(_) | Stopping) => return,
            Ok(_) | Err(_) => AccessState::Readable,
        };
        self.0.send_if_modified(|last| {
            let before = std::mem::replace(&mut last.state, state);
            last.at = Instant::now();
            match &last.state {
                state if *state == before => return false,
                AccessState::Unreadable(error) if last.needed => {
                    warn!(error, "claims cannot be read: new ones of this node cannot be prepared");
                }
                _ if before != AccessState::Unknown => info!("claims can be read again"),
                _ => {}
            }
            true
        });
    }

    /// The pause before the API server is asked, if no prepare reads a claim before.
    fn pause(&self, pauses: &mut Backoff) -> Duration {
        if self.0.borrow().fault().is_some() {
            return pauses.next_pause();
        }
        pauses.reset();
        PERIOD.mul_f64(0.75 + fastrand::f64() / 2.0)
    }

    fn was_readable_at(&self) -> Option<Instant> {
        let last = self.0.borrow();
        last.fault().is_none().then_some(last.at)
    }
}

/// One reader of the last word.
#[derive(Debug)]
pub(super) struct ClaimAccessReader(watch::Receiver<AccessWord>);

impl ClaimAccessReader {
    /// Comes back when there is another word. Cancel safe.
    pub(super) async fn changed(&mut self) {
        // There is a writer for as long as the daemon runs.
        let _ = self.0.changed().await;
    }

    /// Why claims could not be read when that was last tried.
    pub(super) fn latest_fault(&mut self) -> Option<String> {
        let last = self.0.borrow_and_update();
        last.fault().filter(|_| last.state != AccessState::Unknown).map(str::to_owned)
    }
}

/// Looks ever so often, through `reader`, until the daemon stops.
pub fn start(reader: ClaimReader, cluster: &ClusterNode, tasks: &Tasks) {
    let (access, stop) = (cluster.claim_access().clone(), tasks.stop_token());
    tasks.service("claim access", async move {
        tokio::select! {
            // Reads only: it can be dropped anywhere.
            () = look(reader, access) => Ok(()),
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => Ok(()),
        }
    });
}

async fn look(reader: ClaimReader, access: ClaimAccess) {
    let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut word = access.subscribe();
    loop {
        // What came of it is taken in where all claims are read.
        let _ = reader.find(NAMESPACE, NAME).await;
        let _ = word.latest_fault();
        let pause = access.pause(&mut pauses);
        tokio::select! {
            () = sleep(pause) => {}
            // Another reader failed, or can read again.
            () = word.changed() => {}
        }
        while let Some(at) = access.was_readable_at().filter(|at| *at + pause > Instant::now()) {
            sleep_until(at + pause).await;
        }
    }
}
