//! The owner of all claim state, which decides on the thread that asks, and the handle with which the daemon asks it.
//!
//! A request on a claim that is being worked on waits for that work: a second prepare gets the same answer, an
//! unprepare runs after it. Claims do not wait for each other.

mod order;
mod owner;
mod owner_lock;

pub use order::{DeviceOrder, OrderObstacle, OrderStage};

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use hostler_api::{Allocation, BackendName, Chain, ClaimRef, ClaimUid, DeviceName};
use hostler_backend::{DeviceOperation, OperationOutcome};
use hostler_cdi::SpecDir;
use hostler_files::InstanceLock;
use tokio::{
    sync::{broadcast, oneshot, watch},
    time::timeout,
};
use tracing::{error, warn};

use self::owner_lock::{OwnerLock, RequestQueue};
use super::{
    ClaimError, ClaimFailure, ClaimResult, ClaimTable, ClaimView, GivenAllocations, PreparedDevice, ReadClaims,
    ReadResult,
    call::{CallAnswers, CallKind, CallResult, ClaimCall},
    executor::ClaimExecutor,
    given::GivenReader,
    metadata,
    naming::CdiNaming,
    recover,
    store::{LoadedRecord, RecordDevice, RecordDir, StoreError},
};
use crate::{
    containers::{ClaimContainer, ContainerDir},
    inventory::{Inventory, task::InventoryHandle},
    metrics::{CountedOperation, Metrics},
    tasks::Tasks,
};

/// Failures that a slow listener can be behind. It then misses the oldest: all of them are in the log.
const FAILURES: usize = 64;

/// Time after which work on a claim is shown before it ends. Nearly all work ends before that, and wakes the readers of
/// the table once.
const SHOW_AFTER: Duration = Duration::from_millis(10);

/// Parts that the claims task is made of.
pub struct ClaimsParts {
    /// The hardware, and the backends that prepare it; must have seen its first scan.
    pub inventory: InventoryHandle,
    /// Reader of the allocations.
    pub reader: Arc<dyn ReadClaims>,
    /// Folder of the records.
    pub records: PathBuf,
    /// Folder of the CDI files.
    pub cdi: PathBuf,
    /// Names in CDI files.
    pub naming: CdiNaming,
    /// Folder in which hooks note which containers run with which claim.
    pub containers: ContainerDir,
    /// True if containers of future claims can read about their devices.
    pub describe: bool,
    /// This boot.
    pub boot_id: String,
    /// Counters of the claims task.
    pub metrics: Metrics,
    /// Lock against a second daemon on the same folders; checked before every action.
    pub lock: Arc<InstanceLock>,
}

impl std::fmt::Debug for ClaimsParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimsParts").finish_non_exhaustive()
    }
}

/// Reason why the claims task could not start.
#[derive(Debug, thiserror::Error)]
pub enum ClaimsStartError {
    /// The records are not accessible.
    #[error("failed to open the claim records")]
    Records(#[source] StoreError),
    /// The CDI folder is not accessible.
    #[error("failed to open the CDI folder")]
    Cdi(#[source] hostler_cdi::DirError),
}

/// Requests to the owner.
enum ClaimsRequest {
    Calls(Vec<ClaimCall>),
    Operate(order::OperateCall),
    OrderNotice(order::OrderNotice),
    Plan(PlanCall),
    Rehearse(RehearseCall),
    /// The inventory has seen what an order for a device of this backend has changed.
    Rescanned(BackendName),
    Finished(owner::FinishedWork),
    InventoryChanged,
    /// A caller has waited for long: readers are to see why.
    Show,
    Ping(oneshot::Sender<()>),
    Stop,
}

/// A question about the outcome of an order.
struct RehearseCall {
    backend: BackendName,
    device: DeviceName,
    operation: DeviceOperation,
    answer_tx: oneshot::Sender<ClaimResult<OperationOutcome>>,
}

/// A question about what a claim would get.
struct PlanCall {
    claim: ClaimRef,
    allocation: Allocation,
    answer_tx: oneshot::Sender<ClaimResult<Vec<RecordDevice>>>,
}

/// Asks the claims task. Cheap to clone.
#[derive(Clone)]
pub struct ClaimsHandle {
    owner: OwnerLock,
    table_rx: watch::Receiver<Arc<ClaimTable>>,
    inventory: InventoryHandle,
    reader: Arc<dyn ReadClaims>,
    naming: Arc<CdiNaming>,
    containers: ContainerDir,
    failures_tx: broadcast::Sender<ClaimFailure>,
    contested_tx: broadcast::Sender<BTreeSet<ClaimUid>>,
    metrics: Metrics,
    tasks: Tasks,
}

impl std::fmt::Debug for ClaimsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimsHandle").finish_non_exhaustive()
    }
}

/// Starts the owner, which begins to recover the claims of the last run. Blocking; sockets may open when
/// [`ClaimsHandle::recovered`] returns.
///
/// # Errors
/// When the folder of the records or of the CDI files cannot be used.
pub fn start(parts: ClaimsParts, tasks: &Tasks) -> Result<ClaimsHandle, ClaimsStartError> {
    let records = RecordDir::open(parts.records, &parts.boot_id).map_err(ClaimsStartError::Records)?;
    let cdi = SpecDir::new(parts.cdi);
    cdi.create().and_then(|()| cdi.remove_leftovers()).map_err(ClaimsStartError::Cdi)?;
    let loaded = records.load().map_err(ClaimsStartError::Records)?;
    let naming = Arc::new(parts.naming.clone());
    let inventory_rx = parts.inventory.reader().subscribe();
    let executor = ClaimExecutor {
        backends: parts.inventory.backends(),
        inventory: parts.inventory.reader(),
        records,
        cdi,
        naming: parts.naming,
        containers: parts.containers.clone(),
        boot_id: parts.boot_id,
        lock: parts.lock,
    };
    let held_to = |loaded| recover::hold_to_backends(loaded, &executor.backends, &executor.boot_id);
    let loaded: Vec<LoadedRecord> = loaded.into_iter().map(held_to).collect();
    let loaded = recover::refuse_contradictions(loaded, &inventory_rx.borrow());
    let found = recover::found_cdi(&executor.cdi, &executor.naming, &loaded).map_err(ClaimsStartError::Cdi)?;
    let plan = recover::plan(loaded, found, &executor.boot_id);
    // Nothing else writes them yet, so their age does not matter.
    metadata::sweep_and_tell(&executor.naming, Duration::ZERO, |uid| plan.contains_key(uid));
    let recovery = recover::begin(&executor, plan, &parts.metrics);
    let executor = Arc::new(executor);
    let (ended_tx, ended_rx) = oneshot::channel();
    let (table_tx, table_rx) = watch::channel(Arc::default());
    let contested_tx = broadcast::Sender::new(FAILURES);
    let owner = owner::ClaimsOwner::new(
        owner::ClaimsOwnerParts {
            executor: executor.clone(),
            tasks: tasks.clone(),
            table_tx,
            metrics: parts.metrics.clone(),
            contested_tx: contested_tx.clone(),
            describe: parts.describe,
            ended_tx,
        },
        recovery,
    );
    let owner = OwnerLock::new(owner, executor, tasks.clone());
    serve(owner.clone(), ended_rx, inventory_rx, tasks);
    let failures_tx = broadcast::Sender::new(FAILURES);
    Ok(ClaimsHandle {
        owner,
        table_rx,
        inventory: parts.inventory,
        reader: parts.reader,
        naming,
        containers: parts.containers,
        failures_tx,
        contested_tx,
        metrics: parts.metrics,
        tasks: tasks.clone(),
    })
}

/// Tells the owner of changes of the inventory and of the stop, and ends when it has ended.
fn serve(
    owner: OwnerLock,
    mut ended_rx: oneshot::Receiver<()>,
    mut inventory_rx: watch::Receiver<Arc<Inventory>>,
    tasks: &Tasks,
) {
    let stop = tasks.stop_token();
    tasks.service("claims", async move {
        loop {
            tokio::select! {
                // Cancel safe: a change that was not taken is still seen as one.
                Ok(()) = inventory_rx.changed() => {
                    owner.send(ClaimsRequest::InventoryChanged);
                }
                // Cancel safe: the token stays cancelled. An inventory that has ended changes no more.
                () = stop.cancelled() => break,
                // Cancel safe: an end that was not taken is still there.
                ended = &mut ended_rx => return Ok(ended?),
            }
        }
        owner.send(ClaimsRequest::Stop);
        Ok(ended_rx.await?)
    });
}

impl ClaimsHandle {
    /// Prepares claims; one answer for each UID. Runs to its end even if the caller stops waiting.
    pub async fn prepare(&self, claims: Vec<ClaimRef>) -> BTreeMap<ClaimUid, ClaimResult<Vec<PreparedDevice>>> {
        self.prepare_read_by(self.reader.clone(), claims).await
    }

    /// Prepares as [`ClaimsHandle::prepare`] claims whose allocations came along. Those of recorded claims are not
    /// looked at.
    pub async fn prepare_allocated(
        &self,
        claims: Vec<ClaimRef>,
        given: GivenAllocations,
    ) -> BTreeMap<ClaimUid, ClaimResult<Vec<PreparedDevice>>> {
        self.prepare_read_by(Arc::new(GivenReader::new(given, self.tasks.clone())), claims).await
    }

    async fn prepare_read_by(
        &self,
        reader: Arc<dyn ReadClaims>,
        claims: Vec<ClaimRef>,
    ) -> BTreeMap<ClaimUid, ClaimResult<Vec<PreparedDevice>>> {
        let handle = self.clone();
        let job = self.tasks.job(async move {
            let claims = by_uid(claims);
            let (recorded, new) = {
                let table = handle.table_rx.borrow();
                claims.values().partition::<Vec<&ClaimRef>, _>(|claim| table.claims.contains_key(&claim.uid))
            };
            // A recorded claim needs no read, unless it was taken back since the table was looked at.
            let mut answers = handle.prepare_recorded(&recorded).await;
            let is_gone = |claim: &&ClaimRef| answers.get(&claim.uid).is_some_and(is_gone);
            let unknown = new.into_iter().chain(recorded.into_iter().filter(is_gone)).cloned().collect();
            let read = handle.read_and_prepare(&*reader, unknown).await;
            answers.extend(read);
            handle.tell(CountedOperation::Prepare, &claims, &answers);
            answers
        });
        // A job fails only with the whole process: panics abort.
        job.await.unwrap_or_default()
    }

    /// Takes claims back; one answer for each UID. Claims that are not known are fine. Runs to its end like
    /// [`ClaimsHandle::prepare`].
    pub async fn unprepare(&self, claims: Vec<ClaimRef>) -> BTreeMap<ClaimUid, ClaimResult<()>> {
        self.take_back(claims, || CallKind::Unprepare).await
    }

    /// Takes back claims that were not needed when they were last looked at; one that was asked for since is kept,
    /// and that is no failure.
    pub async fn release(&self, claims: Vec<ClaimRef>, seen: Instant) -> BTreeMap<ClaimUid, ClaimResult<()>> {
        self.take_back(claims, move || CallKind::Release { seen }).await
    }

    async fn take_back(
        &self,
        claims: Vec<ClaimRef>,
        kind: impl Fn() -> CallKind + Send + 'static,
    ) -> BTreeMap<ClaimUid, ClaimResult<()>> {
        let handle = self.clone();
        let job = self.tasks.job(async move {
            let claims = by_uid(claims);
            let mut answers = CallAnswers::new();
            let calls = claims.keys().map(|uid| answers.call(uid.clone(), kind())).collect();
            handle.send(ClaimsRequest::Calls(calls));
            let answers = handle.collect(answers).await;
            handle.tell(CountedOperation::Unprepare, &claims, &answers);
            answers.into_iter().map(|(uid, result)| (uid, result.map(drop))).collect()
        });
        job.await.unwrap_or_default()
    }

    /// Returns what a claim would get if it were prepared now. Nothing is taken and nothing written.
    ///
    /// # Errors
    /// When it would be refused.
    pub async fn plan(&self, claim: ClaimRef, allocation: Allocation) -> ClaimResult<Vec<RecordDevice>> {
        let (answer_tx, answer_rx) = oneshot::channel();
        self.send(ClaimsRequest::Plan(PlanCall { claim, allocation, answer_tx }));
        answer_rx.await.unwrap_or_else(|_| Err(Arc::new(ClaimError::Stopping)))
    }

    /// Lets go of a quarantined claim: its record is set aside, its CDI file removed, its devices are free.
    ///
    /// # Errors
    /// When a file cannot be moved.
    pub async fn forget(&self, uid: ClaimUid) -> ClaimResult<()> {
        let mut answers = CallAnswers::new();
        let call = answers.call(uid, CallKind::Forget);
        self.send(ClaimsRequest::Calls(vec![call]));
        self.collect(answers).await.into_values().try_for_each(|result| result.map(drop))
    }

    /// Waits until the start has made every claim right, but no longer than `within`. Claims of backends that have not
    /// even answered the first scan are not waited for. What is late goes on in the background.
    pub async fn recovered(&self, within: Duration) {
        let unanswered = self.inventory.reader().latest().unanswered.clone();
        let is_hopeless = |view: &ClaimView| view.devices().iter().any(|it| unanswered.contains_key(&it.backend));
        let mut table_rx = self.table();
        let done = table_rx.wait_for(|table| table.recovering().all(is_hopeless));
        // An owner that has ended ends the daemon.
        drop(timeout(within, done).await);
        let table = self.table_rx.borrow().clone();
        let mut late: BTreeMap<&BackendName, usize> = BTreeMap::new();
        for view in table.recovering() {
            let backends: BTreeSet<&BackendName> = view.devices().iter().map(|device| &device.backend).collect();
            backends.into_iter().for_each(|backend| *late.entry(backend).or_default() += 1);
        }
        for (backend, claims) in late {
            warn!(backend = %backend, claims, "claims are recovered in the background; their devices stay taken");
        }
    }

    /// Returns what an operator's order would do now. Nothing is changed.
    ///
    /// # Errors
    /// When it would be refused for what can be told without a write.
    pub async fn rehearse(
        &self,
        backend: BackendName,
        device: DeviceName,
        operation: DeviceOperation,
    ) -> ClaimResult<OperationOutcome> {
        let (answer_tx, answer_rx) = oneshot::channel();
        let call = RehearseCall { backend, device, operation, answer_tx };
        self.send(ClaimsRequest::Rehearse(call));
        answer_rx.await.unwrap_or_else(|_| Err(Arc::new(ClaimError::Stopping)))
    }

    /// Returns when the owner has got round to it: never, if the owner is stuck.
    pub async fn ping(&self) {
        let (answer_tx, answer_rx) = oneshot::channel();
        self.send(ClaimsRequest::Ping(answer_tx));
        // An owner that is stopping does not answer, and is not stuck.
        let _ = answer_rx.await;
    }

    /// The latest claim table, and every later one.
    pub fn table(&self) -> watch::Receiver<Arc<ClaimTable>> {
        let mut table_rx = self.table_rx.clone();
        table_rx.mark_changed();
        table_rx
    }

    /// Parts that names in CDI files are made of.
    pub fn naming(&self) -> &CdiNaming {
        &self.naming
    }

    /// Folder that notes which containers run with which claim.
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

    async fn prepare_recorded(&self, claims: &[&ClaimRef]) -> BTreeMap<ClaimUid, CallResult> {
        let mut answers = CallAnswers::new();
        let calls: Vec<ClaimCall> = claims.iter().map(|claim| answers.prepare(claim)).collect();
        if !calls.is_empty() {
            self.send(ClaimsRequest::Calls(calls));
        }
        self.collect(answers).await
    }

    /// Prepares claims that are not on record.
    async fn read_and_prepare(&self, reader: &dyn ReadClaims, claims: Vec<ClaimRef>) -> BTreeMap<ClaimUid, CallResult> {
        let mut answers = CallAnswers::new();
        let calls: Vec<ClaimCall> = claims.iter().map(|claim| answers.prepare(claim)).collect();
        if !calls.is_empty() {
            let owner = self.owner.clone();
            let pass_on = move |read: Vec<ReadResult>| {
                let read = calls.into_iter().zip(read);
                let calls = read.filter_map(|(call, read)| call.with_allocation(read)).collect();
                owner.ask(ClaimsRequest::Calls(calls));
            };
            reader.read(claims, Box::new(pass_on));
        }
        self.collect(answers).await
    }

    async fn collect(&self, answers: CallAnswers) -> BTreeMap<ClaimUid, CallResult> {
        let mut all = pin!(answers.collect());
        if let Ok(answers) = timeout(SHOW_AFTER, &mut all).await {
            return answers;
        }
        self.send(ClaimsRequest::Show);
        all.await
    }

    /// Every failure from now on.
    pub fn failures(&self) -> broadcast::Receiver<ClaimFailure> {
        self.failures_tx.subscribe()
    }

    /// Claims that block others, from now on. As long as there is a receiver, refusals say that the holders are
    /// looked at.
    pub fn contested(&self) -> broadcast::Receiver<BTreeSet<ClaimUid>> {
        self.contested_tx.subscribe()
    }

    /// Counts answers and tells of failures: the one place for all callers and all steps.
    fn tell(
        &self,
        counted: CountedOperation,
        claims: &BTreeMap<ClaimUid, ClaimRef>,
        answers: &BTreeMap<ClaimUid, CallResult>,
    ) {
        let operation = counted.as_str();
        for (uid, claim) in claims {
            let answer = answers.get(uid);
            self.metrics.answered(counted, answer.and_then(|answer| answer.as_ref().err()).map(|error| error.reason()));
            if let Some(Err(error)) = answer
                && !matches!(**error, ClaimError::NeededAgain(_))
            {
                error!(claim.uid = %claim.uid, claim.name = claim.full_name(), operation, error = %Chain(&**error), "claim failed");
                let (claim, error, at) = (claim.clone(), error.clone(), SystemTime::now());
                // There may be no listener.
                let _ = self.failures_tx.send(ClaimFailure { claim, operation, error, at });
            }
        }
    }

    fn send(&self, request: ClaimsRequest) {
        // A request that is dropped tells the caller that the daemon is stopping.
        self.owner.send(request);
    }
}

/// A claim may stand in a request twice: a pod can list one claim under two names.
fn by_uid(claims: Vec<ClaimRef>) -> BTreeMap<ClaimUid, ClaimRef> {
    claims.into_iter().map(|claim| (claim.uid.clone(), claim)).collect()
}

fn is_gone(result: &CallResult) -> bool {
    result.as_ref().is_err_and(|error| matches!(**error, ClaimError::Gone(_)))
}

#[cfg(test)]
mod tests;
