//! The owner of the inventory: scans backends when something hints at a change, and every now and then anyway.
//!
//! Backends are scanned in parallel and do not wait for each other; a backend that is being scanned while a new hint
//! comes in is scanned once more. Each has a time of its own at which it is scanned unasked: a fixed time after its
//! last scan, whatever asked for that one. A scan that is not answered in time counts as late, and callers no longer
//! wait for it; its answer is taken when it comes.

mod scan;

use std::{
    collections::BTreeMap,
    future::pending,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use hostler_api::{BackendName, DeviceName};
use hostler_backend::{Backend, BackendError, Enumeration};
use hostler_linux::uevent::RescanScope;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tracing::{info, warn};

use super::{
    Inventory, InventoryReader, Pool, UnknownPool,
    changes::{ChangeKind, changes},
    drains::{Drain, DrainCommand, DrainError, DrainList, DrainRequest},
    hints,
    merge::{merge, outdated},
    pool_name, unanswered,
};
use scan::{ScanExtent, ScanState, ScanWaiter};

use crate::{
    registry::BackendRegistry,
    tasks::{Outcome, Tasks},
};

/// Rescans that may wait at once. More would say nothing new: each of them reads the truth.
const QUEUE: usize = 16;
/// Shortest time between polls. A backend that wished for a shorter one would keep the daemon busy with nothing else.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

/// Parts that the inventory task is made of.
#[derive(Debug)]
pub struct InventoryParts {
    /// Backends that are scanned.
    pub backends: BackendRegistry,
    /// The node's name, first part of every pool's name.
    pub node: String,
    /// Time after which a backend is scanned although nothing has asked for it; one that polls has a shorter one.
    pub rescan: Duration,
    /// Time for which callers wait for a scan.
    pub answer_within: Duration,
    /// The folder of the daemon's state; the list of drained devices is there.
    pub state: PathBuf,
}

/// A request for a scan.
#[derive(Debug)]
pub struct ScanRequest {
    /// Scan all backends, or those that name one of these words in [`Backend::subsystems`].
    scope: RescanScope,
    /// Channel that is answered when everything that was there at the time of asking has been read, but for late
    /// backends.
    done_tx: Option<oneshot::Sender<()>>,
}

impl From<RescanScope> for ScanRequest {
    fn from(scope: RescanScope) -> Self {
        Self { scope, done_tx: None }
    }
}

/// Handle that asks for scans. Cheap to clone.
#[derive(Clone, Debug)]
pub struct InventoryHandle {
    requests_tx: mpsc::Sender<ScanRequest>,
    drains_tx: mpsc::Sender<DrainRequest>,
    reader: InventoryReader,
    backends: BackendRegistry,
}

impl InventoryHandle {
    /// Backends that are scanned.
    pub fn backends(&self) -> BackendRegistry {
        self.backends.clone()
    }

    /// Reader of the inventory.
    pub fn reader(&self) -> InventoryReader {
        self.reader.clone()
    }

    /// Channel for hints.
    pub fn requests(&self) -> mpsc::Sender<ScanRequest> {
        self.requests_tx.clone()
    }

    /// Scans everything and waits for the result; not for backends that take longer than they may.
    pub async fn rescan(&self) {
        let (done_tx, done_rx) = oneshot::channel();
        // An error means that the daemon is stopping; there is nothing to wait for then.
        let _ = self.requests_tx.send(ScanRequest { scope: RescanScope::All, done_tx: Some(done_tx) }).await;
        let _ = done_rx.await;
    }

    /// Reads the list of drained devices. For the daemon that is live; one that stands by would read what changes
    /// later.
    ///
    /// # Errors
    /// When the daemon is stopping. A list that cannot be understood is no error: see
    /// [`LostDrains`](super::drains::LostDrains).
    pub async fn load_drains(&self) -> Result<(), DrainError> {
        self.ask_drains(DrainCommand::Load).await.map(drop)
    }

    /// Takes a device out of service; it is on disk and in the inventory when this returns. One that is drained already
    /// gets the new reason and keeps its beginning.
    ///
    /// # Errors
    /// When the list cannot be written; then nothing has changed.
    pub async fn drain(&self, backend: BackendName, device: DeviceName, drain: Drain) -> Result<Drain, DrainError> {
        let known = self.ask_drains(DrainCommand::Drain(backend, device, drain.clone())).await?;
        Ok(known.unwrap_or(drain))
    }

    /// Puts a device back into service, and gives back the drain that it had.
    ///
    /// # Errors
    /// When the list cannot be written, or is lost and does not name the device; then nothing has changed.
    pub async fn undrain(&self, backend: BackendName, device: DeviceName) -> Result<Option<Drain>, DrainError> {
        self.ask_drains(DrainCommand::Undrain(backend, device)).await
    }

    /// Gives up a list of drained devices that cannot be understood.
    ///
    /// # Errors
    /// When its file cannot be moved.
    pub async fn forget_lost_drains(&self) -> Result<(), DrainError> {
        self.ask_drains(DrainCommand::Forget).await.map(drop)
    }

    async fn ask_drains(&self, command: DrainCommand) -> Result<Option<Drain>, DrainError> {
        let (done_tx, done_rx) = oneshot::channel();
        self.drains_tx.send(DrainRequest { command, done_tx }).await.map_err(|_| DrainError::Stopping)?;
        done_rx.await.unwrap_or(Err(DrainError::Stopping))
    }
}

/// Starts the task. The first scan begins at once; [`InventoryHandle::rescan`] waits for it.
pub fn start(parts: InventoryParts, tasks: &Tasks) -> InventoryHandle {
    let (requests_tx, requests_rx) = mpsc::channel(QUEUE);
    let (drains_tx, drains_rx) = mpsc::channel(QUEUE);
    let (inventory_tx, inventory_rx) = watch::channel(Arc::default());
    let backends = parts.backends.clone();
    let owner = InventoryOwner {
        node: parts.node,
        scans: scans(&parts.backends, parts.rescan),
        rescan: parts.rescan,
        answer_within: parts.answer_within,
        backends: parts.backends,
        drain_list: DrainList::new(parts.state, tasks.clone()),
        inventory_tx,
        running: JoinSet::new(),
        tasks: tasks.clone(),
    };
    tasks.service("inventory", owner.run(requests_rx, drains_rx));
    InventoryHandle { requests_tx, drains_tx, reader: InventoryReader::new(inventory_rx), backends }
}

/// Makes the states of the scans. Nothing is due before the first scan, which the daemon's start asks for and waits
/// for.
fn scans(backends: &BackendRegistry, rescan: Duration) -> BTreeMap<BackendName, ScanState> {
    let scan = |backend: &dyn Backend| {
        let poll = backend.poll().map_or(rescan, |poll| poll.max(SHORTEST_POLL));
        ScanState::every(poll.min(rescan))
    };
    backends.iter().map(|(name, backend)| (name.clone(), scan(backend.as_ref()))).collect()
}

type ScanResult = (BackendName, Result<Enumeration, BackendError>);

struct InventoryOwner {
    node: String,
    backends: BackendRegistry,
    drain_list: DrainList,
    scans: BTreeMap<BackendName, ScanState>,
    rescan: Duration,
    answer_within: Duration,
    inventory_tx: watch::Sender<Arc<Inventory>>,
    running: JoinSet<Option<ScanResult>>,
    tasks: Tasks,
}

impl InventoryOwner {
    async fn run(
        mut self,
        mut requests_rx: mpsc::Receiver<ScanRequest>,
        mut drains_rx: mpsc::Receiver<DrainRequest>,
    ) -> Outcome {
        let stop = self.tasks.stop_token();
        loop {
            let next = self.scans.values().filter_map(ScanState::next).min();
            // All arms are cancel safe: channels, timer and token lose nothing when another arm wins, and a JoinSet
            // keeps what has finished until it is joined.
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = wait_until(next) => self.heed_clock(),
                Some(request) = requests_rx.recv() => self.ask(request),
                // A request that was taken is carried out to its end; a scan can wait for a write.
                Some(request) = drains_rx.recv() => self.carry_out(request).await,
                Some(scanned) = self.running.join_next() => {
                    if let Some((backend, result)) = scanned? {
                        self.take(&backend, result);
                    }
                }
            }
        }
    }

    async fn carry_out(&mut self, request: DrainRequest) {
        let done = self.drain_list.carry_out(request.command).await;
        // A caller that has an answer must find it in the inventory. The channel's lock is let go of before it is
        // written to.
        let latest = Inventory::clone(&self.inventory_tx.borrow());
        self.publish(latest);
        // The caller may have stopped waiting.
        let _ = request.done_tx.send(done);
    }

    fn ask(&mut self, request: ScanRequest) {
        let (names, extent): (Vec<BackendName>, _) = match request.scope {
            RescanScope::All => (self.scans.keys().cloned().collect(), ScanExtent::Whole),
            RescanScope::Subsystems(words) => (hints::concerned(&self.backends, &words), ScanExtent::Whole),
            RescanScope::Removals { subsystems, devpaths } => {
                (hints::concerned(&self.backends, &subsystems), ScanExtent::Removals(devpaths))
            }
        };
        let done = request.done_tx.map(|done_tx| Arc::new(ScanWaiter(Some(done_tx))));
        names.iter().for_each(|name| self.scan(name, extent.clone(), done.clone()));
    }

    /// Starts the scans that are due, and gives up waiting for those that are late.
    fn heed_clock(&mut self) {
        let now = Instant::now();
        let due = self.scans.iter_mut().filter(|(_, scan)| scan.is_due(now));
        let due: Vec<_> = due.map(|(name, scan)| (name.clone(), scan.due_extent())).collect();
        due.into_iter().for_each(|(name, extent)| self.scan(&name, extent, None));
        let late = self.scans.iter_mut().filter_map(|(name, scan)| Some((name.clone(), scan.becomes_late(now)?)));
        for (name, since) in late.collect::<Vec<_>>() {
            self.miss(&name, since);
        }
    }

    /// Notes that a backend does not answer. Waiting callers find that in the inventory.
    fn miss(&mut self, name: &BackendName, since: SystemTime) {
        let old = self.inventory_tx.borrow().clone();
        let pool = outdated(pool_name(&self.node, name), old.pools.get(name), format!("it {}", unanswered(since)));
        self.update(&old, name, pool, Some(since));
        if let Some(scan) = self.scans.get_mut(name) {
            scan.release();
        }
    }

    fn scan(&mut self, name: &BackendName, extent: ScanExtent, done: Option<Arc<ScanWaiter>>) {
        let (Some(scan), Some(backend)) = (self.scans.get_mut(name), self.backends.get(name)) else { return };
        let Some(extent) = scan.ask(extent, done, self.answer_within) else { return };
        let backend = backend.clone();
        let scanning = self.tasks.looking(move || (backend.name(), enumerate(&*backend, &extent)));
        self.running.spawn(async move { scanning.await.ok() });
    }

    fn take(&mut self, name: &BackendName, result: Result<Enumeration, BackendError>) {
        let old = self.inventory_tx.borrow().clone();
        let pool = merge(pool_name(&self.node, name), old.pools.get(name), result);
        let nothing = pool.as_ref().map_or(true, |pool| pool.devices.is_empty());
        self.update(&old, name, pool, None);
        let Some(scan) = self.scans.get_mut(name) else { return };
        // Polls are for the state of devices; events tell of new ones.
        let period = if nothing { self.rescan } else { scan.period };
        if let Some(extent) = scan.answered(period) {
            self.scan(name, extent, None);
        }
        // A scan allocates as much as it keeps, on threads that come and go.
        if !self.scans.values().any(ScanState::is_at_work) {
            self.tasks.looking(hostler_heap::trim);
        }
    }

    /// Publishes a backend's new pool, and since when it has not answered, if either is new. Nearly every scan finds
    /// what the last one found.
    fn update(
        &self,
        old: &Inventory,
        name: &BackendName,
        pool: Result<Arc<Pool>, UnknownPool>,
        unanswered: Option<SystemTime>,
    ) {
        let (known, unknown) = pool.map_or_else(|unknown| (None, Some(unknown)), |pool| (Some(pool), None));
        if (old.pools.get(name), old.unknown.get(name)) == (known.as_ref(), unknown.as_ref())
            && old.unanswered.get(name) == unanswered.as_ref()
        {
            return;
        }
        let mut new = old.clone();
        set(&mut new.pools, name, known);
        set(&mut new.unknown, name, unknown);
        set(&mut new.unanswered, name, unanswered);
        for change in changes(old, &new) {
            let device = change.device.as_deref().unwrap_or("*");
            match &change.what {
                ChangeKind::Stale(_) | ChangeKind::Unknown(_) => {
                    warn!(backend = %name, pool = change.pool, device, change = %change.what, "inventory stale")
                }
                what => info!(backend = %name, pool = change.pool, device, change = %what, "inventory changed"),
            }
        }
        self.publish(new);
    }

    fn publish(&self, mut new: Inventory) {
        new.drains = self.drain_list.drains(&new.pools);
        new.lost_drains = self.drain_list.lost().cloned();
        self.inventory_tx.send_if_modified(|latest| {
            let modified = !latest.is_same(&new);
            *latest = Arc::new(new);
            modified
        });
    }
}

/// Looks at a backend's hardware. A look at a part that fails says nothing of the whole.
fn enumerate(backend: &dyn Backend, extent: &ScanExtent) -> Result<Enumeration, BackendError> {
    match extent {
        ScanExtent::Whole => backend.enumerate(),
        ScanExtent::Removals(devpaths) => backend.enumerate_after_removal(devpaths).or_else(|_| backend.enumerate()),
    }
}

fn set<T>(map: &mut BTreeMap<BackendName, T>, name: &BackendName, value: Option<T>) {
    match value {
        Some(value) => map.insert(name.clone(), value),
        None => map.remove(name),
    };
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
