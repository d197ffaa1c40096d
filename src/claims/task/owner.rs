//! The thread that owns the claim table.

mod entry;
mod lanes;
mod operate;
mod recovery;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use hostler_api::{Allocation, BackendName, Chain, ClaimRef, ClaimUid};
use hostler_backend::OperationOutcome;
use tokio::sync::{broadcast, mpsc, watch};
use tracing::{info, warn};

use super::{ClaimsRequest, PlanCall};
use crate::{
    claims::{
        ClaimError, ClaimOperation, ClaimResult, ClaimTable, ClaimView, PreparedDevice, absent,
        admit::{admit, in_the_way},
        call::{CallKind, CallResult, ClaimCall},
        executor::{ClaimExecutor, ClaimOutcome, RedescribedClaim},
        held::HeldGrant,
        metadata,
        recover::RecoveryStart,
        spec::prepared_devices,
        store::{ClaimRecord, RecordDevice, RecordState},
    },
    metrics::Metrics,
    tasks::Tasks,
};
use entry::{ClaimEntries, ClaimEntry, ClaimWork, QuarantinedEntry};
use lanes::BackendLanes;
use operate::OperateQueues;
use recovery::{LaneBackends, RecoveryLanes};
use turns::RequestTurns;

/// Messages of blocking threads to the owner.
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
}

/// Parts that the owner works with.
pub(super) struct ClaimsOwnerParts {
    pub(super) executor: Arc<ClaimExecutor>,
    pub(super) tasks: Tasks,
    /// Channel on which blocking threads report that they have finished.
    pub(super) requests_tx: mpsc::Sender<ClaimsRequest>,
    /// Table that readers see.
    pub(super) table_tx: watch::Sender<Arc<ClaimTable>>,
    pub(super) metrics: Metrics,
    /// Channel to the observers that can tell if a holder in the way is still needed.
    pub(super) contested_tx: broadcast::Sender<BTreeSet<ClaimUid>>,
    /// True if containers of new claims can read about their devices.
    pub(super) describe: bool,
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
                    entries.insert(uid, ClaimEntry::new(record, problem));
                }
                ClaimView::Quarantined(claim) => {
                    entries.touch(&uid);
                    let name = claim.claim.as_ref().map_or_else(|| "unknown name".to_owned(), ClaimRef::full_name);
                    quarantined.insert(uid, QuarantinedEntry { name, claim });
                }
            }
        }
        for step in &start.steps {
            let record = step.record().clone();
            entries.insert(record.claim.uid.clone(), ClaimEntry::recovering(record));
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
            stopping: false,
        };
        owner.publish();
        owner
    }

    /// Runs until it is told to stop and nothing is under way any more.
    pub(super) fn run(mut self, mut requests_rx: mpsc::Receiver<ClaimsRequest>) {
        self.start_recoveries();
        while !(self.stopping && self.is_idle()) {
            if self.turns.is_empty() {
                let Some(request) = requests_rx.blocking_recv() else { break };
                self.hear(request);
            } else if let Ok(request) = requests_rx.try_recv() {
                self.hear(request);
            }
            // The table is made anew once for all that has come in the meantime, such as a start of thousands of
            // claims. Requests behind a call wait until the call has had its turn.
            for _ in 0..requests_rx.len() {
                if self.turns.is_empty()
                    && let Ok(request) = requests_rx.try_recv()
                {
                    self.hear(request);
                }
            }
            if let Some(calls) = self.turns.next() {
                let began = Instant::now();
                self.take(calls);
                self.turns.took(began.elapsed());
            }
            // A caller that has an answer must find it in the table.
            self.publish();
            self.answers.drain(..).for_each(|answered| answered.call.answer(answered.result));
            self.ended.drain(..).for_each(EndedWork::log);
        }
        self.parts.executor.flush_records();
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
                self.check_known(&entry.record)?;
            }
            return match call.kind {
                // An observation from before the claim was asked for says nothing of now.
                CallKind::Release { seen } if entry.asked >= seen => Err(ClaimError::NeededAgain(call.uid.clone())),
                _ => Ok(Some(entry.record.clone())),
            };
        }
        let CallKind::Prepare { claim, allocation } = &mut call.kind else { return Ok(None) };
        let allocation = allocation.take().ok_or_else(|| ClaimError::Gone(claim.clone()))?;
        let executor = &self.parts.executor;
        let inventory = executor.inventory.latest();
        let admitted = admit(claim, &allocation, &inventory, &executor.backends, &self.held_devices());
        let devices = admitted.map_err(|refusal| self.contest(refusal, &allocation))?;
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
        let devices = admit(&claim, &allocation, &inventory, &executor.backends, &self.held_devices());
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

    fn held_devices(&self) -> Vec<HeldGrant<'_>> {
        fn held<'a>(
            uid: &'a ClaimUid,
            name: &'a str,
            devices: &'a [RecordDevice],
        ) -> impl Iterator<Item = HeldGrant<'a>> {
            devices.iter().map(move |device| HeldGrant { uid, name, device })
        }
        let recorded = self.entries.iter().flat_map(|(uid, entry)| held(uid, &entry.name, &entry.record.devices));
        let unsure = self.quarantined.iter().flat_map(|(uid, entry)| held(uid, &entry.name, &entry.claim.devices));
        recorded.chain(unsure).collect()
    }

    /// Has the holders looked at that stand in the way of a claim, if there is an observer.
    fn contest(&self, refusal: ClaimError, allocation: &Allocation) -> ClaimError {
        let mut holders = in_the_way(&refusal, allocation, &self.held_devices());
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

    fn spawn(&self, work: impl FnOnce(&ClaimExecutor) -> FinishedWork + Send + 'static) {
        let (executor, requests_tx) = (self.parts.executor.clone(), self.parts.requests_tx.clone());
        self.parts.tasks.blocking(move || {
            let finished = work(&executor);
            // The owner waits for everything that is under way, so it is there to hear this.
            let _ = requests_tx.blocking_send(ClaimsRequest::Finished(finished));
            executor.tidy_records();
        });
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
        if let Some(record) = &left {
            entry.record = record.clone();
            // A description that failed is tried again with the next change of the inventory.
            if operation != ClaimOperation::Describe {
                entry.problem = result.as_ref().err().map(|error| Chain(&**error).to_string());
            }
        }
        let record = entry.record.clone();
        if left.is_none() {
            self.entries.remove(&uid);
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

    /// The claims whose containers can read about their devices.
    fn described(&self) -> Vec<ClaimUid> {
        let described = self.entries.iter().filter(|(_, entry)| entry.record.metadata.is_some());
        described.map(|(uid, _)| uid.clone()).collect()
    }

    /// Compares what containers of these claims can read with the inventory; of those on which work is under way, after
    /// that.
    fn describe(&mut self, uids: &[ClaimUid]) {
        let inventory = self.parts.executor.inventory.latest();
        let mut redescribed = Vec::new();
        for uid in uids {
            let Some(entry) = self.entries.get(uid) else { continue };
            if entry.work.is_some() {
                self.describe_again.insert(uid.clone());
            } else if self.parts.executor.is_ready(&entry.record)
                && let Some(metadata) = metadata::described_anew(&entry.record, &inventory)
                && let Some(entry) = self.entries.get_mut(uid)
            {
                entry.work = Some(ClaimWork::begin(ClaimOperation::Describe, Vec::new()));
                redescribed.push(RedescribedClaim { before: entry.record.clone(), metadata });
            }
        }
        if !redescribed.is_empty() {
            // No hardware is touched.
            let backends = BTreeSet::new();
            self.spawn(move |executor| FinishedWork::Claims { backends, outcomes: executor.describe(redescribed) });
        }
    }

    fn forget(&mut self, call: ClaimCall) {
        let forgotten = self.set_aside(&call.uid).map(|()| Vec::new());
        self.answer(call, forgotten);
    }

    fn set_aside(&mut self, uid: &ClaimUid) -> Result<(), ClaimError> {
        if !self.quarantined.contains_key(uid) {
            return Err(ClaimError::NotQuarantined(uid.clone()));
        }
        let executor = &self.parts.executor;
        executor.may_act()?;
        let failed = |source| ClaimError::Store { uid: uid.clone(), source };
        executor.records.set_aside(uid).map_err(failed)?;
        executor.remove_cdi(uid)?;
        self.quarantined.remove(uid);
        self.entries.touch(uid);
        warn!(claim.uid = %uid, "quarantined claim forgotten");
        Ok(())
    }

    /// Shows readers what has changed. The table is changed in place if no reader has kept it.
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
