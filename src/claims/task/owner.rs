//! The owner of the claim table. It decides, and leaves the work to the threads that ask: see [`OwnerLock`].

mod describe;
mod entry;
mod lanes;
mod operate;
mod quarantine;
mod recovery;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use hostler_api::{Allocation, BackendName, Chain, ClaimRef, ClaimUid};
use hostler_backend::OperationOutcome;
use tokio::sync::{broadcast, oneshot, watch};
use tracing::{info, warn};

#[cfg(doc)]
use super::OwnerLock;
use super::{ClaimsRequest, PlanCall, RequestQueue};
use crate::{
    claims::{
        ClaimError, ClaimOperation, ClaimResult, ClaimTable, ClaimView, PreparedDevice, absent,
        admit::{admit, in_the_way},
        call::{CallKind, CallResult, ClaimCall},
        executor::{ClaimExecutor, ClaimOutcome},
        held::HeldGrant,
        metadata,
        recover::RecoveryStart,
        spec::prepared_devices,
        store::{ClaimRecord, RecordDevice, RecordState},
    },
    inventory::Inventory,
    metrics::Metrics,
    tasks::Tasks,
};
use entry::{ClaimEntries, ClaimEntry, ClaimWork};
use lanes::BackendLanes;
use operate::OperateQueues;
use quarantine::QuarantinedEntry;
pub(super) use recovery::BegunRecovery;
use recovery::{LaneBackends, RecoveryLanes};
use turns::RequestTurns;

/// Work that the owner has begun. It runs on a blocking thread, and its end is a request to the owner.
pub(super) type BegunWork = Box<dyn FnOnce(&ClaimExecutor) -> FinishedWork + Send>;

/// End of work that the owner has begun.
pub(super) enum FinishedWork {
    Claims {
        backends: BTreeSet<BackendName>,
        outcomes: Vec<ClaimOutcome>,
    },
    /// A start has done what it could for the claims of these backends.
    Recovered(LaneBackends),
    Operated {
        backend: BackendName,
        result: ClaimResult<OperationOutcome>,
    },
    Forgotten {
        uid: ClaimUid,
        result: ClaimResult<()>,
    },
}

/// Parts that the owner works with.
pub(super) struct ClaimsOwnerParts {
    pub(super) executor: Arc<ClaimExecutor>,
    pub(super) tasks: Tasks,
    /// Table that readers see.
    pub(super) table_tx: watch::Sender<Arc<ClaimTable>>,
    pub(super) metrics: Metrics,
    /// Channel to the observers that can tell if a holder in the way is still needed.
    pub(super) contested_tx: broadcast::Sender<BTreeSet<ClaimUid>>,
    /// True if containers of new claims can read about their devices.
    pub(super) describe: bool,
    /// Channel on which the end of the owner is told. Dropped where a decision did not come to its end.
    pub(super) ended_tx: oneshot::Sender<()>,
}

/// The owner of the claim table.
pub(super) struct ClaimsOwner {
    parts: ClaimsOwnerParts,
    entries: ClaimEntries,
    quarantined: BTreeMap<ClaimUid, QuarantinedEntry>,
    operations: OperateQueues,
    lanes: BackendLanes,
    recoveries: RecoveryLanes,
    /// Calls that have not begun.
    turns: RequestTurns,
    /// Answers that wait until the table shows their outcome.
    answers: Vec<AnsweredCall>,
    /// Work to log when the answers are on their way: no caller should wait for a log.
    ended: Vec<EndedWork>,
    /// The claims on which work was under way when the inventory changed.
    describe_again: BTreeSet<ClaimUid>,
    begun: Vec<BegunWork>,
    begun_recoveries: Vec<BegunRecovery>,
    stopping: bool,
}

struct AnsweredCall {
    call: ClaimCall,
    result: CallResult,
}

/// Work on a claim that has ended.
struct EndedWork {
    operation: ClaimOperation,
    /// The claim as it was last on record.
    record: Arc<ClaimRecord>,
    result: ClaimResult<()>,
}

impl EndedWork {
    /// Logs the end. Failures of calls are told with their answers; a description has no caller.
    fn log(self) {
        let claim = &self.record.claim;
        match (self.operation, self.result) {
            (ClaimOperation::Prepare, Ok(())) => {
                info!(claim.uid = %claim.uid, claim.name = claim.full_name(), devices = self.record.devices.len(), "claim prepared");
            }
            (ClaimOperation::Unprepare, Ok(())) => info!(claim.uid = %claim.uid, "claim taken back"),
            (ClaimOperation::Describe, Err(error)) => {
                warn!(claim.uid = %claim.uid, error = %Chain(&*error), "containers see old metadata of their devices");
            }
            (ClaimOperation::Recover, Err(error)) => {
                warn!(claim.uid = %claim.uid, error = %Chain(&*error), "claim has a problem");
            }
            _ => {}
        }
    }
}

impl ClaimsOwner {
    pub(super) fn new(parts: ClaimsOwnerParts, start: RecoveryStart) -> Self {
        let (mut entries, mut quarantined) = (ClaimEntries::default(), BTreeMap::new());
        for (uid, view) in start.table {
            match view {
                ClaimView::Recorded { record, problem, .. } => {
                    entries.insert(&uid, ClaimEntry::new(record, problem));
                }
                ClaimView::Quarantined(claim) => {
                    entries.touch(&uid);
                    let name = claim.claim.as_ref().map_or_else(|| "unknown name".to_owned(), ClaimRef::full_name);
                    quarantined.insert(uid, QuarantinedEntry { name, claim, forgetting: Vec::new() });
                }
            }
        }
        for step in &start.steps {
            let record = step.record().clone();
            entries.insert(&record.claim.uid.clone(), ClaimEntry::recovering(record));
        }
        let mut owner = Self {
            parts,
            entries,
            quarantined,
            operations: OperateQueues::default(),
            lanes: BackendLanes::default(),
            recoveries: RecoveryLanes::of(start.steps),
            turns: RequestTurns::default(),
            answers: Vec::new(),
            ended: Vec::new(),
            describe_again: BTreeSet::new(),
            begun: Vec::new(),
            begun_recoveries: Vec::new(),
            stopping: false,
        };
        owner.start_recoveries();
        owner.publish();
        owner
    }

    /// Hears requests, begins the calls whose turn it is, shows what has changed, and answers.
    pub(super) fn turn(&mut self, requests: &RequestQueue) {
        // The table is made anew once for all that has come in the meantime, such as a start of thousands of claims.
        // Requests behind a call wait until the call has had its turn.
        let (waiting, mut is_shown) = (requests.len(), false);
        for heard in 0..waiting {
            if heard > 0 && !self.turns.is_empty() {
                break;
            }
            let Some(request) = requests.next() else { break };
            is_shown |= !matches!(request, ClaimsRequest::Calls(_));
            self.hear(request);
        }
        if let Some(calls) = self.turns.next() {
            let began = Instant::now();
            self.take(calls);
            self.turns.took(began.elapsed());
        }
        // A caller that has an answer must find it in the table. Calls that have only begun are shown when they last.
        if is_shown || !self.answers.is_empty() {
            self.publish();
        }
        self.answers.drain(..).for_each(|answered| answered.call.answer(answered.result));
        self.ended.drain(..).for_each(EndedWork::log);
    }

    /// True if calls wait for a turn.
    pub(super) fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The work that has begun since the last call.
    pub(super) fn take_begun(&mut self) -> (Vec<BegunWork>, Vec<BegunRecovery>) {
        (std::mem::take(&mut self.begun), std::mem::take(&mut self.begun_recoveries))
    }

    /// True if a stop waits for nothing any more.
    pub(super) fn has_ended(&self) -> bool {
        self.stopping && self.is_idle()
    }

    /// Leaves the records as the next start finds them best, and tells that the owner has ended.
    pub(super) fn end(self) {
        self.parts.executor.flush_records();
        // A test may not listen.
        let _ = self.parts.ended_tx.send(());
    }

    fn hear(&mut self, request: ClaimsRequest) {
        match request {
            ClaimsRequest::Stop => {
                self.stopping = true;
                // Dropping the calls tells the callers, here and below.
                self.turns = RequestTurns::default();
                self.drop_waiting_orders();
            }
            ClaimsRequest::Finished(finished) => self.finish(finished),
            _ if self.stopping => {}
            // The caller may have stopped waiting.
            ClaimsRequest::Ping(answer_tx) => drop(answer_tx.send(())),
            // Every turn shows that hears it.
            ClaimsRequest::Show => {}
            ClaimsRequest::InventoryChanged => {
                self.describe(&self.described());
                self.start_recoveries();
            }
            ClaimsRequest::Calls(calls) => self.turns.add(calls),
            ClaimsRequest::Plan(call) => self.plan(call),
            ClaimsRequest::Rehearse(call) => self.rehearse(call),
            ClaimsRequest::Operate(call) => self.take_operation(call),
            ClaimsRequest::OrderNotice(notice) => self.heed_notice(&notice),
            ClaimsRequest::Rescanned(backend) => self.end_operation(&backend),
        }
    }

    /// True if no blocking thread is at work that a stop waits for.
    fn is_idle(&self) -> bool {
        let is_recovery = |work: &ClaimWork| work.busy.operation == ClaimOperation::Recover;
        self.entries.values().all(|entry| entry.work.as_ref().is_none_or(is_recovery))
            && self.quarantined.values().all(|entry| entry.forgetting.is_empty())
            && !self.operations.are_under_way()
    }

    /// Begins what can be begun; the claims of one request share their durable writes, where they touch the same
    /// backends.
    fn take(&mut self, calls: Vec<ClaimCall>) {
        let (mut prepares, mut unprepares) = (Vec::new(), Vec::new());
        for call in calls {
            let (batch, operation) = match call.kind {
                CallKind::Prepare { .. } => (&mut prepares, ClaimOperation::Prepare),
                CallKind::Unprepare | CallKind::Release { .. } => (&mut unprepares, ClaimOperation::Unprepare),
                CallKind::Forget => {
                    self.forget(call);
                    continue;
                }
            };
            if let Some(call) = self.join(call).and_then(|call| self.park(call)) {
                batch.extend(self.begin(call, operation));
            }
        }
        self.work(ClaimOperation::Prepare, prepares);
        self.work(ClaimOperation::Unprepare, unprepares);
    }

    /// Has a call wait for the work that is under way on its claim; gives it back where there is none. A claim that a
    /// start is still at may take for ever: a call for it is refused, and repeated by a caller that still wants it.
    fn join(&mut self, call: ClaimCall) -> Option<ClaimCall> {
        if let Some(error) = self.entries.get(&call.uid).and_then(ClaimEntry::recovery_error) {
            self.answer(call, Err(error));
            return None;
        }
        let Some(entry) = self.entries.get_mut(&call.uid) else { return Some(call) };
        if call.is_prepare() {
            entry.asked = Instant::now();
        }
        let ClaimEntry { work: Some(work), waiting, .. } = entry else { return Some(call) };
        let is_prepare = call.is_prepare();
        // A prepare that is under way answers for this one too, unless something else comes in between.
        if is_prepare && work.busy.operation == ClaimOperation::Prepare && waiting.is_empty() {
            work.calls.push(call);
        } else {
            waiting.push_back(call);
        }
        None
    }

    /// Notes that work on a claim begins, and gives the record that it begins with; answers where there is nothing to
    /// do.
    fn begin(&mut self, mut call: ClaimCall, operation: ClaimOperation) -> Option<Arc<ClaimRecord>> {
        match self.record_for(&mut call) {
            Err(error) => self.answer(call, Err(error)),
            // Never prepared, or taken back already: the kubelet repeats calls.
            Ok(None) => self.answer(call, Ok(Vec::new())),
            Ok(Some(record)) => {
                // From here on the devices of a new claim are taken, although nothing is on disk yet.
                let entry = self.entries.get_or_insert(&call.uid, || ClaimEntry::new(record.clone(), None));
                entry.work = Some(ClaimWork::begin(operation, vec![call]));
                return Some(record);
            }
        }
        None
    }

    /// The record of a claim on which nothing is under way; a new one for a claim that is to be prepared and has none.
    fn record_for(&self, call: &mut ClaimCall) -> Result<Option<Arc<ClaimRecord>>, ClaimError> {
        if let Some(quarantined) = self.quarantined.get(&call.uid) {
            return Err(quarantined.claim.error());
        }
        if let Some(entry) = self.entries.get(&call.uid) {
            if call.is_prepare() {
                self.check_known(entry.record())?;
            }
            return match call.kind {
                // An observation from before the claim was asked for says nothing of now.
                CallKind::Release { seen } if entry.asked >= seen => Err(ClaimError::NeededAgain(call.uid.clone())),
                _ => Ok(Some(entry.record().clone())),
            };
        }
        let CallKind::Prepare { claim, allocation } = &mut call.kind else { return Ok(None) };
        let allocation = allocation.take().ok_or_else(|| ClaimError::Gone(claim.clone()))?;
        let executor = &self.parts.executor;
        let inventory = executor.inventory.latest();
        let held = self.held_beside(&allocation, &inventory);
        let admitted = admit(claim, &allocation, &inventory, &executor.backends, &held);
        let devices = admitted.map_err(|refusal| self.contest(refusal, &allocation, &held))?;
        let metadata = self.parts.describe.then(|| metadata::describe(allocation.pod_claim_name, &devices, &inventory));
        let (claim, boot_id) = (claim.clone(), executor.boot_id.clone());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
        let (state, reserved_for) = (RecordState::Preparing, allocation.reserved_for);
        Ok(Some(Arc::new(ClaimRecord { claim, state, boot_id, devices, metadata, since, reserved_for })))
    }

    /// Decides as for a claim that is to be prepared, and changes nothing.
    fn plan(&self, PlanCall { claim, allocation, answer_tx }: PlanCall) {
        let executor = &self.parts.executor;
        let inventory = executor.inventory.latest();
        let held = self.held_beside(&allocation, &inventory);
        let devices = admit(&claim, &allocation, &inventory, &executor.backends, &held);
        // The caller may have stopped waiting.
        drop(answer_tx.send(devices.map_err(Arc::new)));
    }

    /// Refuses a claim to be made ready again whose backends do not know their devices: a try with others would undo
    /// it.
    fn check_known(&self, record: &ClaimRecord) -> Result<(), ClaimError> {
        let executor = &self.parts.executor;
        let inventory = executor.inventory.latest();
        let mut unknown = record.devices.iter().filter(|device| inventory.unknown.contains_key(&device.backend));
        match unknown.next() {
            Some(device) if !executor.is_ready(record) => {
                Err(absent(&inventory, &device.grant.pool, &device.grant.device))
            }
            _ => Ok(()),
        }
    }

    /// Returns what claims hold of the backends that an allocation is about: no other backend's devices stand in its way.
    fn held_beside<'a>(&'a self, allocation: &Allocation, inventory: &'a Inventory) -> Vec<HeldGrant<'a>> {
        let found = allocation.grants.iter().filter_map(|grant| inventory.find(&grant.pool, grant.device.as_str()));
        let backends: BTreeSet<&BackendName> = found.map(|(backend, _)| backend).collect();
        backends.into_iter().flat_map(|backend| self.held_of(backend)).collect()
    }

    /// Returns what claims hold of a backend.
    fn held_of<'a>(&'a self, backend: &'a BackendName) -> impl Iterator<Item = HeldGrant<'a>> {
        fn held<'a>(
            backend: &'a BackendName,
            (uid, name): (&'a ClaimUid, &'a str),
            devices: &'a [RecordDevice],
        ) -> impl Iterator<Item = HeldGrant<'a>> {
            let own = devices.iter().filter(move |device| device.backend == *backend);
            own.map(move |device| HeldGrant { uid, name, device })
        }
        let recorded = self.entries.of_backend(backend);
        let recorded =
            recorded.flat_map(move |(uid, entry)| held(backend, (uid, &entry.name), &entry.record().devices));
        let unsure = self.quarantined.iter();
        recorded.chain(unsure.flat_map(move |(uid, entry)| held(backend, (uid, &entry.name), &entry.claim.devices)))
    }

    /// Has the holders looked at that stand in the way of a claim, if there is an observer.
    fn contest(&self, refusal: ClaimError, allocation: &Allocation, held: &[HeldGrant<'_>]) -> ClaimError {
        let mut holders = in_the_way(&refusal, allocation, held);
        // Quarantined claims are an operator's.
        holders.retain(|uid| self.entries.contains_key(uid));
        if holders.is_empty() || self.parts.contested_tx.send(holders).is_err() {
            return refusal;
        }
        ClaimError::Contested { refusal: Box::new(refusal) }
    }

    fn answer(&mut self, call: ClaimCall, result: Result<Vec<PreparedDevice>, ClaimError>) {
        self.answers.push(AnsweredCall { call, result: result.map_err(Arc::new) });
    }

    /// Has work done by the thread that decides, once it has let go of the owner, or by another one.
    fn begin_work(&mut self, work: impl FnOnce(&ClaimExecutor) -> FinishedWork + Send + 'static) {
        self.begun.push(Box::new(work));
    }

    fn finish(&mut self, finished: FinishedWork) {
        match finished {
            FinishedWork::Claims { backends, outcomes } => {
                let uids: Vec<ClaimUid> = outcomes.iter().map(|outcome| outcome.uid.clone()).collect();
                outcomes.into_iter().for_each(|outcome| self.finish_claim(outcome));
                self.leave_lanes(&backends);
                let again: Vec<ClaimUid> = uids.into_iter().filter(|uid| self.describe_again.remove(uid)).collect();
                self.describe(&again);
            }
            FinishedWork::Recovered(lane) => self.finish_recovery(&lane),
            FinishedWork::Operated { backend, result } => self.finish_operation(&backend, result),
            FinishedWork::Forgotten { uid, result } => self.finish_forgetting(&uid, &result),
        }
        self.start_operations();
    }

    /// Notes how work on a claim ended, answers, and begins what waited for it.
    fn finish_claim(&mut self, ClaimOutcome { uid, left, result }: ClaimOutcome) {
        let Some(entry) = self.entries.get_mut(&uid) else { return };
        let Some(work) = entry.work.take() else { return };
        let waiting = std::mem::take(&mut entry.waiting);
        let operation = work.busy.operation;
        work.note_time(&self.parts.metrics, result.is_ok());
        // A description that failed is tried again with the next change of the inventory.
        if left.is_some() && operation != ClaimOperation::Describe {
            entry.problem = result.as_ref().err().map(|error| Chain(&**error).to_string());
        }
        let record = left.clone().unwrap_or_else(|| entry.record().clone());
        match left {
            Some(left) => self.entries.set_record(&uid, left),
            None => self.entries.remove(&uid),
        }
        let answer: CallResult = result.clone().map(|()| match operation {
            ClaimOperation::Prepare => prepared_devices(&record, &self.parts.executor.naming),
            ClaimOperation::Unprepare | ClaimOperation::Describe | ClaimOperation::Recover => Vec::new(),
        });
        self.answers.extend(work.calls.into_iter().map(|call| AnsweredCall { call, result: answer.clone() }));
        self.ended.push(EndedWork { operation, record, result });
        self.requeue(waiting);
    }

    /// Takes calls again, each on its own: they came with different requests.
    fn requeue(&mut self, calls: VecDeque<ClaimCall>) {
        calls.into_iter().for_each(|call| self.take(vec![call]));
    }

    /// Shows readers what has changed.
    fn publish(&mut self) {
        let touched = self.entries.take_touched();
        if touched.is_empty() {
            return;
        }
        let mut news: Vec<(ClaimUid, Option<ClaimView>)> = touched
            .into_iter()
            .map(|uid| {
                let view = self.view(&uid);
                (uid, view)
            })
            .collect();
        self.parts.table_tx.send_if_modified(|shown| {
            news.retain(|(uid, view)| !shown.shows(uid, view.as_ref()));
            if news.is_empty() {
                return false;
            }
            let table = Arc::make_mut(shown);
            news.into_iter().for_each(|(uid, view)| table.show(uid, view));
            true
        });
    }

    fn view(&self, uid: &ClaimUid) -> Option<ClaimView> {
        let unsure = || Some(ClaimView::Quarantined(self.quarantined.get(uid)?.claim.clone()));
        self.entries.get(uid).map(ClaimEntry::view).or_else(unsure)
    }
}
