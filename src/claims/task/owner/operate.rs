//! An operator's orders for devices. Nothing of the device's backend is admitted, prepared or taken back meanwhile.
//!
//! ```text
//!   waiting ── no work on claims of the backend any more ──► under way ──► answered ── looked at anew ──► over
//!   └──────────────── requests that touch the backend are parked, further orders queue ─────────────────┘
//! ```
//!
//! An order is not recorded: it is carried out to its end, or its failure is told. After a crash it can be given again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use hostler_api::{Access, Allocation, BackendName, ClaimUid, DeviceName};
use hostler_backend::{Device, DeviceOperation};
use tokio::sync::oneshot;

use super::{Answer, Finished, Owner, Waiting};
use crate::claims::{ClaimError, ClaimResult, store::RecordDevice};

/// What is ordered, and where the answer goes.
pub(in crate::claims::task) struct Order {
    pub(in crate::claims::task) backend: BackendName,
    pub(in crate::claims::task) device: DeviceName,
    pub(in crate::claims::task) operation: DeviceOperation,
    pub(in crate::claims::task) answer_tx: oneshot::Sender<ClaimResult<String>>,
}

/// What a backend has to know to carry an order out.
#[derive(Debug)]
pub(in crate::claims) struct OrderJob {
    pub(in crate::claims) backend: BackendName,
    pub(in crate::claims) device: Device,
    pub(in crate::claims) operation: DeviceOperation,
    /// Claim, its name, and what it holds.
    pub(in crate::claims) held: Vec<(ClaimUid, String, RecordDevice)>,
}

/// How far the order of a backend is.
enum Stage {
    Waiting(Order),
    UnderWay(oneshot::Sender<ClaimResult<String>>),
    Answered,
}

/// The orders of one backend.
struct Turn {
    stage: Stage,
    next: VecDeque<Order>,
    parked: VecDeque<Waiting>,
}

/// The orders of all backends that have any.
#[derive(Default)]
pub(super) struct Orders(BTreeMap<BackendName, Turn>);

impl Orders {
    /// Whether hardware is being changed.
    pub(super) fn are_under_way(&self) -> bool {
        self.0.values().any(|turn| matches!(turn.stage, Stage::UnderWay(_)))
    }

    fn turn_of(&mut self, backends: &BTreeSet<BackendName>) -> Option<&mut Turn> {
        self.0.iter_mut().find(|(backend, _)| backends.contains(*backend)).map(|(_, turn)| turn)
    }
}

impl Owner {
    /// Takes an order; it starts when its turn comes.
    pub(super) fn take_order(&mut self, order: Order) {
        let backend = order.backend.clone();
        if let Some(turn) = self.orders.0.get_mut(&backend) {
            turn.next.push_back(order);
            return;
        }
        let turn = Turn { stage: Stage::Waiting(order), next: VecDeque::new(), parked: VecDeque::new() };
        self.orders.0.insert(backend, turn);
        self.start_orders();
    }

    /// Starts every order whose backend has no work on claims any more.
    pub(super) fn start_orders(&mut self) {
        let is_busy = |backend: &BackendName| {
            let mut busy = self.entries.values().filter(|entry| entry.busy.is_some());
            busy.any(|entry| entry.record.devices.iter().any(|device| device.backend == *backend))
        };
        let waiting = self.orders.0.iter().filter(|(_, turn)| matches!(turn.stage, Stage::Waiting(_)));
        let ready: Vec<BackendName> =
            waiting.map(|(backend, _)| backend).filter(|backend| !is_busy(backend)).cloned().collect();
        for backend in ready {
            self.start_order(backend);
        }
    }

    fn start_order(&mut self, backend: BackendName) {
        let Some(turn) = self.orders.0.get_mut(&backend) else { return };
        let Stage::Waiting(order) = std::mem::replace(&mut turn.stage, Stage::Answered) else { return };
        match self.order_job(&order) {
            Err(error) => self.answers.push(Answer::Order(order.answer_tx, Err(Arc::new(error)))),
            Ok(job) => {
                if let Some(turn) = self.orders.0.get_mut(&backend) {
                    turn.stage = Stage::UnderWay(order.answer_tx);
                }
                self.spawn(move |executor| Finished::Ordered(backend, executor.operate(&job).map_err(Arc::new)));
            }
        }
    }

    /// What an order comes down to, if the device is there and nobody holds it.
    fn order_job(&self, order: &Order) -> Result<OrderJob, ClaimError> {
        let inventory = self.parts.executor.inventory.latest();
        let pool = inventory.pools.get(&order.backend);
        let device = pool.and_then(|pool| pool.devices.iter().find(|device| device.name == order.device));
        let device = device.ok_or_else(|| ClaimError::NoSuchDevice {
            pool: pool.map_or_else(|| order.backend.to_string(), |pool| pool.name.clone()),
            device: order.device.clone(),
        })?;
        let holdings = self.holdings();
        let own = || holdings.iter().filter(|holding| holding.device.backend == order.backend);
        let holds = |grant: &hostler_api::Grant| grant.access == Access::Use && grant.device == order.device;
        if let Some(holder) = own().find(|holding| holds(&holding.device.grant)) {
            let holder = format!("{} ({})", holder.uid, holder.name);
            return Err(ClaimError::Held { device: order.device.clone(), holder });
        }
        let held = own().map(|holding| (holding.uid.clone(), holding.name.to_owned(), holding.device.clone()));
        Ok(OrderJob {
            backend: order.backend.clone(),
            device: device.clone(),
            operation: order.operation,
            held: held.collect(),
        })
    }

    /// Passes on what a backend made of an order. Its claims wait on, until somebody has looked at the hardware.
    pub(super) fn finish_order(&mut self, backend: &BackendName, result: ClaimResult<String>) {
        let Some(turn) = self.orders.0.get_mut(backend) else { return };
        if let Stage::UnderWay(answer_tx) = std::mem::replace(&mut turn.stage, Stage::Answered) {
            self.answers.push(Answer::Order(answer_tx, result));
        }
    }

    /// The inventory knows what an order has changed: the next one starts, or what was parked goes on.
    pub(super) fn end_order(&mut self, backend: &BackendName) {
        let Some(turn) = self.orders.0.get_mut(backend) else { return };
        if let Some(next) = turn.next.pop_front() {
            turn.stage = Stage::Waiting(next);
            self.start_orders();
            return;
        }
        let parked = self.orders.0.remove(backend).map(|turn| turn.parked).unwrap_or_default();
        self.requeue(parked);
    }

    /// Keeps a request for later if there is an order for a backend that it touches; else gives it back.
    pub(super) fn park(&mut self, uid: &ClaimUid, request: Waiting) -> Option<Waiting> {
        if self.orders.0.is_empty() {
            return Some(request);
        }
        let allocation = if let Waiting::Prepare(_, allocation, _) = &request { allocation.as_ref() } else { None };
        let backends = self.backends_of(uid, allocation);
        match self.orders.turn_of(&backends) {
            None => Some(request),
            Some(turn) => {
                turn.parked.push_back(request);
                None
            }
        }
    }

    /// The backends of a claim's devices: as recorded, or as allocated.
    fn backends_of(&self, uid: &ClaimUid, allocation: Option<&Allocation>) -> BTreeSet<BackendName> {
        if let Some(entry) = self.entries.get(uid) {
            return entry.record.devices.iter().map(|device| device.backend.clone()).collect();
        }
        let inventory = self.parts.executor.inventory.latest();
        let grants = allocation.iter().flat_map(|allocation| &allocation.grants);
        grants
            .filter_map(|grant| inventory.find(&grant.pool, grant.device.as_str()).map(|(name, _)| name.clone()))
            .collect()
    }
}
