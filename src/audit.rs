//! Audit of the binding of containers to what their claims say: not only when they are made, but as long as they run.
//!
//! ```text
//!   claim table, notes ──► intent (pure) ┐
//!                                        ├──► history (pure) ──► put back, read again ──► table, news, figures
//!   cgroups ─────────────► standing ─────┘              └──► left alone: degraded
//!   the runtime's containers ──► pool: those without CPUs of a claim, on CPUs of one ──► put back
//! ```
//!
//! Containers are looked at every some seconds, and at once when a program writes into a container's cgroup. The
//! audit looks at the cgroup, never at a program: a program may narrow itself. A container is touched only while its
//! own first process is seen in its own cgroup; nothing outside of that cgroup is ever written.
//!
//! Writer of the [`AuditTable`]: [`task`]. Readers: the command line, and the code that tells the API server of claims.

mod cause;
mod history;
mod intent;
mod pass;
mod pool;
mod task;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use hostler_api::{ClaimRef, ClaimUid};
use hostler_linux::SysRoot;
use tokio::sync::{broadcast, watch};

use crate::{
    claims::ClaimTable,
    containers::{ContainerDir, seen::SeenReader},
    metrics::Metrics,
    tasks::Tasks,
};

pub use pass::{AuditLook, Auditor};

/// Parts that the audit works with.
#[derive(Debug)]
pub struct AuditParts {
    /// The machine.
    pub root: SysRoot,
    /// The containers that the runtime tells of, those of the shared pool among them.
    pub seen_rx: SeenReader,
    /// Claims, with what they bind containers to.
    pub table_rx: watch::Receiver<Arc<ClaimTable>>,
    /// Notes of the containers that run with claims.
    pub containers: ContainerDir,
    /// The kubelet's folder: its own bindings there tell if the kubelet was the one that changed a container.
    pub kubelet: PathBuf,
    /// Period of the passes over all containers; `None` for never.
    pub period: Option<Duration>,
    /// Counters of the findings.
    pub metrics: Metrics,
}

/// A finding of the audit about a container.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditRemark {
    /// The container's id.
    pub container: String,
    /// True if the container is not bound as its claims say; else that cannot be told.
    pub degraded: bool,
    /// The fault, in words.
    pub text: String,
}

/// Faults of the binding of containers; nothing where all is well.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AuditTable {
    /// Remarks by claim; a container with several claims is listed with each of them.
    pub remarks: BTreeMap<ClaimUid, Vec<AuditRemark>>,
}

impl AuditTable {
    /// Reasons why a claim is not what was promised.
    pub fn degraded(&self, claim: &ClaimUid) -> Option<String> {
        let texts = self.texts(claim, true);
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Returns the containers of a claim of which that cannot be told.
    pub fn unseen(&self, claim: &ClaimUid) -> Vec<String> {
        self.texts(claim, false)
    }

    fn texts(&self, claim: &ClaimUid, degraded: bool) -> Vec<String> {
        let remarks = self.remarks.get(claim).into_iter().flatten().filter(|remark| remark.degraded == degraded);
        remarks.map(|remark| format!("container {}: {}", remark.container, remark.text)).collect()
    }
}

/// Reads the latest table. Cheap to clone.
pub type AuditReader = watch::Receiver<Arc<AuditTable>>;

/// A change in how a claim's container is bound.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditNews {
    /// The claim.
    pub claim: ClaimRef,
    /// Name of the change; see [`crate::metrics`] for all of them.
    pub reason: &'static str,
    /// The change in full words.
    pub message: String,
    /// Time of the change.
    pub at: SystemTime,
}

/// News that wait for a reader at most; later ones are in the log all the same. The room for them is there from the start,
/// so it is for pointers.
const NEWS: usize = 256;

/// Access to the audit's findings. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditHandle {
    table_rx: AuditReader,
    news_tx: broadcast::Sender<Arc<AuditNews>>,
}

impl AuditHandle {
    /// Table of the present faults.
    pub fn table(&self) -> AuditReader {
        self.table_rx.clone()
    }

    /// News from now on.
    pub fn news(&self) -> broadcast::Receiver<Arc<AuditNews>> {
        self.news_tx.subscribe()
    }
}

/// The audit before it has begun, so that tasks that report its news can subscribe first.
#[derive(Debug)]
pub struct WaitingAudit {
    parts: AuditParts,
    table_tx: watch::Sender<Arc<AuditTable>>,
    news_tx: broadcast::Sender<Arc<AuditNews>>,
}

impl WaitingAudit {
    /// Makes the audit, which has read nothing yet.
    pub fn new(parts: AuditParts) -> Self {
        Self { parts, table_tx: watch::Sender::default(), news_tx: broadcast::Sender::new(NEWS) }
    }

    /// Handle for readers.
    pub fn handle(&self) -> AuditHandle {
        AuditHandle { table_rx: self.table_tx.subscribe(), news_tx: self.news_tx.clone() }
    }

    /// Starts the audit. Changes from before the start are found and reverted now.
    pub fn start(self, tasks: &Tasks) {
        task::start(self, tasks);
    }
}
