//! Counters that devices of a pool draw on: a partition whose counters others have used up is given to no claim.

use std::collections::HashMap;

use hostler_api::ExactQuantity;

use super::kinds::{CounterKey, KindFacts};
use crate::plan::facts::{PackedSlice, Store};

/// Remaining amounts of the counters of a pool, by set and name.
#[derive(Debug, Default)]
pub(super) struct CountersLeft(HashMap<CounterKey, ExactQuantity>);

impl CountersLeft {
    /// Returns the full counters of these slices.
    pub(super) fn of<'a>(slices: impl Iterator<Item = &'a PackedSlice>, store: &Store) -> Self {
        let mut left = Self::default();
        for set in slices.filter(|slice| slice.has_counters).flat_map(|slice| slice.frame(store).shared_counters) {
            for (name, counter) in set.counters.iter() {
                left.0.insert((set.name.clone(), name.into()), counter.value.get().unwrap_or_default());
            }
        }
        left
    }

    /// Takes the counters that a device draws on.
    pub(super) fn take(&mut self, device: &KindFacts) {
        for counter in &device.consumes {
            if let Some(left) = self.0.get_mut(&counter.key) {
                *left = left.minus(counter.amount);
            }
        }
    }

    /// Returns true if there is enough left for a device.
    pub(super) fn is_enough(&self, device: &KindFacts) -> bool {
        device.consumes.iter().all(|counter| self.0.get(&counter.key).is_some_and(|left| *left >= counter.amount))
    }
}
