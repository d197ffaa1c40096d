//! The owner of all claim state: decides on its own thread, lets blocking threads do the work, one claim at a time.
//!
//! A request on a claim that is being worked on waits for that work: a second prepare gets the same answer, an
//! unprepare runs after it. Claims do not wait for each other.

mod owner;

pub(super) use owner::OrderJob;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::SystemTime};

use hostler_api::{Allocation, BackendName, Chain, ClaimRef, ClaimUid, DeviceName};
use hostler_backend::DeviceOperation;
use hostler_cdi::SpecDir;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tracing::{error, info};

use super::{
    ClaimError, ClaimFailure, ClaimResult, ClaimTable, PreparedDevice, ReadClaims, ReadResult, recover,
    spec::CdiNaming,
    store::{RecordDir, StoreError},
    work::ClaimExecutor,
};
use crate::{
    containers::{ClaimContainer, ContainerDir},
    inventory::{Inventory, InventoryReader},
    metrics::Metrics,
    registry::BackendRegistry,
    tasks::Tasks,
};

/// Requests that may wait at once: the kubelet starts tens of pods in parallel, and the owner answers each in
/// microseconds, so a full queue means that it hangs.
const QUEUE: usize = 64;

/// Failures that a slow listener can be behind. It then misses the oldest: all of them are in the log.
const FAILURES: usize = 64;

/// What the claims task is made of.
pub struct ClaimsParts {
    /// The backends that prepare.
    pub backends: BackendRegistry,
    /// What hardware there is; must have seen its first scan.
    pub inventory: InventoryReader,
    /// Where allocations are read.
    pub reader: Arc<dyn ReadClaims>,
    /// Folder of the records.
    pub records: PathBuf,
    /// Folder of the CDI files.
    pub cdi: PathBuf,
    /// Names in CDI files.
    pub naming: CdiNaming,
    /// Where hooks note which containers run with which claim.
    pub containers: ContainerDir,
    /// Whether containers of claims that come from now on can read about their devices.
    pub describe: bool,
    /// This boot.
    pub boot_id: String,
    /// Counters of what is done.
    pub metrics: Metrics,
}

impl std::fmt::Debug for ClaimsParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimsParts").finish_non_exhaustive()
    }
}

/// Why the claims task could not start.
#[derive(Debug, thiserror::Error)]
pub enum ClaimsStartError {
    /// The records are not accessible.
    #[error("failed to open the claim records")]
    Records(#[source] StoreError),
    /// The CDI folder is not accessible.
    #[error("failed to open the CDI folder")]
    Cdi(#[source] hostler_cdi::DirError),
}

/// What the owner is asked to do.
enum Request {
    Prepare(Vec<AskedPrepare>),
    Unprepare(Vec<(ClaimRef, oneshot::Sender<ClaimResult<()>>)>),
    Forget(ClaimUid, oneshot::Sender<ClaimResult<()>>),
    Order(owner::Order),
    /// The inventory has seen what an order for a device of this backend has changed.
    OrderOver(BackendName),
    Finished(owner::Finished),
    /// The inventory is another one.
    Look,
    Ping(oneshot::Sender<()>),
    Stop,
}

type PrepareAnswer = ClaimResult<Vec<PreparedDevice>>;

/// A claim to prepare, its allocation unless it is recorded, and where the answer goes.
type AskedPrepare = (ClaimRef, Option<Allocation>, oneshot::Sender<PrepareAnswer>);

/// Asks the claims task. Cheap to clone.
#[derive(Clone)]
pub struct ClaimsHandle {
    requests_tx: mpsc::Sender<Request>,
    table_rx: watch::Receiver<Arc<ClaimTable>>,
    reader: Arc<dyn ReadClaims>,
    naming: Arc<CdiNaming>,
    containers: ContainerDir,
    failures_tx: broadcast::Sender<ClaimFailure>,
    tasks: Tasks,
}

impl std::fmt::Debug for ClaimsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimsHandle").finish_non_exhaustive()
    }
}

/// Recovers what the last run left, then starts the owner. Blocking; when it returns, sockets may open.
///
/// # Errors
/// When the folder of the records or of the CDI files cannot be used.
pub fn start(parts: ClaimsParts, tasks: &Tasks) -> Result<ClaimsHandle, ClaimsStartError> {
    let records = RecordDir::open(parts.records).map_err(ClaimsStartError::Records)?;
    let cdi = SpecDir::new(parts.cdi);
    cdi.create().and_then(|()| cdi.remove_leftovers()).map_err(ClaimsStartError::Cdi)?;
    let loaded = records.load().map_err(ClaimsStartError::Records)?;
    let found = recover::found_cdi(&cdi, &parts.naming).map_err(ClaimsStartError::Cdi)?;
    let naming = Arc::new(parts.naming.clone());
    let inventory_rx = parts.inventory.subscribe();
    let executor = ClaimExecutor {
        backends: parts.backends,
        inventory: parts.inventory,
        records,
        cdi,
        naming: parts.naming,
        containers: parts.containers.clone(),
        boot_id: parts.boot_id,
    };
    let plan = recover::plan(loaded, found, &executor.boot_id);
    let claims = recover::apply(&executor, plan, &parts.metrics);
    executor.records.tidy();
    let (requests_tx, requests_rx) = mpsc::channel(QUEUE);
    let (table_tx, table_rx) = watch::channel(Arc::default());
    let owner = owner::Owner::new(
        owner::OwnerParts {
            executor: Arc::new(executor),
            tasks: tasks.clone(),
            requests_tx: requests_tx.clone(),
            table_tx,
            metrics: parts.metrics,
            describe: parts.describe,
        },
        claims,
    );
    serve(owner, requests_rx, requests_tx.clone(), inventory_rx, tasks);
    let failures_tx = broadcast::Sender::new(FAILURES);
    Ok(ClaimsHandle {
        requests_tx,
        table_rx,
        reader: parts.reader,
        naming,
        containers: parts.containers,
        failures_tx,
        tasks: tasks.clone(),
    })
}

fn serve(
    owner: owner::Owner,
    requests_rx: mpsc::Receiver<Request>,
    requests_tx: mpsc::Sender<Request>,
    mut inventory_rx: watch::Receiver<Arc<Inventory>>,
    tasks: &Tasks,
) {
    let running = tasks.blocking(move || {
        owner.run(requests_rx);
        Ok(())
    });
    tasks.blocking_service("claims", running);
    let stop = tasks.stop_token();
    tasks.job(async move {
        loop {
            tokio::select! {
                // Cancel safe: a change that was not taken is still seen as one.
                Ok(()) = inventory_rx.changed() => {
                    // The owner is gone already if this fails.
                    let _ = requests_tx.send(Request::Look).await;
                }
                // Cancel safe: the token stays cancelled. An inventory that has ended changes no more.
                () = stop.cancelled() => break,
            }
        }
        let _ = requests_tx.send(Request::Stop).await;
    });
}

impl ClaimsHandle {
    /// Prepares claims; one answer for each UID. Runs to its end even if the caller stops waiting.
    pub async fn prepare(&self, claims: Vec<ClaimRef>) -> BTreeMap<ClaimUid, PrepareAnswer> {
        let handle = self.clone();
        let job = self.tasks.job(async move {
            let answers = handle.prepare_now(by_uid(claims.clone())).await;
            handle.tell_failures("prepare", &claims, &answers);
            answers
        });
        // A job fails only with the whole process: panics abort.
        job.await.unwrap_or_default()
    }

    /// Takes claims back; one answer for each UID. Claims that are not known are fine. Runs to its end like
    /// [`ClaimsHandle::prepare`].
    pub async fn unprepare(&self, claims: Vec<ClaimRef>) -> BTreeMap<ClaimUid, ClaimResult<()>> {
        let handle = self.clone();
        let job = self.tasks.job(async move {
            let answers = handle.unprepare_now(by_uid(claims.clone())).await;
            handle.tell_failures("unprepare", &claims, &answers);
            answers
        });
        job.await.unwrap_or_default()
    }

    /// Lets go of a quarantined claim: its record is set aside, its CDI file removed, its devices are free.
    ///
    /// # Errors
    /// When a file cannot be moved.
    pub async fn forget(&self, uid: ClaimUid) -> ClaimResult<()> {
        let (answer_tx, answer_rx) = oneshot::channel();
        self.send(Request::Forget(uid, answer_tx)).await;
        answer_rx.await.unwrap_or_else(|_| Err(Arc::new(ClaimError::Stopping)))
    }

    /// Has a backend carry out an operator's order for a device, and gives its words. No claim of the backend is admitted,
    /// prepared or taken back from before the order until `looked`, which follows it, is over: what they are decided on
    /// must be the hardware as it is then. Runs to its end like [`ClaimsHandle::prepare`].
    ///
    /// # Errors
    /// When the device is not there or is held by a claim, and when its backend refuses or fails.
    pub async fn operate(
        &self,
        backend: BackendName,
        device: DeviceName,
        operation: DeviceOperation,
        looked: impl Future<Output = ()> + Send + 'static,
    ) -> ClaimResult<String> {
        let handle = self.clone();
        let job = self.tasks.job(async move {
            let (answer_tx, answer_rx) = oneshot::channel();
            let (word, names) = (operation.word(), (backend.clone(), device.clone()));
            handle.send(Request::Order(owner::Order { backend, device, operation, answer_tx })).await;
            let answer = answer_rx.await.unwrap_or_else(|_| Err(Arc::new(ClaimError::Stopping)));
            let (backend, device) = names;
            match &answer {
                Ok(done) => info!(backend = %backend, device = %device, operation = word, done, "order carried out"),
                Err(error) => {
                    error!(backend = %backend, device = %device, operation = word, error = %Chain(&**error), "order failed");
                }
            }
            looked.await;
            handle.send(Request::OrderOver(backend)).await;
            answer
        });
        job.await.unwrap_or_else(|_| Err(Arc::new(ClaimError::Stopping)))
    }

    /// Comes back when the owner has got round to it: never, if it is stuck.
    pub async fn ping(&self) {
        let (answer_tx, answer_rx) = oneshot::channel();
        self.send(Request::Ping(answer_tx)).await;
        // An owner that is stopping does not answer, and is not stuck.
        let _ = answer_rx.await;
    }

    /// The latest claim table, and every later one.
    pub fn table(&self) -> watch::Receiver<Arc<ClaimTable>> {
        let mut table_rx = self.table_rx.clone();
        table_rx.mark_changed();
        table_rx
    }

    /// What names in CDI files are made of.
    pub fn naming(&self) -> &CdiNaming {
        &self.naming
    }

    /// Ends the owner from outside the runtime, which waits for its thread.
    #[cfg(test)]
    pub(super) fn stop_now(&self) {
        let _ = self.requests_tx.try_send(Request::Stop);
    }

    /// Which containers run with which claim.
    pub fn containers(&self) -> &ContainerDir {
        &self.containers
    }

    /// The containers that were made with a claim and not noticed to have ended.
    ///
    /// # Errors
    /// When the notes about them cannot be read.
    pub async fn containers_of(&self, claim: ClaimUid) -> std::io::Result<Vec<ClaimContainer>> {
        let containers = self.containers.clone();
        let looking = self.tasks.looking(move || containers.of(&claim));
        looking.await.map_err(std::io::Error::other)?
    }

    async fn unprepare_now(&self, claims: BTreeMap<ClaimUid, ClaimRef>) -> BTreeMap<ClaimUid, ClaimResult<()>> {
        let (request, answers) = with_channels(claims.into_values());
        self.send(Request::Unprepare(request)).await;
        collect(answers).await
    }

    async fn prepare_now(&self, claims: BTreeMap<ClaimUid, ClaimRef>) -> BTreeMap<ClaimUid, PrepareAnswer> {
        let table = self.table_rx.borrow().clone();
        let (recorded, new): (Vec<_>, Vec<_>) =
            claims.into_values().partition(|claim| table.claims.contains_key(&claim.uid));
        // A recorded claim needs nobody else, unless it was taken back since the table was looked at.
        let mut answers = self.ask(recorded.clone()).await;
        let is_gone = |claim: &ClaimRef| matches!(answers.get(&claim.uid), Some(Err(error)) if matches!(**error, ClaimError::Gone(_)));
        let gone: Vec<ClaimRef> = recorded.into_iter().filter(is_gone).collect();
        answers.extend(self.read_and_ask(new.into_iter().chain(gone).collect()).await);
        answers
    }

    async fn ask(&self, claims: Vec<ClaimRef>) -> BTreeMap<ClaimUid, PrepareAnswer> {
        if claims.is_empty() {
            return BTreeMap::new();
        }
        let (asked, answers) = with_channels(claims);
        let request = asked.into_iter().map(|(claim, answer_tx)| (claim, None, answer_tx)).collect();
        self.send(Request::Prepare(request)).await;
        collect(answers).await
    }

    /// As [`ask`](Self::ask), with the claims' allocations. The thread that reads them passes them on itself: each change
    /// of threads is a good part of what a prepare takes.
    async fn read_and_ask(&self, claims: Vec<ClaimRef>) -> BTreeMap<ClaimUid, PrepareAnswer> {
        if claims.is_empty() {
            return BTreeMap::new();
        }
        let (reader, requests_tx, named) = (self.reader.clone(), self.requests_tx.clone(), claims.clone());
        let (asked, answers) = with_channels(claims);
        self.tasks.blocking(move || {
            let request = allocated(asked, reader.read(&named));
            // The answer channels inside the request tell the caller that the daemon is stopping.
            let _ = requests_tx.blocking_send(Request::Prepare(request));
        });
        collect(answers).await
    }

    /// Every failure from now on.
    pub fn failures(&self) -> broadcast::Receiver<ClaimFailure> {
        self.failures_tx.subscribe()
    }

    /// The one place where a failure is told, whoever asked and whatever step failed.
    fn tell_failures<T>(
        &self,
        operation: &'static str,
        claims: &[ClaimRef],
        answers: &BTreeMap<ClaimUid, ClaimResult<T>>,
    ) {
        for claim in claims {
            if let Some(Err(error)) = answers.get(&claim.uid) {
                error!(claim.uid = %claim.uid, claim.name = claim.full_name(), operation, error = %Chain(&**error), "claim failed");
                let (claim, error, at) = (claim.clone(), error.clone(), SystemTime::now());
                // Nobody may be listening.
                let _ = self.failures_tx.send(ClaimFailure { claim, operation, error, at });
            }
        }
    }

    async fn send(&self, request: Request) {
        // The answer channels inside the request tell the caller that the daemon is stopping.
        let _ = self.requests_tx.send(request).await;
    }
}

/// A claim may stand in a request twice: a pod can list one claim under two names.
fn by_uid(claims: Vec<ClaimRef>) -> BTreeMap<ClaimUid, ClaimRef> {
    claims.into_iter().map(|claim| (claim.uid.clone(), claim)).collect()
}

/// Claims, each with where its answer goes.
type Asked<T> = Vec<(ClaimRef, oneshot::Sender<T>)>;

/// Where the answers arrive.
type Awaited<T> = Vec<(ClaimUid, oneshot::Receiver<T>)>;

/// A way to answer for each claim.
fn with_channels<T>(claims: impl IntoIterator<Item = ClaimRef>) -> (Asked<T>, Awaited<T>) {
    let channel = |claim: ClaimRef| {
        let (answer_tx, answer_rx) = oneshot::channel();
        let uid = claim.uid.clone();
        ((claim, answer_tx), (uid, answer_rx))
    };
    claims.into_iter().map(channel).unzip()
}

/// Claims with what was read of each; those of which nothing could be read are answered.
fn allocated(asked: Asked<PrepareAnswer>, read: Vec<ReadResult>) -> Vec<AskedPrepare> {
    let mut request = Vec::with_capacity(asked.len());
    for ((claim, answer_tx), allocation) in asked.into_iter().zip(read) {
        match allocation {
            Ok(allocation) => request.push((claim, Some(allocation), answer_tx)),
            // Whoever asked may have stopped waiting.
            Err(source) => drop(answer_tx.send(Err(Arc::new(ClaimError::Read { claim, source })))),
        }
    }
    request
}

async fn collect<T>(answers: Awaited<ClaimResult<T>>) -> BTreeMap<ClaimUid, ClaimResult<T>> {
    let mut collected = BTreeMap::new();
    for (uid, answer_rx) in answers {
        let answer = answer_rx.await.unwrap_or_else(|_| Err(Arc::new(ClaimError::Stopping)));
        collected.insert(uid, answer);
    }
    collected
}

#[cfg(test)]
mod tests;
