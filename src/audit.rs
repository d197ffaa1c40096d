//! Whether containers are bound to what their claims say: not only when they are made, but as long as they run.
//!
//! ```text
//!   claim table, notes ──► intent (pure) ┐
//!                                        ├──► history (pure) ──► put back, read again ──► table, news, figures
//!   cgroups ─────────────► standing ─────┘              └──► left alone: degraded
//!   the runtime's containers ──► pool: those without CPUs of a claim, on CPUs of one ──► put back
//! ```
//!
//! Looked at every some seconds, and at once when somebody writes into a container's cgroup. What is looked at is the
//! cgroup, never a program: who narrows itself may. A container is touched only while its own first process is seen in
//! its own cgroup; nothing outside of that cgroup is ever written.
//!
//! Writer of the [`AuditTable`]: [`task`]. Readers: the command line, and what tells the API server of claims.

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

/// What the audit works with.
#[derive(Debug)]
pub struct AuditParts {
    /// The machine.
    pub root: SysRoot,
    /// The containers that the runtime tells of, those of the shared pool among them.
    pub seen_rx: SeenReader,
    /// What claims are bound to.
    pub table_rx: watch::Receiver<Arc<ClaimTable>>,
    /// Which containers run with them.
    pub containers: ContainerDir,
    /// The kubelet's folder: what it says that it binds containers to tells whether it was the one who changed them.
    pub kubelet: PathBuf,
    /// How often all containers are looked at; `None` for never.
    pub period: Option<Duration>,
    /// Counts what is found.
    pub metrics: Metrics,
}

/// Something that the audit says of a container.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditRemark {
    /// The container's id.
    pub container: String,
    /// Whether it is not bound as its claims say; else it only cannot be told.
    pub degraded: bool,
    /// What is wrong, in words.
    pub text: String,
}

/// What is wrong with how containers are bound; nothing where all is well.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AuditTable {
    /// By claim; a container with several claims is with each of them.
    pub remarks: BTreeMap<ClaimUid, Vec<AuditRemark>>,
}

impl AuditTable {
    /// What keeps a claim from being what was promised.
    pub fn degraded(&self, claim: &ClaimUid) -> Option<String> {
        let texts = self.texts(claim, true);
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// The containers of a claim of which it cannot be told.
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

/// Something that has happened to how a claim's container is bound.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditNews {
    /// The claim.
    pub claim: ClaimRef,
    /// In one word; see [`crate::metrics`] for all of them.
    pub reason: &'static str,
    /// In all words.
    pub message: String,
    /// When.
    pub at: SystemTime,
}

/// News that nobody reads in time are in the log all the same.
const NEWS: usize = 256;

/// Where the audit's words can be read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditHandle {
    table_rx: AuditReader,
    news_tx: broadcast::Sender<AuditNews>,
}

impl AuditHandle {
    /// What is wrong now.
    pub fn table(&self) -> AuditReader {
        self.table_rx.clone()
    }

    /// What happens from now on.
    pub fn news(&self) -> broadcast::Receiver<AuditNews> {
        self.news_tx.subscribe()
    }
}

/// The audit before it has begun, so that those who tell of it can listen first.
#[derive(Debug)]
pub struct WaitingAudit {
    parts: AuditParts,
    table_tx: watch::Sender<Arc<AuditTable>>,
    news_tx: broadcast::Sender<AuditNews>,
}

impl WaitingAudit {
    /// Everything is ready, and nothing was looked at.
    pub fn new(parts: AuditParts) -> Self {
        Self { parts, table_tx: watch::Sender::default(), news_tx: broadcast::Sender::new(NEWS) }
    }

    /// For readers.
    pub fn handle(&self) -> AuditHandle {
        AuditHandle { table_rx: self.table_tx.subscribe(), news_tx: self.news_tx.clone() }
    }

    /// Begins. What has happened while nobody looked is found and mended now.
    pub fn start(self, tasks: &Tasks) {
        task::start(self, tasks);
    }
}
