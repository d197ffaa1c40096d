//! Keeps the latest [`NodePodUsage`]: joined anew when a reader asks and an input has changed, never before.
//!
//! Writer: the task here. Readers: all reports on pods, through [`PodUsageReader`]. Notes of containers are files whose
//! changes are not announced: they are read when a reader asks and the last look is old.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hostler_api::Chain;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tracing::debug;

use super::{ContainerNotes, NodePodUsage, PodUsageFacts};
use crate::{
    claims::{ClaimTable, ClaimsHandle},
    containers::{
        ContainerDir,
        seen::{SeenContainers, SeenReader},
    },
    inventory::{Inventory, task::InventoryHandle},
    pods::{PodsOfNode, PodsReader},
    tasks::Tasks,
};

/// Greatest age of a read of the notes. It reads a file or two of each container; a reader that asks a hundred
/// times a second pays for it in one answer of two hundred.
const NOTES_AGE: Duration = Duration::from_secs(2);
/// Questions that may wait: each is answered within milliseconds.
const QUEUE: usize = 64;

/// Sources of the join.
#[derive(Debug)]
pub struct PodUsageParts {
    /// This node's pods.
    pub pods_rx: PodsReader,
    /// Containers of a runtime.
    pub seen_rx: SeenReader,
    /// Records, and the folder of notes of containers.
    pub claims: ClaimsHandle,
    /// Devices and backends.
    pub inventory: InventoryHandle,
}

/// Reads the usage by pods. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PodUsageReader(mpsc::Sender<oneshot::Sender<Arc<NodePodUsage>>>);

impl PodUsageReader {
    /// Returns the present usage by pods: the same value as before, at the same address, if nothing has changed.
    /// `None` when the daemon stops.
    pub async fn latest(&self) -> Option<Arc<NodePodUsage>> {
        let (answer_tx, answer_rx) = oneshot::channel();
        self.0.send(answer_tx).await.ok()?;
        answer_rx.await.ok()
    }
}

/// Starts the task.
pub fn start(parts: PodUsageParts, tasks: &Tasks) -> PodUsageReader {
    let (questions_tx, questions_rx) = mpsc::channel(QUEUE);
    let usage = UsageTask {
        pods_rx: parts.pods_rx,
        seen_rx: parts.seen_rx,
        table_rx: parts.claims.table(),
        inventory_rx: parts.inventory.reader().subscribe(),
        claims: parts.claims,
        inventory: parts.inventory,
        notes: Arc::default(),
        looked: None,
        usage: None,
        tasks: tasks.clone(),
    };
    tasks.service("pod usage", usage.run(questions_rx));
    PodUsageReader(questions_tx)
}

struct UsageTask {
    pods_rx: PodsReader,
    seen_rx: SeenReader,
    table_rx: watch::Receiver<Arc<ClaimTable>>,
    inventory_rx: watch::Receiver<Arc<Inventory>>,
    claims: ClaimsHandle,
    inventory: InventoryHandle,
    notes: Arc<ContainerNotes>,
    /// Time of the last read of the notes.
    looked: Option<Instant>,
    usage: Option<Arc<NodePodUsage>>,
    tasks: Tasks,
}

/// Inputs of one join.
struct JoinInputs {
    pods: PodsOfNode,
    seen: SeenContainers,
    claims: Arc<ClaimTable>,
    inventory: Arc<Inventory>,
}

impl UsageTask {
    async fn run(
        mut self,
        mut questions_rx: mpsc::Receiver<oneshot::Sender<Arc<NodePodUsage>>>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let stop = self.tasks.stop_token();
        // Cancel safe: a question that was not taken is dropped with the channel, which the asker sees.
        while let Some(Some(answer_tx)) = stop.run_until_cancelled(questions_rx.recv()).await {
            self.look_at_notes().await;
            let usage = match self.usage.take().filter(|_| !self.is_old()) {
                Some(usage) => usage,
                None => self.join().await?,
            };
            self.usage = Some(usage.clone());
            // The asker may have stopped waiting.
            drop(answer_tx.send(usage));
        }
        Ok(())
    }

    /// Returns true if an input has changed. A sender that has gone brings no changes.
    fn is_old(&self) -> bool {
        self.pods_rx.has_changed().unwrap_or(false)
            || self.seen_rx.has_changed().unwrap_or(false)
            || self.table_rx.has_changed().unwrap_or(false)
            || self.inventory_rx.has_changed().unwrap_or(false)
    }

    /// Reads which containers run, if the last read is old. A different answer makes the join old.
    async fn look_at_notes(&mut self) {
        if self.looked.is_some_and(|looked| looked.elapsed() < NOTES_AGE) {
            return;
        }
        let (table, containers) = (self.table_rx.borrow().clone(), self.claims.containers().clone());
        let looked = self.tasks.looking(move || running(&table, &containers)).await;
        // A read that broke off leaves the known notes.
        let Ok(notes) = looked else { return };
        self.looked = Some(Instant::now());
        if notes != *self.notes {
            (self.notes, self.usage) = (Arc::new(notes), None);
        }
    }

    async fn join(&mut self) -> Result<Arc<NodePodUsage>, tokio::task::JoinError> {
        let inputs = JoinInputs {
            pods: self.pods_rx.borrow_and_update().clone(),
            seen: self.seen_rx.borrow_and_update().clone(),
            claims: self.table_rx.borrow_and_update().clone(),
            inventory: self.inventory_rx.borrow_and_update().clone(),
        };
        let (notes, backends, claims) = (self.notes.clone(), self.inventory.backends(), self.claims.clone());
        let joined = self.tasks.looking(move || {
            let facts = PodUsageFacts {
                pods: &inputs.pods,
                seen: &inputs.seen,
                notes: &notes,
                claims: &inputs.claims,
                inventory: &inputs.inventory,
                backends: &backends,
                naming: claims.naming(),
            };
            Arc::new(NodePodUsage::of(&facts))
        });
        joined.await
    }
}

/// Returns the running containers of each claim. Those of a claim whose notes cannot be read are not known.
fn running(table: &ClaimTable, containers: &ContainerDir) -> ContainerNotes {
    let mut notes = BTreeMap::new();
    for uid in table.claims.keys() {
        match containers.of(uid) {
            Ok(mut found) => {
                found.retain(|container| container.runs);
                if !found.is_empty() {
                    notes.insert(uid.clone(), found);
                }
            }
            Err(error) => debug!(claim.uid = %uid, error = %Chain(&error), "containers of a claim cannot be listed"),
        }
    }
    notes
}
