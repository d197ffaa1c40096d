//! Sums over nodes. A changed node is subtracted as it was and added as it is; numbers are whole, so nothing of its
//! former state is left.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::{
    Quantity,
    hardware::{AmountCounts, DeviceTotals},
};

use super::node::NodeSummary;

/// Devices, and the amounts of the capacities that they share.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// Number of devices in each state.
    pub(crate) totals: DeviceTotals,
    /// Amounts by name of the capacity.
    pub(crate) amounts: BTreeMap<Arc<str>, AmountCounts>,
    /// Number of held devices, by the value of the taint that names the Reservation.
    pub(crate) held_for: BTreeMap<Arc<str>, u32>,
}

/// Sums over all devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClusterSums {
    /// All devices, each counted once.
    pub(crate) all: Tally,
    /// Devices by class. A device that several classes select is in each of them.
    pub(crate) classes: BTreeMap<Arc<str>, Tally>,
    /// Devices that no class selects.
    pub(crate) of_no_class: Tally,
    /// Devices that claims of each namespace have. A device of which two namespaces have parts is in both.
    pub(crate) namespaces: BTreeMap<Arc<str>, Tally>,
    /// Devices of which no claim of the cluster has any part.
    pub(crate) of_nobody: DeviceTotals,
}

/// The direction of a change of a sum.
#[derive(Clone, Copy, Debug)]
enum Direction {
    In,
    Out,
}

impl Direction {
    fn number(self, sum: u32, part: u32) -> u32 {
        match self {
            Self::In => sum.wrapping_add(part),
            Self::Out => sum.wrapping_sub(part),
        }
    }

    fn quantity(self, sum: Quantity, part: Quantity) -> Quantity {
        match self {
            Self::In => sum.plus(part),
            Self::Out => sum.minus(part),
        }
    }

    fn totals(self, sum: &mut DeviceTotals, part: &DeviceTotals) {
        *sum = DeviceTotals {
            capacity: self.number(sum.capacity, part.capacity),
            allocatable: self.number(sum.allocatable, part.allocatable),
            allocated: self.number(sum.allocated, part.allocated),
            held: self.number(sum.held, part.held),
            unhealthy: self.number(sum.unhealthy, part.unhealthy),
            drained: self.number(sum.drained, part.drained),
            unknown: self.number(sum.unknown, part.unknown),
            blocked: self.number(sum.blocked, part.blocked),
            free: self.number(sum.free, part.free),
        };
    }

    fn tally(self, sum: &mut Tally, part: &Tally) {
        self.totals(&mut sum.totals, &part.totals);
        for (name, part) in &part.amounts {
            let amounts = sum.amounts.entry(name.clone()).or_default();
            *amounts = AmountCounts {
                capacity: self.quantity(amounts.capacity, part.capacity),
                allocatable: self.quantity(amounts.allocatable, part.allocatable),
                allocated: self.quantity(amounts.allocated, part.allocated),
                free: self.quantity(amounts.free, part.free),
            };
        }
        sum.amounts.retain(|_, amounts| *amounts != AmountCounts::default());
        for (value, part) in &part.held_for {
            let count = sum.held_for.entry(value.clone()).or_default();
            *count = self.number(*count, *part);
            // Only touched entries are visited: there may be thousands of Reservations.
            if *count == 0 {
                sum.held_for.remove(value);
            }
        }
    }

    fn node(self, sums: &mut ClusterSums, node: &NodeSummary) {
        for cell in &node.cells {
            self.tally(&mut sums.all, &cell.tally);
            self.totals(&mut sums.of_nobody, &cell.of_nobody);
            if cell.kind.classes.is_empty() {
                self.tally(&mut sums.of_no_class, &cell.tally);
            }
            for class in cell.kind.classes.iter() {
                self.tally(sums.classes.entry(class.clone()).or_default(), &cell.tally);
            }
        }
        for cell in &node.given {
            self.tally(sums.namespaces.entry(cell.namespace.clone()).or_default(), &cell.tally);
        }
        if let Self::Out = self {
            sums.namespaces.retain(|_, tally| tally.totals.capacity > 0);
        }
    }
}

/// Adds devices to others.
pub(crate) fn add_totals(sum: &mut DeviceTotals, part: &DeviceTotals) {
    Direction::In.totals(sum, part);
}

/// Subtracts devices that are part of the sum.
pub(super) fn subtract_totals(sum: &mut DeviceTotals, part: &DeviceTotals) {
    Direction::Out.totals(sum, part);
}

impl Tally {
    /// Adds the counts of another tally.
    pub(crate) fn add(&mut self, other: &Self) {
        Direction::In.tally(self, other);
    }

    /// Marks the devices as unknown: only their number is left.
    pub(super) fn forget(&mut self) {
        let capacity = self.totals.capacity;
        self.totals = DeviceTotals { capacity, unknown: capacity, ..DeviceTotals::default() };
        self.held_for.clear();
        for amounts in self.amounts.values_mut() {
            *amounts = AmountCounts { capacity: amounts.capacity, ..AmountCounts::default() };
        }
    }
}

impl ClusterSums {
    /// Makes sums of no devices, with these classes.
    pub(super) fn of_classes<'c>(classes: impl Iterator<Item = &'c str>) -> Self {
        Self { classes: classes.map(|class| (class.into(), Tally::default())).collect(), ..Self::default() }
    }

    /// Replaces a node's former state by its present state.
    pub(super) fn replace(&mut self, old: Option<&NodeSummary>, new: &NodeSummary) {
        old.iter().for_each(|old| Direction::Out.node(self, old));
        Direction::In.node(self, new);
    }

    /// Removes a node that is not there any more.
    pub(super) fn remove(&mut self, old: &NodeSummary) {
        Direction::Out.node(self, old);
    }
}
