//! What readers see of the cluster: a value of one moment, which nobody changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use hostler_allocator::plan::{ClusterFacts, DeviceJudge, PlanOptions, Snapshot, StockDevice};
use hostler_api::{ObjectKey, hardware::DeviceState};
use hostler_reconcile::Observed;

use crate::{
    hold::ReservationObject,
    model::{KindStatus, ObservedKind, ReservationMarks},
    provision::ProvisionObjects,
    stock::ClusterStock,
};

/// The cluster at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterView {
    /// Everything that decides what fits where.
    pub(crate) facts: ClusterFacts,
    /// What there is, counted.
    pub(crate) stock: ClusterStock,
    /// Whose scheduler the cluster has.
    pub(crate) options: PlanOptions,
    /// How far each kind is known.
    pub(crate) kinds: BTreeMap<ObservedKind, KindStatus>,
    /// For questions. Views that differ in nothing that answers depend on share it.
    pub(crate) planner: Arc<LazySnapshot>,
    /// Claims and pods that were made for Reservations.
    pub(crate) marks: Arc<ReservationMarks>,
    /// Requests for capacity, and what belongs to them.
    pub(crate) provisioning: Arc<ProvisionObjects>,
    /// What is kept for whom, by the name of the Reservation.
    pub(crate) reservations: Arc<BTreeMap<String, Arc<ReservationObject>>>,
    /// Claims that were made for pods from templates, and were given nothing yet.
    pub(crate) waiting_claims: Arc<BTreeSet<ObjectKey>>,
}

/// A snapshot for the planner, which is made when somebody asks for the first time.
#[derive(Debug, Default)]
pub(crate) struct LazySnapshot {
    facts: ClusterFacts,
    snapshot: OnceLock<Snapshot>,
}

impl LazySnapshot {
    /// One of the cluster as `facts` tell.
    pub(crate) fn new(facts: ClusterFacts) -> Self {
        Self { facts, snapshot: OnceLock::new() }
    }

    /// Which facts it is of.
    pub(crate) fn revision(&self) -> u64 {
        self.facts.revision()
    }

    /// The snapshot. In a large cluster that takes a tenth of a second the first time: not for threads that must not wait.
    pub(crate) fn get(&self) -> &Snapshot {
        self.snapshot.get_or_init(|| Snapshot::new(self.facts.clone()))
    }
}

impl Observed for ClusterView {
    fn is_complete(&self) -> bool {
        self.missing().is_empty()
    }
}

impl ClusterView {
    /// Kinds of which no complete list was seen yet.
    pub(crate) fn missing(&self) -> Vec<ObservedKind> {
        let is_missing = |kind: &ObservedKind| self.kinds.get(kind).is_none_or(|status| !status.is_synced);
        ObservedKind::ALL.into_iter().filter(is_missing).collect()
    }

    /// The devices of a node, one by one: by pool, in the order of their slices.
    pub(crate) fn devices(&self, node: &str) -> Vec<StockDevice> {
        let Some(summary) = self.stock.nodes.get(node) else { return Vec::new() };
        // Classes are few and compiled in a millisecond; nobody looks at more than one node at a time.
        let mut judge = DeviceJudge::new(&self.facts, &self.options);
        let of_pools = summary.pools.iter().flat_map(|pool| judge.devices(&self.facts, *pool));
        let mut devices: Vec<StockDevice> = of_pools.filter(|device| device.node.as_deref() == Some(node)).collect();
        devices.iter_mut().filter(|device| summary.is_unknown(device)).for_each(forget);
        devices
    }
}

/// Nothing is known of it any more.
fn forget(device: &mut StockDevice) {
    device.state = DeviceState::Unknown;
    for (_, amounts) in &mut device.amounts {
        *amounts = hostler_api::hardware::AmountCounts { capacity: amounts.capacity, ..Default::default() };
    }
}
