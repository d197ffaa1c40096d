//! Counts of devices, and the amounts that they share, added to sums and taken out of them. Numbers are whole, so nothing
//! of what is taken out is left.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::{
    Quantity,
    hardware::{AmountCounts, DeviceTotals},
};

/// Devices, and the amounts of the capacities that they share.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// Number of devices in each state.
    pub(crate) totals: DeviceTotals,
    /// By name of the capacity.
    pub(crate) amounts: BTreeMap<Arc<str>, AmountCounts>,
    /// How many are held, by the value of the taint that says for whom.
    pub(crate) held_for: BTreeMap<Arc<str>, u32>,
}

/// The direction of a change of a sum.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
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

    pub(super) fn totals(self, sum: &mut DeviceTotals, part: &DeviceTotals) {
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

    pub(super) fn tally(self, sum: &mut Tally, part: &Tally) {
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
            // Only those that were touched are looked at: of all Reservations there may be thousands.
            if *count == 0 {
                sum.held_for.remove(value);
            }
        }
    }
}

/// Adds devices to others.
pub(crate) fn add_totals(sum: &mut DeviceTotals, part: &DeviceTotals) {
    Direction::In.totals(sum, part);
}

/// Takes devices away that are among the others.
pub(super) fn subtract_totals(sum: &mut DeviceTotals, part: &DeviceTotals) {
    Direction::Out.totals(sum, part);
}

impl Tally {
    /// Adds what is counted elsewhere.
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
