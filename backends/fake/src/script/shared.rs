//! What devices share with each other and what they tell the scheduler: counters, conditions, the node's own resources.

use std::collections::BTreeMap;

use hostler_api::{DeviceName, QualifiedName, Quantity};
use hostler_backend::{Binding, CounterSet, CounterUse, NodeAllocatable};
use serde::Deserialize;

use super::{
    mistake::{Mistake, Place},
    raw::{fill_name, numbers},
    values::Amount,
};

/// One `[[counter_set]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CounterSetEntry {
    name: String,
    count: Option<usize>,
    counters: BTreeMap<DeviceName, Amount>,
}

/// One of a device's `consumes`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CounterUseEntry {
    pub(super) set: String,
    counters: BTreeMap<DeviceName, Amount>,
}

/// A device's `binding`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BindingEntry {
    #[serde(default)]
    binds_to_node: bool,
    #[serde(default)]
    conditions: Vec<String>,
    #[serde(default)]
    failure_conditions: Vec<String>,
}

/// One of a device's `node_allocatable`: `{ capacity, factor }` or `{ device }`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeAllocatableEntry {
    capacity: Option<QualifiedName>,
    factor: Option<Amount>,
    device: Option<Amount>,
}

impl BindingEntry {
    /// Every text, to be filled with a device's number.
    pub(super) fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        self.conditions.iter_mut().chain(&mut self.failure_conditions)
    }

    pub(super) fn binding(self) -> Binding {
        let Self { binds_to_node, conditions, failure_conditions } = self;
        Binding { binds_to_node, conditions, failure_conditions }
    }
}

/// The sets of all entries.
pub(super) fn counter_sets(entries: Vec<CounterSetEntry>) -> Result<Vec<CounterSet>, Mistake> {
    let mut sets: Vec<CounterSet> = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let place = Place::default().key("counter_set").index(index);
        for number in numbers(entry.count, &place)? {
            let set = entry.clone().set(number, &place)?;
            if sets.iter().any(|earlier| earlier.name == set.name) {
                let reason = format!("{} is taken by an earlier counter set; choose another", set.name);
                return Err(place.key("name").mistake(reason));
            }
            sets.push(set);
        }
    }
    Ok(sets)
}

impl CounterSetEntry {
    fn set(mut self, number: usize, place: &Place) -> Result<CounterSet, Mistake> {
        fill_name(&mut self.name, self.count, number);
        let set = CounterSet { name: device_name(self.name, &place.key("name"))?, counters: amounts(self.counters) };
        match set.problems().into_iter().next() {
            Some(problem) => Err(place.path(&problem.field).mistake(problem.reason)),
            None => Ok(set),
        }
    }
}

/// What a device takes of counters.
pub(super) fn consumes(entries: Vec<CounterUseEntry>, place: &Place) -> Result<Vec<CounterUse>, Mistake> {
    let taken = |(index, entry): (usize, CounterUseEntry)| {
        let place = place.key("consumes").index(index).key("set");
        Ok(CounterUse { set: device_name(entry.set, &place)?, counters: amounts(entry.counters) })
    };
    entries.into_iter().enumerate().map(taken).collect()
}

/// What a device stands for of the node's own resources.
pub(super) fn node_allocatable(
    entries: BTreeMap<String, NodeAllocatableEntry>,
    place: &Place,
) -> Result<BTreeMap<String, NodeAllocatable>, Mistake> {
    let stands_for = |(name, entry): (String, NodeAllocatableEntry)| {
        let amount = match (entry.capacity, entry.factor, entry.device) {
            (Some(capacity), factor, None) => {
                let factor = factor.map_or(Quantity::whole(1), |Amount(factor)| factor);
                NodeAllocatable::PerCapacity { capacity, factor }
            }
            (None, None, Some(Amount(amount))) => NodeAllocatable::PerDevice(amount),
            _ => {
                let reason = "write { capacity = \"…\", factor = … } or { device = … }";
                return Err(place.key("node_allocatable").key(name).mistake(reason));
            }
        };
        Ok((name, amount))
    };
    entries.into_iter().map(stands_for).collect()
}

fn device_name(name: String, place: &Place) -> Result<DeviceName, Mistake> {
    DeviceName::new(name).map_err(|error| place.mistake(error.to_string()))
}

fn amounts(amounts: BTreeMap<DeviceName, Amount>) -> BTreeMap<DeviceName, Quantity> {
    amounts.into_iter().map(|(name, Amount(amount))| (name, amount)).collect()
}
