//! One node: its devices by the cluster's objects, corrected by the report of its own daemon.

use std::{collections::BTreeMap, sync::Arc};

use hostler_allocator::plan::{DeviceGroup, DeviceKind, GivenDevices, PoolId, PoolStock, StockDevice};
use hostler_api::{
    Quantity,
    hardware::{AmountCounts, DeviceTotals},
};

use super::tally::{Tally, add_totals, subtract_totals};
use crate::reports::{NodeReport, ReportFreshness, ReportedPool, ReportedRow};

/// A node, and its devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeSummary {
    /// True if the node exists. Nothing is known of the devices of a node that is gone.
    pub(crate) is_there: bool,
    /// True if the node's kubelet says that it is ready.
    pub(crate) is_ready: bool,
    /// True if new pods can be scheduled to the node.
    pub(crate) is_schedulable: bool,
    /// Freshness of the report of the node's daemon, if there is one.
    pub(crate) report: Option<ReportFreshness>,
    /// Troubles that the node's daemon reports.
    pub(crate) troubles: Box<[Arc<str>]>,
    /// Devices of the node, by kind.
    pub(crate) cells: Vec<NodeCell>,
    /// Devices that claims have, by namespace.
    pub(crate) given: Vec<NamespaceCell>,
    /// The pools of the node's devices.
    pub(crate) pools: Vec<PoolId>,
    /// The driver whose devices are unknown, since its daemon is silent.
    silent_driver: Option<Arc<str>>,
    /// Pools of which the daemon knows nothing.
    unread_pools: Vec<Arc<str>>,
}

/// Devices of a node that are alike.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeCell {
    /// The kind of the devices.
    pub(crate) kind: Arc<DeviceKind>,
    /// Counts of the devices.
    pub(crate) tally: Tally,
    /// Counts of those devices of which no claim of the cluster has any part.
    pub(crate) of_nobody: DeviceTotals,
}

/// Devices of a node that claims of a namespace have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamespaceCell {
    /// The namespace.
    pub(crate) namespace: Arc<str>,
    /// The kind of the devices.
    pub(crate) kind: Arc<DeviceKind>,
    /// Counts of the devices.
    pub(crate) tally: Tally,
}

/// Facts about a node beside its devices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeFacts<'a> {
    /// The node's object; `None` if it is gone.
    pub(super) node: Option<&'a hostler_api::core::Node>,
    pub(super) report: Option<&'a NodeReport>,
}

impl<'a> NodeFacts<'a> {
    fn silent_driver(&self) -> Option<Arc<str>> {
        self.report.filter(|it| it.freshness == ReportFreshness::Unknown).map(|it| it.hardware.driver.clone())
    }

    fn pools(&self) -> impl Iterator<Item = &'a ReportedPool> + use<'a> {
        self.report.into_iter().flat_map(|report| &report.hardware.pools)
    }
}

impl NodeSummary {
    /// Makes the summary of the devices of a node, or of those on no node, with the pools that have devices there.
    pub(super) fn new<'s>(
        place: Option<&Arc<str>>,
        facts: NodeFacts<'_>,
        pools: impl Iterator<Item = (PoolId, &'s PoolStock)>,
    ) -> Self {
        let mut summary = Self {
            is_there: facts.node.is_some(),
            is_ready: facts.node.is_some_and(hostler_api::core::Node::is_ready),
            is_schedulable: facts.node.is_some_and(|node| !node.spec.unschedulable),
            report: facts.report.map(|report| report.freshness),
            troubles: facts.report.map(|report| report.hardware.troubles.clone()).unwrap_or_default(),
            silent_driver: facts.silent_driver(),
            unread_pools: facts.pools().filter(|pool| !pool.is_known).map(|pool| pool.pool.clone()).collect(),
            ..Self::default()
        };
        let (mut cells, mut given) = (BTreeMap::new(), BTreeMap::new());
        for (id, pool) in pools {
            summary.pools.push(id);
            summary.cells_of(place, facts, pool).into_iter().for_each(|cell| add_cell(&mut cells, cell));
            summary.given_of(place, pool).into_iter().for_each(|cell| add_given(&mut given, cell));
        }
        summary.cells = cells.into_values().collect();
        summary.given = given.into_values().collect();
        summary
    }

    /// True if the state of the device is unknown.
    pub(crate) fn is_unknown(&self, device: &StockDevice) -> bool {
        self.knows_nothing(device.node.as_ref(), &device.pool, &device.kind)
    }

    fn knows_nothing(&self, place: Option<&Arc<str>>, pool: &Arc<str>, kind: &DeviceKind) -> bool {
        let is_silent = self.silent_driver.as_ref() == Some(&kind.driver) || self.unread_pools.contains(pool);
        place.is_some() && (!self.is_there || is_silent)
    }

    /// Returns the devices of a pool that belong to the node.
    fn cells_of(&self, place: Option<&Arc<str>>, facts: NodeFacts<'_>, pool: &PoolStock) -> Vec<NodeCell> {
        let groups = pool.groups.iter().filter(|group| group.node.as_ref() == place);
        let mut cells: Vec<NodeCell> = groups.map(NodeCell::new).collect();
        let reported = facts.pools().filter(|reported| reported.pool == pool.pool);
        reported.flat_map(|reported| &reported.rows).for_each(|row| allocate(&mut cells, row));
        let is_unknown = |cell: &&mut NodeCell| self.knows_nothing(place, &pool.pool, &cell.kind);
        cells.iter_mut().filter(is_unknown).for_each(NodeCell::forget);
        cells
    }

    /// Returns the devices of a pool on the node that claims have.
    fn given_of(&self, place: Option<&Arc<str>>, pool: &PoolStock) -> Vec<NamespaceCell> {
        let given = pool.given.iter().filter(|given| given.node.as_ref() == place);
        let cell = |given: &GivenDevices| {
            let mut cell = NamespaceCell::new(given);
            if self.knows_nothing(place, &pool.pool, &given.kind) {
                cell.tally.forget();
            }
            cell
        };
        given.map(cell).collect()
    }

    /// All devices of the node.
    #[cfg(test)]
    pub(crate) fn tally(&self) -> Tally {
        let mut all = Tally::default();
        self.cells.iter().for_each(|cell| all.add(&cell.tally));
        all
    }
}

fn add_cell(cells: &mut BTreeMap<Arc<DeviceKind>, NodeCell>, cell: NodeCell) {
    match cells.get_mut(&cell.kind) {
        Some(known) => {
            known.tally.add(&cell.tally);
            add_totals(&mut known.of_nobody, &cell.of_nobody);
        }
        None => drop(cells.insert(cell.kind.clone(), cell)),
    }
}

fn add_given(cells: &mut BTreeMap<(Arc<str>, Arc<DeviceKind>), NamespaceCell>, cell: NamespaceCell) {
    match cells.get_mut(&(cell.namespace.clone(), cell.kind.clone())) {
        Some(known) => known.tally.add(&cell.tally),
        None => drop(cells.insert((cell.namespace.clone(), cell.kind.clone()), cell)),
    }
}

/// Returns the amount that a claim has, as if it were the whole capacity.
fn had(amount: Quantity) -> AmountCounts {
    AmountCounts { capacity: amount, allocatable: amount, allocated: amount, free: Quantity::default() }
}

/// Marks devices of claims that only the daemon knows: claims that were made on the node itself. The report does not
/// name their devices; so many of the devices that look free are not.
fn allocate(cells: &mut [NodeCell], row: &ReportedRow) {
    let is_of_row =
        |cell: &&mut NodeCell| cell.kind.numa_node == row.numa_node && cell.kind.classes.contains(&row.class);
    let mut of_row: Vec<&mut NodeCell> = cells.iter_mut().filter(is_of_row).collect();
    let known: u32 = of_row.iter().map(|cell| cell.tally.totals.allocated).sum();
    let mut more = row.allocated.saturating_sub(known);
    for cell in &mut of_row {
        let moved = more.min(cell.tally.totals.free);
        more -= moved;
        for totals in [&mut cell.tally.totals, &mut cell.of_nobody] {
            let moved = moved.min(totals.free);
            totals.free -= moved;
            totals.allocated += moved;
        }
    }
    for (name, reported) in &row.amounts {
        let mut amounts: Vec<&mut AmountCounts> =
            of_row.iter_mut().filter_map(|cell| cell.tally.amounts.get_mut(name)).collect();
        let known = amounts.iter().fold(Quantity::default(), |sum, amounts| sum.plus(amounts.allocated));
        let mut more = reported.minus(known);
        for amounts in &mut amounts {
            let moved = more.min(amounts.free);
            more = more.minus(moved);
            amounts.free = amounts.free.minus(moved);
            amounts.allocated = amounts.allocated.plus(moved);
        }
    }
}

impl NamespaceCell {
    fn new(given: &GivenDevices) -> Self {
        let GivenDevices { namespace, kind, devices, .. } = given;
        let (capacity, allocatable) = (*devices, *devices);
        let totals = DeviceTotals { capacity, allocatable, allocated: capacity, ..DeviceTotals::default() };
        let amounts = given.amounts.iter().map(|(name, amount)| (name.clone(), had(*amount))).collect();
        Self { namespace: namespace.clone(), kind: kind.clone(), tally: Tally { totals, amounts, ..Tally::default() } }
    }
}

impl NodeCell {
    fn new(group: &DeviceGroup) -> Self {
        let (mut totals, mut given) = (DeviceTotals::default(), DeviceTotals::default());
        totals.add(&group.counts);
        given.add(&group.given);
        let mut of_nobody = totals;
        subtract_totals(&mut of_nobody, &given);
        let amounts = group.amounts.iter().cloned().collect();
        let held_for = group.held_for.iter().cloned().collect();
        Self { kind: group.kind.clone(), tally: Tally { totals, amounts, held_for }, of_nobody }
    }

    /// Marks the devices as unknown.
    fn forget(&mut self) {
        self.tally.forget();
        let capacity = self.of_nobody.capacity;
        self.of_nobody = DeviceTotals { capacity, unknown: capacity, ..DeviceTotals::default() };
    }
}
