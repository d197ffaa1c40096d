//! Parts of devices that several claims share.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::{
    ExactQuantity, Quantity,
    hardware::{AmountCounts, DeviceState, Occupancy, PartsLeft},
};

use super::kinds::SharedCapacity;
use crate::plan::facts::{PoolGiven, Store, from_json};

/// Returns the amounts that one claim has of a shared device, by capacity; a claim without parts has all of it.
pub(super) fn consumed(given: &PoolGiven, capacities: &[SharedCapacity], store: &Store) -> Vec<ExactQuantity> {
    let Some(consumed) = given.consumed else { return capacities.iter().map(|it| it.all).collect() };
    let parts: BTreeMap<String, ExactQuantity> = from_json(&store.texts, consumed).unwrap_or_default();
    capacities.iter().map(|it| parts.get(&*it.name).copied().unwrap_or(ExactQuantity::ZERO)).collect()
}

/// Returns the amounts that all claims on a device have together.
pub(super) fn used(given: &[&PoolGiven], capacities: &[SharedCapacity], store: &Store) -> Vec<ExactQuantity> {
    let mut used = vec![ExactQuantity::ZERO; capacities.len()];
    for parts in given.iter().map(|given| consumed(given, capacities, store)) {
        used.iter_mut().zip(parts).for_each(|(used, part)| *used = used.plus(part));
    }
    used
}

/// Returns the occupancy: can another claim have a part?
pub(super) fn occupancy(used: &[ExactQuantity], capacities: &[SharedCapacity]) -> Occupancy {
    let left =
        capacities.iter().zip(used).map(|(it, used)| PartsLeft { left: it.all.minus(*used), smallest: it.smallest });
    Occupancy::of_shared(left)
}

/// Counts the capacities of a device: the whole, and the parts that are allocated and free.
pub(super) fn counts(
    used: &[ExactQuantity],
    capacities: &[SharedCapacity],
    state: DeviceState,
    is_allocatable: bool,
) -> Vec<(Arc<str>, AmountCounts)> {
    let count = |(it, used): (&SharedCapacity, &ExactQuantity)| {
        let (capacity, allocated) = (counted(it.all), counted(*used));
        let amounts = AmountCounts {
            capacity,
            allocatable: if is_allocatable { capacity } else { Quantity::default() },
            allocated,
            free: if state == DeviceState::Free { capacity.minus(allocated) } else { Quantity::default() },
        };
        (it.name.clone(), amounts)
    };
    capacities.iter().zip(used).map(count).collect()
}

/// Returns the amount as it is counted. An amount too large to count is none: no claim could ask for it.
pub(super) fn counted(amount: ExactQuantity) -> Quantity {
    Quantity::try_from(amount).unwrap_or_default()
}
