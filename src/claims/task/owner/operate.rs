//! An operator's orders for devices. Nothing of the device's backend is admitted, prepared or taken back meanwhile.
//!
//! ```text
//!   waiting ── no work on claims of the backend any more ──► under way ──► answered ── hardware scanned ──► over
//!   └──────────────── calls that touch the backend are parked, further orders queue ────────────────────┘
//! ```
//!
//! An order is not recorded: it is carried out to its end, or its failure is told. After a crash it can be given again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use hostler_api::{Access, BackendName, ClaimUid, DeviceName, Grant};
use hostler_backend::{Device, DeviceOperation, HeldDevice, OperationOutcome};
use tokio::sync::oneshot;

use super::{CallKind, ClaimCall, ClaimsOwner, FinishedWork};
use crate::claims::{ClaimError, ClaimResult, admit::HeldGrant, store::RecordDevice};

/// What is ordered, and where the answer goes.
pub(in crate::claims::task) struct OperateCall {
    pub(in crate::claims::task) backend: BackendName,
    pub(in crate::claims::task) device: DeviceName,
    pub(in crate::claims::task) operation: DeviceOperation,
    pub(in crate::claims::task) answer_tx: oneshot::Sender<ClaimResult<OperationOutcome>>,
}

/// What a backend has to know to carry an order out.
#[derive(Debug)]
pub(in crate::claims) struct OperateJob {
    pub(in crate::claims) backend: BackendName,
    pub(in crate::claims) device: Device,
    pub(in crate::claims) operation: DeviceOperation,
    pub(in crate::claims) held: Vec<OwnedHeldGrant>,
}

/// Something that a claim holds, for a thread that outlives the look at the table.
#[derive(Debug)]
pub(in crate::claims) struct OwnedHeldGrant {
    uid: ClaimUid,
    name: String,
    device: RecordDevice,
}

impl OwnedHeldGrant {
    fn of(held: &HeldGrant<'_>) -> Self {
        Self { uid: held.uid.clone(), name: held.name.to_owned(), device: held.device.clone() }
    }

    /// As its backend sees it.
    pub(in crate::claims) fn as_held(&self) -> HeldDevice<'_> {
        HeldDevice { claim: &self.uid, claim_name: &self.name, grant: &self.device.grant, plan: &self.device.plan }
    }
}

/// How far the order of a backend is.
enum OperateStage {
    Waiting(OperateCall),
    UnderWay(oneshot::Sender<ClaimResult<OperationOutcome>>),
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
    /// Whether hardware is being changed.
    pub(super) fn are_under_way(&self) -> bool {
        self.0.values().any(|queue| matches!(queue.stage, OperateStage::UnderWay(_)))
    }

    fn of_any(&mut self, backends: &BTreeSet<BackendName>) -> Option<&mut OperateQueue> {
        self.0.iter_mut().find(|(backend, _)| backends.contains(*backend)).map(|(_, queue)| queue)
    }
}

impl ClaimsOwner {
    /// Takes an order; it starts when its turn comes.
    pub(super) fn take_operation(&mut self, call: OperateCall) {
        let backend = call.backend.clone();
        if let Some(queue) = self.operations.0.get_mut(&backend) {
            queue.next.push_back(call);
            return;
        }
        let stage = OperateStage::Waiting(call);
        self.operations.0.insert(backend, OperateQueue { stage, next: VecDeque::new(), parked: VecDeque::new() });
        self.start_operations();
    }

    /// Starts every order whose backend has no work on claims any more.
    pub(super) fn start_operations(&mut self) {
        let is_busy = |backend: &BackendName| {
            let mut busy = self.entries.values().filter(|entry| entry.work.is_some());
            busy.any(|entry| entry.record.devices.iter().any(|device| device.backend == *backend))
        };
        let waiting = self.operations.0.iter().filter(|(_, queue)| matches!(queue.stage, OperateStage::Waiting(_)));
        let ready: Vec<BackendName> =
            waiting.map(|(backend, _)| backend).filter(|backend| !is_busy(backend)).cloned().collect();
        for backend in ready {
            self.start_operation(backend);
        }
    }

    fn start_operation(&mut self, backend: BackendName) {
        let Some(queue) = self.operations.0.get_mut(&backend) else { return };
        let OperateStage::Waiting(call) = std::mem::replace(&mut queue.stage, OperateStage::Answered) else { return };
        match self.operate_job(&call) {
            // The table says nothing of orders, so the answer need not wait for it.
            Err(error) => drop(call.answer_tx.send(Err(Arc::new(error)))),
            Ok(job) => {
                if let Some(queue) = self.operations.0.get_mut(&backend) {
                    queue.stage = OperateStage::UnderWay(call.answer_tx);
                }
                self.spawn(move |executor| {
                    let result = executor.operate(&job).map_err(Arc::new);
                    FinishedWork::Operated { backend, result }
                });
            }
        }
    }

    /// What an order comes down to, if the device is there and nobody holds it.
    fn operate_job(&self, call: &OperateCall) -> Result<OperateJob, ClaimError> {
        let inventory = self.parts.executor.inventory.latest();
        let pool = inventory.pools.get(&call.backend);
        let device = pool.and_then(|pool| pool.devices.iter().find(|device| device.name == call.device));
        let device = device.ok_or_else(|| ClaimError::NoSuchDevice {
            pool: pool.map_or_else(|| call.backend.to_string(), |pool| pool.name.clone()),
            device: call.device.clone(),
        })?;
        let held = self.held_devices();
        let own = || held.iter().filter(|held| held.device.backend == call.backend);
        let holds = |grant: &Grant| grant.access == Access::Use && grant.device == call.device;
        if let Some(holder) = own().find(|held| holds(&held.device.grant)) {
            let holder = format!("{} ({})", holder.uid, holder.name);
            return Err(ClaimError::Held { device: call.device.clone(), holder });
        }
        Ok(OperateJob {
            backend: call.backend.clone(),
            device: device.clone(),
            operation: call.operation,
            held: own().map(OwnedHeldGrant::of).collect(),
        })
    }

    /// Passes on what a backend made of an order. Its claims wait on, until the hardware is scanned.
    pub(super) fn finish_operation(&mut self, backend: &BackendName, result: ClaimResult<OperationOutcome>) {
        let Some(queue) = self.operations.0.get_mut(backend) else { return };
        if let OperateStage::UnderWay(answer_tx) = std::mem::replace(&mut queue.stage, OperateStage::Answered) {
            // Whoever ordered may have stopped waiting; it was done all the same.
            drop(answer_tx.send(result));
        }
    }

    /// The inventory knows what an order has changed: the next one starts, or what was parked goes on.
    pub(super) fn end_operation(&mut self, backend: &BackendName) {
        let Some(queue) = self.operations.0.get_mut(backend) else { return };
        if let Some(next) = queue.next.pop_front() {
            queue.stage = OperateStage::Waiting(next);
            self.start_operations();
            return;
        }
        let parked = self.operations.0.remove(backend).map(|queue| queue.parked).unwrap_or_default();
        self.requeue(parked);
    }

    /// Keeps a call for later if there is an order for a backend that it touches; else gives it back.
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

    /// The backends of a claim's devices: as recorded, or as allocated.
    fn backends_of(&self, call: &ClaimCall) -> BTreeSet<BackendName> {
        if let Some(entry) = self.entries.get(&call.uid) {
            return entry.record.devices.iter().map(|device| device.backend.clone()).collect();
        }
        let CallKind::Prepare { allocation: Some(allocation), .. } = &call.kind else { return BTreeSet::new() };
        let inventory = self.parts.executor.inventory.latest();
        let find = |grant: &Grant| inventory.find(&grant.pool, grant.device.as_str()).map(|(name, _)| name.clone());
        allocation.grants.iter().filter_map(find).collect()
    }
}
