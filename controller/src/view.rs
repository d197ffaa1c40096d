//! The cluster as readers see it: an immutable value of one moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use hostler_allocator::plan::{ClusterFacts, DeviceJudge, PlanOptions, Snapshot, StockDevice};
use hostler_api::{ObjectKey, hardware::DeviceState};
use hostler_reconcile::{ObjectStamp, Observed};

use crate::{
    daemons::DaemonPods,
    observed::{FabricObjects, KindStatus, ObservedKind, ReservationMarks},
    requests::ProvisionObjects,
    reservation_object::ReservationObject,
    stock::ClusterStock,
    unscheduled_pods::UnscheduledPods,
};

/// The cluster at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterView {
    /// Everything that decides what fits where.
    pub(crate) facts: ClusterFacts,
    /// The stock of devices, counted.
    pub(crate) stock: ClusterStock,
    /// Options of the planner for the cluster's scheduler.
    pub(crate) options: PlanOptions,
    /// State of what is known of each kind.
    pub(crate) kinds: BTreeMap<ObservedKind, KindStatus>,
    /// The planner's snapshot. Views that differ in nothing that answers depend on share it.
    pub(crate) planner: Arc<LazySnapshot>,
    /// Claims and pods that were made for Reservations.
    pub(crate) marks: Arc<ReservationMarks>,
    /// Requests for capacity, and what belongs to them.
    pub(crate) provisioning: Arc<ProvisionObjects>,
    /// Reservations, by name.
    pub(crate) reservations: Arc<BTreeMap<String, Arc<ReservationObject>>>,
    /// Reservations of Koordinator, by name.
    pub(crate) koordinator: Arc<BTreeMap<String, ObjectStamp>>,
    /// Devices behind switches, as the cluster tells of them.
    pub(crate) fabric: Arc<FabricObjects>,
    /// Claims that were made for pods from templates, and were given nothing yet.
    pub(crate) waiting_claims: Arc<BTreeSet<ObjectKey>>,
    /// Pods of the daemon.
    pub(crate) daemons: Arc<DaemonPods>,
    /// Pods that wait for a node.
    pub(crate) unscheduled_pods: Arc<UnscheduledPods>,
}

/// A snapshot for the planner, which is made when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct LazySnapshot {
    facts: ClusterFacts,
    snapshot: OnceLock<Snapshot>,
}

impl LazySnapshot {
    /// Makes a snapshot of the cluster as `facts` tell.
    pub(crate) fn new(facts: ClusterFacts) -> Self {
        Self { facts, snapshot: OnceLock::new() }
    }

    /// Returns the revision of its facts.
    pub(crate) fn revision(&self) -> u64 {
        self.facts.revision()
    }

    /// Returns the snapshot. In a large cluster that takes a tenth of a second the first time: not for threads that
    /// must not wait.
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
    /// Returns kinds of which no complete list was seen yet.
    pub(crate) fn missing(&self) -> Vec<ObservedKind> {
        let is_missing = |kind: &ObservedKind| self.kinds.get(kind).is_none_or(|status| !status.is_synced);
        ObservedKind::ALL.into_iter().filter(is_missing).collect()
    }

    /// Returns the devices of a node, one by one: by pool, in the order of their slices.
    pub(crate) fn devices(&self, node: &str) -> Vec<StockDevice> {
        let Some(summary) = self.stock.nodes.get(node) else { return Vec::new() };
        // Classes are few and compiled in a millisecond; readers look at one node at a time.
        let mut judge = DeviceJudge::new(&self.facts, &self.options);
        let of_pools = summary.pools.iter().flat_map(|pool| judge.devices(&self.facts, *pool));
        let mut devices: Vec<StockDevice> = of_pools.filter(|device| device.node.as_deref() == Some(node)).collect();
        devices.iter_mut().filter(|device| summary.is_unknown(device)).for_each(forget);
        devices
    }
}

/// Marks a device as unknown.
fn forget(device: &mut StockDevice) {
    device.state = DeviceState::Unknown;
    for (_, amounts) in &mut device.amounts {
        *amounts = hostler_api::hardware::AmountCounts { capacity: amounts.capacity, ..Default::default() };
    }
}
