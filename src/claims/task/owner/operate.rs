//! An operator's orders for devices. While one is under way, nothing of the device's backend is admitted, prepared or
//! taken back.
//!
//! ```text
//!   waiting ── no work on claims of the backend any more ──► under way ──► answered ── hardware scanned ──► over
//!   │  └─ calls that touch the backend are parked while it holds them back; further orders queue ──┘
//!   └── given up or withdrawn: over
//! ```
//!
//! An order is not recorded: it is carried out to its end, or its failure is told. After a crash it can be given again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use hostler_api::{Access, BackendName, DeviceName, Grant};
use hostler_backend::{DeviceOperation, OperationOutcome, duration};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{
    super::{
        RehearseCall,
        order::{OperateCall, OrderEnd, OrderNews, OrderNotice, OrderObstacle, OrderStage},
    },
    CallKind, ClaimCall, ClaimEntry, ClaimsOwner, FinishedWork,
};
use crate::claims::{ClaimError, ClaimResult, absent, executor::OperateJob, held::OwnedHeldGrant, store::RecordDevice};

/// Obstacles that a message names; the others are counted.
const NAMED_OBSTACLES: usize = 5;

/// Stage of the order of a backend.
enum OperateStage {
    Waiting(OperateCall),
    UnderWay(OrderObstacle, oneshot::Sender<OrderEnd>),
    Answered,
}

/// The orders of one backend.
struct OperateQueue {
    stage: OperateStage,
    next: VecDeque<OperateCall>,
    parked: VecDeque<ClaimCall>,
}

/// The orders of all backends that have any.
#[derive(Default)]
pub(super) struct OperateQueues(BTreeMap<BackendName, OperateQueue>);

impl OperateQueues {
    /// True if hardware is being changed.
    pub(super) fn are_under_way(&self) -> bool {
        self.0.values().any(|queue| matches!(queue.stage, OperateStage::UnderWay(..)))
    }

    /// The first of these backends whose calls have to wait.
    fn of_any(&mut self, backends: &BTreeSet<BackendName>) -> Option<&mut OperateQueue> {
        let mut queues = self.0.iter_mut().filter(|(backend, _)| backends.contains(*backend));
        queues.find_map(|(_, queue)| queue.holds().then_some(queue))
    }
}

impl OperateQueue {
    /// Takes an order out that has not begun; says also whether it was the next one to begin.
    fn remove_waiting(&mut self, id: Uuid) -> Option<(OperateCall, bool)> {
        if let Some(at) = self.next.iter().position(|call| call.id == id) {
            return self.next.remove(at).map(|call| (call, false));
        }
        match std::mem::replace(&mut self.stage, OperateStage::Answered) {
            OperateStage::Waiting(call) if call.id == id => Some((call, true)),
            other => {
                self.stage = other;
                None
            }
        }
    }

    fn waiting(&mut self, id: Uuid) -> Option<&mut OperateCall> {
        let first = match &mut self.stage {
            OperateStage::Waiting(call) => Some(call),
            _ => None,
        };
        first.into_iter().chain(&mut self.next).find(|call| call.id == id)
    }

    /// True if calls have to wait.
    fn holds(&self) -> bool {
        match &self.stage {
            OperateStage::Waiting(call) => call.holds,
            OperateStage::UnderWay(..) | OperateStage::Answered => true,
        }
    }

    /// Tells every waiting order what it waits for: claims, and the orders before.
    fn tell(&self, mut obstacles: Vec<OrderObstacle>) {
        match &self.stage {
            OperateStage::Waiting(call) => {
                call.tell(obstacles.clone());
                obstacles.push(call.as_obstacle());
            }
            OperateStage::UnderWay(order, _) => obstacles = vec![order.clone()],
            OperateStage::Answered => obstacles.clear(),
        }
        for call in &self.next {
            call.tell(obstacles.clone());
            obstacles.push(call.as_obstacle());
        }
    }
}

impl ClaimsOwner {
    /// Takes an order; it starts when its turn comes.
    pub(super) fn take_operation(&mut self, call: OperateCall) {
        let backend = call.backend.clone();
        match self.operations.0.get_mut(&backend) {
            Some(queue) => queue.next.push_back(call),
            None => {
                let stage = OperateStage::Waiting(call);
                let queue = OperateQueue { stage, next: VecDeque::new(), parked: VecDeque::new() };
                self.operations.0.insert(backend.clone(), queue);
                self.start_operations();
            }
        }
        self.tell_waiting(&backend);
    }

    /// Heeds the news for an order that waits; one that has begun runs to its end.
    pub(super) fn heed_notice(&mut self, notice: &OrderNotice) {
        let OrderNotice { backend, id, news } = notice;
        match news {
            OrderNews::Hold => self.hold(backend, *id, true),
            OrderNews::Pass => self.hold(backend, *id, false),
            OrderNews::GiveUp(waited) => {
                let error = self.timed_out(backend, *waited);
                self.refuse_waiting(backend, *id, error);
            }
            OrderNews::Withdraw => self.refuse_waiting(backend, *id, ClaimError::OrderWithdrawn),
        }
        self.tell_waiting(backend);
    }

    fn hold(&mut self, backend: &BackendName, id: Uuid, holds: bool) {
        let Some(queue) = self.operations.0.get_mut(backend) else { return };
        if let Some(call) = queue.waiting(id) {
            call.holds = holds;
        }
        if !queue.holds() {
            let parked = std::mem::take(&mut queue.parked);
            self.requeue(parked);
        }
    }

    fn refuse_waiting(&mut self, backend: &BackendName, id: Uuid, error: ClaimError) {
        let Some(queue) = self.operations.0.get_mut(backend) else { return };
        let Some((call, was_first)) = queue.remove_waiting(id) else { return };
        call.refuse(error);
        if was_first {
            self.end_operation(backend);
        }
    }

    fn timed_out(&self, backend: &BackendName, waited: Duration) -> ClaimError {
        let mut obstacles: Vec<String> = self.busy_claims(backend).iter().map(ToString::to_string).collect();
        if let Some(OperateQueue { stage: OperateStage::UnderWay(order, _), .. }) = self.operations.0.get(backend) {
            obstacles.push(order.to_string());
        }
        let more = obstacles.len().saturating_sub(NAMED_OBSTACLES);
        obstacles.truncate(NAMED_OBSTACLES);
        obstacles.extend((more > 0).then(|| format!("{more} more")));
        if obstacles.is_empty() {
            obstacles.push("other orders".to_owned());
        }
        ClaimError::OrderTimedOut { waited: duration::format(waited), obstacles: obstacles.join(", ") }
    }

    /// The work on claims of a backend.
    fn busy_claims(&self, backend: &BackendName) -> Vec<OrderObstacle> {
        let of_backend = self.entries.values().filter(|entry| entry.uses(backend));
        let obstacle = |entry: &ClaimEntry| {
            let busy = entry.work.as_ref()?.busy;
            let name = entry.name.clone();
            Some(OrderObstacle::Claim { name, operation: busy.operation, since: busy.since })
        };
        of_backend.filter_map(obstacle).collect()
    }

    fn tell_waiting(&self, backend: &BackendName) {
        if let Some(queue) = self.operations.0.get(backend) {
            queue.tell(self.busy_claims(backend));
        }
    }

    /// Starts every order whose backend has no work on claims any more.
    pub(super) fn start_operations(&mut self) {
        let is_busy =
            |backend: &BackendName| self.entries.values().any(|entry| entry.work.is_some() && entry.uses(backend));
        let waiting = self.operations.0.iter().filter(|(_, queue)| matches!(queue.stage, OperateStage::Waiting(_)));
        let ready: Vec<BackendName> =
            waiting.map(|(backend, _)| backend).filter(|backend| !is_busy(backend)).cloned().collect();
        for backend in ready {
            self.start_operation(backend);
        }
    }

    /// Drops the orders that have not begun, which tells their callers that the daemon stops.
    pub(super) fn drop_waiting_orders(&mut self) {
        for queue in self.operations.0.values_mut() {
            queue.next.clear();
            if matches!(queue.stage, OperateStage::Waiting(_)) {
                queue.stage = OperateStage::Answered;
            }
        }
    }

    fn start_operation(&mut self, backend: BackendName) {
        let Some(queue) = self.operations.0.get_mut(&backend) else { return };
        let OperateStage::Waiting(call) = std::mem::replace(&mut queue.stage, OperateStage::Answered) else { return };
        match self.operate_job(&call.backend, &call.device, call.operation) {
            Err(error) => {
                // The table says nothing of orders, so the answer need not wait for it. Nothing was changed.
                call.refuse(error);
                self.end_operation(&backend);
            }
            Ok(job) => {
                call.stage_tx.send_replace(OrderStage::UnderWay);
                if let Some(queue) = self.operations.0.get_mut(&backend) {
                    queue.stage = OperateStage::UnderWay(call.as_obstacle(), call.end_tx);
                }
                self.tell_waiting(&backend);
                self.begin_work(move |executor| {
                    let result = executor.operate(&job).map_err(Arc::new);
                    FinishedWork::Operated { backend, result }
                });
            }
        }
    }

    /// Answers what an order would do. Neither waits for the other work nor holds it up: it only reads.
    pub(super) fn rehearse(&self, call: RehearseCall) {
        let executor = self.parts.executor.clone();
        match self.operate_job(&call.backend, &call.device, call.operation) {
            // The caller may have stopped waiting.
            Err(error) => drop(call.answer_tx.send(Err(Arc::new(error)))),
            Ok(job) => drop(self.parts.tasks.looking(move || {
                drop(call.answer_tx.send(executor.rehearse(&job).map_err(Arc::new)));
            })),
        }
    }

    /// Returns the job of an order, if the device is there and no claim holds it.
    fn operate_job(
        &self,
        backend: &BackendName,
        name: &DeviceName,
        operation: DeviceOperation,
    ) -> Result<OperateJob, ClaimError> {
        let inventory = self.parts.executor.inventory.latest();
        let pool = inventory.pools.get(backend);
        let device = pool.and_then(|pool| pool.devices.iter().find(|device| device.name == *name));
        let unknown = inventory.unknown.get(backend).map(|unknown| &unknown.name);
        let pool_name = pool.map(|pool| &pool.name).or(unknown).map_or(backend.as_str(), String::as_str);
        let device = device.ok_or_else(|| absent(&inventory, pool_name, name))?;
        // A backend that has not answered one question is not given another.
        if let Some(reason) =
            pool.filter(|_| inventory.unanswered.contains_key(backend)).and_then(|it| it.stale.clone())
        {
            return Err(ClaimError::UnknownPool { pool: pool_name.to_owned(), device: name.clone(), reason });
        }
        let holds = |held: &RecordDevice| held.grant.access == Access::Use && held.local_name() == name;
        // Where nothing can be ordered the backend says so: a holder is no reason.
        let takes_orders = self.parts.executor.takes_orders(backend);
        if let Some(holder) = self.held_of(backend).find(|held| takes_orders && holds(held.device)) {
            let holder = format!("{} ({})", holder.uid, holder.name);
            return Err(ClaimError::Held { device: name.clone(), holder });
        }
        Ok(OperateJob {
            backend: backend.clone(),
            device: device.clone(),
            operation,
            held: self.held_of(backend).map(|held| OwnedHeldGrant::of(&held)).collect(),
        })
    }

    /// Passes on the backend's result of an order. Its claims wait on, until the hardware is scanned.
    pub(super) fn finish_operation(&mut self, backend: &BackendName, result: ClaimResult<OperationOutcome>) {
        let Some(queue) = self.operations.0.get_mut(backend) else { return };
        if let OperateStage::UnderWay(_, end_tx) = std::mem::replace(&mut queue.stage, OperateStage::Answered) {
            drop(end_tx.send(OrderEnd::Operated(result)));
        }
    }

    /// Ends an order whose changes the inventory knows: the next one has its turn, or parked calls go on.
    pub(super) fn end_operation(&mut self, backend: &BackendName) {
        let Some(queue) = self.operations.0.get_mut(backend) else { return };
        if let Some(next) = queue.next.pop_front() {
            queue.stage = OperateStage::Waiting(next);
            let parked = if queue.holds() { VecDeque::new() } else { std::mem::take(&mut queue.parked) };
            self.start_operations();
            self.requeue(parked);
            return;
        }
        let parked = self.operations.0.remove(backend).map(|queue| queue.parked).unwrap_or_default();
        self.requeue(parked);
    }

    /// Keeps a call for later if an order for a backend that it touches holds it back; else gives it back.
    pub(super) fn park(&mut self, call: ClaimCall) -> Option<ClaimCall> {
        if self.operations.0.is_empty() {
            return Some(call);
        }
        let backends = self.backends_of(&call);
        match self.operations.of_any(&backends) {
            None => Some(call),
            Some(queue) => {
                queue.parked.push_back(call);
                None
            }
        }
    }

    /// Returns the backends of a claim's devices: as recorded, or as allocated.
    fn backends_of(&self, call: &ClaimCall) -> BTreeSet<BackendName> {
        if let Some(entry) = self.entries.get(&call.uid) {
            return entry.record().devices.iter().map(|device| device.backend.clone()).collect();
        }
        let CallKind::Prepare { allocation: Some(allocation), .. } = &call.kind else { return BTreeSet::new() };
        let inventory = self.parts.executor.inventory.latest();
        let find = |grant: &Grant| inventory.find(&grant.pool, grant.device.as_str()).map(|(name, _)| name.clone());
        allocation.grants.iter().filter_map(find).collect()
    }
}
