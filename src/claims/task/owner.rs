//! The thread that owns the claim table.

mod orders;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use hostler_api::{Allocation, BackendName, Chain, ClaimRef, ClaimUid};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};

use super::{AskedPrepare, PrepareAnswer, Request};
use crate::{
    claims::{
        ClaimError, ClaimResult, ClaimTable, ClaimView,
        admit::{HeldGrant, admit},
        metadata,
        recover::QuarantinedClaim,
        spec::prepared_devices,
        store::{ClaimRecord, RecordDevice, RecordState},
        work::{ClaimExecutor, Job, Prepared},
    },
    metrics::{ClaimOperation, Metrics},
    tasks::Tasks,
};
pub(super) use orders::Order;
pub(in crate::claims) use orders::OrderJob;
use orders::Orders;

/// What blocking threads send back.
pub(super) enum Finished {
    Prepared(Vec<(ClaimUid, Prepared)>),
    Unprepared(Vec<(ClaimUid, ClaimResult<()>)>),
    Described(Vec<(ClaimUid, ClaimResult<Arc<ClaimRecord>>)>),
    Ordered(BackendName, ClaimResult<String>),
}

/// Something that waits for the work on a claim to end.
enum Waiting {
    Prepare(ClaimRef, Option<Allocation>, oneshot::Sender<PrepareAnswer>),
    Unprepare(ClaimRef, oneshot::Sender<ClaimResult<()>>),
}

/// Whoever gets the answer of the work under way.
#[derive(Default)]
struct Asking {
    since: Option<Instant>,
    prepare: Vec<oneshot::Sender<PrepareAnswer>>,
    unprepare: Vec<oneshot::Sender<ClaimResult<()>>>,
}

impl Asking {
    fn begin(prepare: Vec<oneshot::Sender<PrepareAnswer>>, unprepare: Vec<oneshot::Sender<ClaimResult<()>>>) -> Self {
        Self { since: Some(Instant::now()), prepare, unprepare }
    }

    fn observe(&self, metrics: &Metrics, operation: ClaimOperation, ok: bool) {
        if let Some(since) = self.since {
            metrics.observe(operation, ok, since.elapsed());
        }
    }
}

/// A claim in the table.
struct Entry {
    name: String,
    record: Arc<ClaimRecord>,
    problem: Option<String>,
    /// Who gets the answer of the work that is under way; `None`: nothing is.
    busy: Option<Asking>,
    waiting: VecDeque<Waiting>,
}

impl Entry {
    fn new(record: Arc<ClaimRecord>, problem: Option<String>) -> Self {
        Self { name: record.claim.full_name(), record, problem, busy: None, waiting: VecDeque::new() }
    }
}

/// What the owner works with.
pub(super) struct OwnerParts {
    pub(super) executor: Arc<ClaimExecutor>,
    pub(super) tasks: Tasks,
    /// Where blocking threads say that they have finished.
    pub(super) requests_tx: mpsc::Sender<Request>,
    /// Where readers see the table.
    pub(super) table_tx: watch::Sender<Arc<ClaimTable>>,
    pub(super) metrics: Metrics,
    /// Whether containers of new claims can read about their devices.
    pub(super) describe: bool,
}

/// The owner of the claim table.
pub(super) struct Owner {
    parts: OwnerParts,
    entries: BTreeMap<ClaimUid, Entry>,
    quarantined: BTreeMap<ClaimUid, (String, Arc<QuarantinedClaim>)>,
    orders: Orders,
    /// Answers that wait until the table shows what they say.
    answers: Vec<Answer>,
    /// What is logged when the answers are on their way: nobody should wait for a log.
    news: Vec<News>,
    /// Whether work was under way on a claim when the inventory changed.
    look_again: bool,
    stopping: bool,
}

/// An answer and where it goes.
enum Answer {
    Prepare(oneshot::Sender<PrepareAnswer>, PrepareAnswer),
    Unprepare(oneshot::Sender<ClaimResult<()>>, ClaimResult<()>),
    Order(oneshot::Sender<ClaimResult<String>>, ClaimResult<String>),
}

impl Answer {
    /// Whoever asked may have stopped waiting; the work was done all the same.
    fn send(self) {
        match self {
            Self::Prepare(answer_tx, answer) => drop(answer_tx.send(answer)),
            Self::Unprepare(answer_tx, answer) => drop(answer_tx.send(answer)),
            Self::Order(answer_tx, answer) => drop(answer_tx.send(answer)),
        }
    }
}

/// Work that has succeeded.
enum News {
    Prepared(Arc<ClaimRecord>),
    TakenBack(ClaimUid),
}

impl News {
    fn log(self) {
        match self {
            Self::Prepared(record) => {
                let claim = &record.claim;
                info!(claim.uid = %claim.uid, claim.name = claim.full_name(), devices = record.devices.len(), "claim prepared");
            }
            Self::TakenBack(uid) => info!(claim.uid = %uid, "claim taken back"),
        }
    }
}

impl Owner {
    pub(super) fn new(parts: OwnerParts, claims: BTreeMap<ClaimUid, ClaimView>) -> Self {
        let (mut entries, mut quarantined) = (BTreeMap::new(), BTreeMap::new());
        for (uid, view) in claims {
            match view {
                ClaimView::Recorded { record, problem } => {
                    entries.insert(uid, Entry::new(record, problem));
                }
                ClaimView::Quarantined(found) => {
                    let name = found.claim.as_ref().map_or_else(|| "unknown name".to_owned(), ClaimRef::full_name);
                    quarantined.insert(uid, (name, found));
                }
            }
        }
        let owner = Self {
            parts,
            entries,
            quarantined,
            orders: Orders::default(),
            answers: Vec::new(),
            news: Vec::new(),
            look_again: false,
            stopping: false,
        };
        owner.publish();
        owner
    }

    /// Runs until it is told to stop and nothing is under way any more.
    pub(super) fn run(mut self, mut requests_rx: mpsc::Receiver<Request>) {
        while !(self.stopping && self.is_idle()) {
            let Some(request) = requests_rx.blocking_recv() else { break };
            match request {
                Request::Stop => self.stopping = true,
                Request::Finished(finished) => self.finish(finished),
                // Dropping the answer channels tells the callers.
                _ if self.stopping => {}
                // Whoever asked may have stopped waiting.
                Request::Ping(answer_tx) => drop(answer_tx.send(())),
                Request::Look => self.describe(),
                Request::Prepare(claims) => self.prepare(claims),
                Request::Unprepare(claims) => self.unprepare(claims),
                Request::Order(order) => self.take_order(order),
                Request::OrderOver(backend) => self.end_order(&backend),
                Request::Forget(uid, answer_tx) => {
                    let forgotten = self.forget(&uid).map_err(Arc::new);
                    self.answers.push(Answer::Unprepare(answer_tx, forgotten));
                }
            }
            // Whoever has an answer must find it in the table.
            self.publish();
            self.answers.drain(..).for_each(Answer::send);
            self.news.drain(..).for_each(News::log);
        }
    }

    /// Whether no blocking thread is at work.
    fn is_idle(&self) -> bool {
        self.entries.values().all(|entry| entry.busy.is_none()) && !self.orders.are_under_way()
    }

    fn prepare(&mut self, claims: Vec<AskedPrepare>) {
        let mut jobs = Vec::new();
        for (claim, allocation, answer_tx) in claims {
            if let Some(entry) = self.entries.get_mut(&claim.uid)
                && let Some(asking) = &mut entry.busy
            {
                // A prepare that is under way answers for this one too, unless something else comes in between.
                if !asking.prepare.is_empty() && entry.waiting.is_empty() {
                    asking.prepare.push(answer_tx);
                } else {
                    entry.waiting.push_back(Waiting::Prepare(claim, allocation, answer_tx));
                }
                continue;
            }
            let uid = claim.uid.clone();
            let request = self.park(&uid, Waiting::Prepare(claim, allocation, answer_tx));
            let Some(Waiting::Prepare(claim, allocation, answer_tx)) = request else { continue };
            match self.job(&claim, allocation) {
                Err(error) => self.answers.push(Answer::Prepare(answer_tx, Err(Arc::new(error)))),
                Ok(job) => {
                    self.begin(&claim.uid, &job, answer_tx);
                    jobs.push(job);
                }
            }
        }
        if !jobs.is_empty() {
            self.spawn(move |executor| Finished::Prepared(executor.prepare(jobs)));
        }
    }

    /// What has to be done to prepare a claim on which nothing is under way.
    fn job(&self, claim: &ClaimRef, allocation: Option<Allocation>) -> Result<Job, ClaimError> {
        if let Some((_, quarantined)) = self.quarantined.get(&claim.uid) {
            return Err(quarantined.error());
        }
        if let Some(entry) = self.entries.get(&claim.uid) {
            return Ok(Job::Again(entry.record.clone()));
        }
        let allocation = allocation.ok_or_else(|| ClaimError::Gone(claim.clone()))?;
        let inventory = self.parts.executor.inventory.latest();
        let devices = admit(claim, &allocation, &inventory, &self.parts.executor.backends, &self.holdings())?;
        let boot_id = self.parts.executor.boot_id.clone();
        let metadata = self.parts.describe.then(|| metadata::describe(allocation.pod_claim_name, &devices, &inventory));
        Ok(Job::New(ClaimRecord { claim: claim.clone(), state: RecordState::Preparing, boot_id, devices, metadata }))
    }

    fn holdings(&self) -> Vec<HeldGrant<'_>> {
        fn holding<'a>(
            uid: &'a ClaimUid,
            name: &'a str,
            devices: &'a [RecordDevice],
        ) -> impl Iterator<Item = HeldGrant<'a>> {
            devices.iter().map(move |device| HeldGrant { uid, name, device })
        }
        let recorded = self.entries.iter().flat_map(|(uid, entry)| holding(uid, &entry.name, &entry.record.devices));
        let unsure = self.quarantined.iter().flat_map(|(uid, (name, found))| holding(uid, name, &found.devices));
        recorded.chain(unsure).collect()
    }

    fn begin(&mut self, uid: &ClaimUid, job: &Job, answer_tx: oneshot::Sender<PrepareAnswer>) {
        let record = match job {
            // From here on its devices are taken, although nothing is on disk yet.
            Job::New(record) => Arc::new(record.clone()),
            Job::Again(record) => record.clone(),
        };
        let entry = self.entries.entry(uid.clone()).or_insert_with(|| Entry::new(record, None));
        entry.busy = Some(Asking::begin(vec![answer_tx], Vec::new()));
    }

    fn unprepare(&mut self, claims: Vec<(ClaimRef, oneshot::Sender<ClaimResult<()>>)>) {
        let mut records = Vec::new();
        for (claim, answer_tx) in claims {
            if let Some((_, quarantined)) = self.quarantined.get(&claim.uid) {
                self.answers.push(Answer::Unprepare(answer_tx, Err(Arc::new(quarantined.error()))));
                continue;
            }
            match self.entries.get_mut(&claim.uid) {
                // Never prepared, or taken back already: the kubelet repeats calls.
                None => self.answers.push(Answer::Unprepare(answer_tx, Ok(()))),
                Some(Entry { busy: Some(_), waiting, .. }) => waiting.push_back(Waiting::Unprepare(claim, answer_tx)),
                Some(_) => records.extend(self.begin_unprepare(claim, answer_tx)),
            }
        }
        if !records.is_empty() {
            self.spawn(move |executor| Finished::Unprepared(executor.unprepare(&records)));
        }
    }

    /// The record of a claim that is taken back now, unless that has to wait for an order.
    fn begin_unprepare(
        &mut self,
        claim: ClaimRef,
        answer_tx: oneshot::Sender<ClaimResult<()>>,
    ) -> Option<Arc<ClaimRecord>> {
        let uid = claim.uid.clone();
        let Some(Waiting::Unprepare(_, answer_tx)) = self.park(&uid, Waiting::Unprepare(claim, answer_tx)) else {
            return None;
        };
        let entry = self.entries.get_mut(&uid)?;
        entry.busy = Some(Asking::begin(Vec::new(), vec![answer_tx]));
        Some(entry.record.clone())
    }

    fn spawn(&self, work: impl FnOnce(&ClaimExecutor) -> Finished + Send + 'static) {
        let (executor, requests_tx) = (self.parts.executor.clone(), self.parts.requests_tx.clone());
        self.parts.tasks.blocking(move || {
            let finished = work(&executor);
            // The owner waits for everything that is under way, so it is there to hear this.
            let _ = requests_tx.blocking_send(Request::Finished(finished));
            executor.records.tidy();
        });
    }

    fn finish(&mut self, finished: Finished) {
        self.settle_all(finished);
        if std::mem::take(&mut self.look_again) {
            self.describe();
        }
        self.start_orders();
    }

    fn settle_all(&mut self, finished: Finished) {
        match finished {
            Finished::Prepared(claims) => {
                for (uid, prepared) in claims {
                    self.finish_prepare(&uid, prepared);
                }
            }
            Finished::Unprepared(claims) => {
                for (uid, result) in claims {
                    self.finish_unprepare(&uid, &result);
                }
            }
            Finished::Described(claims) => {
                for (uid, result) in claims {
                    self.finish_describe(&uid, result);
                }
            }
            Finished::Ordered(backend, result) => self.finish_order(&backend, result),
        }
    }

    fn finish_prepare(&mut self, uid: &ClaimUid, prepared: Prepared) {
        let (result, left) = match prepared {
            Prepared::Ready(record) => {
                self.news.push(News::Prepared(record.clone()));
                (Ok(prepared_devices(&record, &self.parts.executor.naming)), Some((record, None)))
            }
            Prepared::Undone(error) => (Err(error), None),
            Prepared::Left(record, error) => {
                let problem = Chain(&*error).to_string();
                (Err(error), Some((record, Some(problem))))
            }
        };
        let asking = self.settle(uid, left);
        asking.observe(&self.parts.metrics, ClaimOperation::Prepare, result.is_ok());
        self.answers.extend(asking.prepare.into_iter().map(|answer_tx| Answer::Prepare(answer_tx, result.clone())));
        self.wake(uid);
    }

    fn finish_unprepare(&mut self, uid: &ClaimUid, result: &ClaimResult<()>) {
        let left = match result {
            Ok(()) => {
                self.news.push(News::TakenBack(uid.clone()));
                None
            }
            Err(error) => {
                let problem = Chain(&**error).to_string();
                self.entries.get(uid).map(|entry| (entry.record.clone(), Some(problem)))
            }
        };
        let asking = self.settle(uid, left);
        asking.observe(&self.parts.metrics, ClaimOperation::Unprepare, result.is_ok());
        self.answers.extend(asking.unprepare.into_iter().map(|answer_tx| Answer::Unprepare(answer_tx, result.clone())));
        self.wake(uid);
    }

    /// Compares what containers can read with the inventory, on every claim on which nothing is under way.
    fn describe(&mut self) {
        let inventory = self.parts.executor.inventory.latest();
        let mut changed = Vec::new();
        for entry in self.entries.values_mut().filter(|entry| entry.record.metadata.is_some()) {
            if entry.busy.is_some() {
                self.look_again = true;
            } else if self.parts.executor.is_ready(&entry.record)
                && let metadata @ Some(_) = metadata::described_anew(&entry.record, &inventory)
            {
                entry.busy = Some(Asking::default());
                changed.push(ClaimRecord { metadata, ..(*entry.record).clone() });
            }
        }
        if !changed.is_empty() {
            self.spawn(move |executor| Finished::Described(executor.describe(changed)));
        }
    }

    fn finish_describe(&mut self, uid: &ClaimUid, result: ClaimResult<Arc<ClaimRecord>>) {
        let Some(entry) = self.entries.get(uid) else { return };
        let (before, problem) = (entry.record.clone(), entry.problem.clone());
        // The next change of the inventory tries again.
        let record = result.unwrap_or_else(|error| {
            warn!(claim.uid = %uid, error = %Chain(&*error), "containers see old metadata of their devices");
            before
        });
        self.settle(uid, Some((record, problem)));
        self.wake(uid);
    }

    /// Notes how work on a claim ended, and starts what waits for a claim of which nothing is left; gives back who asked.
    fn settle(&mut self, uid: &ClaimUid, left: Option<(Arc<ClaimRecord>, Option<String>)>) -> Asking {
        let Some(entry) = self.entries.get_mut(uid) else { return Asking::default() };
        let asking = entry.busy.take().unwrap_or_default();
        let Some((record, problem)) = left else {
            let waiting = self.entries.remove(uid).map(|entry| entry.waiting).unwrap_or_default();
            self.requeue(waiting);
            return asking;
        };
        entry.record = record;
        entry.problem = problem;
        asking
    }

    /// Starts what waited for a claim on which nothing is under way any more.
    fn wake(&mut self, uid: &ClaimUid) {
        if let Some(entry) = self.entries.get_mut(uid) {
            let waiting = std::mem::take(&mut entry.waiting);
            self.requeue(waiting);
        }
    }

    fn requeue(&mut self, waiting: VecDeque<Waiting>) {
        for next in waiting {
            match next {
                Waiting::Prepare(claim, allocation, answer_tx) => self.prepare(vec![(claim, allocation, answer_tx)]),
                Waiting::Unprepare(claim, answer_tx) => self.unprepare(vec![(claim, answer_tx)]),
            }
        }
    }

    fn forget(&mut self, uid: &ClaimUid) -> Result<(), ClaimError> {
        if !self.quarantined.contains_key(uid) {
            return Err(ClaimError::NotQuarantined(uid.clone()));
        }
        self.parts
            .executor
            .records
            .set_aside(uid)
            .map_err(|source| ClaimError::Store { uid: uid.clone(), source: Arc::new(source) })?;
        self.parts.executor.remove_cdi(uid)?;
        self.quarantined.remove(uid);
        warn!(claim.uid = %uid, "quarantined claim forgotten");
        Ok(())
    }

    fn publish(&self) {
        let recorded = self.entries.iter().map(|(uid, entry)| {
            let view = ClaimView::Recorded { record: entry.record.clone(), problem: entry.problem.clone() };
            (uid.clone(), view)
        });
        let unsure =
            self.quarantined.iter().map(|(uid, (_, found))| (uid.clone(), ClaimView::Quarantined(found.clone())));
        self.parts.table_tx.send_replace(Arc::new(ClaimTable { claims: recorded.chain(unsure).collect() }));
    }
}
