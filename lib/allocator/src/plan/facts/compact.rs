//! Compaction of the store. Names of pods, claims and their owners come and go for ever; texts and columns that no
//! object refers to are never removed one by one, so that a number keeps its meaning as long as it may be in use.
//! They are removed all at once, as soon as they make up more than half of the store.

use std::{collections::BTreeSet, sync::Arc};

use super::{ClusterFacts, PackedClaim, Store};
use crate::plan::sequences::GONE;
use hostler_api::{ObjectKey, SharedMap};

/// Size of the store below which compaction does not pay; tests have small clusters.
const SMALL: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// Maps old numbers of texts and columns to new ones.
pub(super) trait Renumbering {
    fn text(&mut self, number: u32) -> u32;
    fn column(&mut self, number: u32) -> u32;
}

/// Marks of the texts and columns that objects refer to.
struct Living {
    texts: Vec<bool>,
    columns: Vec<bool>,
}

/// New numbers, by the old ones.
struct Moved {
    texts: Vec<u32>,
    columns: Vec<u32>,
}

impl Renumbering for Living {
    fn text(&mut self, number: u32) -> u32 {
        mark(&mut self.texts, number);
        number
    }

    fn column(&mut self, number: u32) -> u32 {
        mark(&mut self.columns, number);
        number
    }
}

impl Renumbering for Moved {
    fn text(&mut self, number: u32) -> u32 {
        moved(&self.texts, number)
    }

    fn column(&mut self, number: u32) -> u32 {
        moved(&self.columns, number)
    }
}

fn mark(living: &mut [bool], number: u32) {
    if let Some(is_alive) = living.get_mut(number as usize) {
        *is_alive = true;
    }
}

fn moved(numbers: &[u32], number: u32) -> u32 {
    numbers.get(number as usize).copied().unwrap_or(GONE)
}

impl Store {
    fn size(&self) -> usize {
        self.texts.size() + self.columns.size()
    }
}

impl Living {
    fn of(facts: &ClusterFacts) -> Self {
        let Store { texts, columns } = &facts.store;
        let mut living = Self { texts: vec![false; texts.len()], columns: vec![false; columns.len()] };
        facts.slices.values().for_each(|slice| drop(slice.renumbered(&mut living)));
        facts.claims.values().for_each(|claim| drop(claim.renumbered(&mut living)));
        facts.pods.values().for_each(|pod| _ = pod.renumbered(&mut living));
        let columns = living.columns.iter().zip(0..).filter(|(is_alive, _)| **is_alive);
        for number in columns.flat_map(|(_, number)| facts.store.columns.get(number)) {
            mark(&mut living.texts, *number);
        }
        living
    }

    /// Size of the entries that objects refer to.
    fn size(&self, store: &Store) -> usize {
        let of_texts = sizes(&self.texts, |number| store.texts.get(number).len());
        of_texts + sizes(&self.columns, |number| size_of_val(store.columns.get(number)))
    }
}

/// Returns the total size of living sequences, each with the number that marks its end.
fn sizes(living: &[bool], size: impl Fn(u32) -> usize) -> usize {
    living.iter().zip(0..).filter(|(is_alive, _)| **is_alive).map(|(_, number)| size(number) + size_of::<u32>()).sum()
}

impl ClusterFacts {
    /// Searches for unreferenced entries whenever the store is twice as large as after the last search, and compacts
    /// it if they are more than half.
    pub(super) fn compact_if_due(&mut self) {
        let size = self.store.size();
        if size < SMALL.max(2 * self.looked_at) {
            return;
        }
        let living = Living::of(self);
        if living.size(&self.store) < size / 2 {
            self.compact(&living);
        }
        self.looked_at = self.store.size();
    }

    /// Removes all unreferenced entries. Every number of a text or column that is still in use changes.
    fn compact(&mut self, living: &Living) {
        let texts = self.store.texts.retain(&living.texts);
        let columns = self.store.columns.retain(&living.columns, |number| moved(&texts, number));
        let mut moved = Moved { texts, columns };
        for slice in self.slices.values_mut() {
            *slice = Arc::new(slice.renumbered(&mut moved));
        }
        for claim in self.claims.values_mut() {
            *claim = Arc::new(claim.renumbered(&mut moved));
        }
        for pod in self.pods.values_mut() {
            *pod = pod.renumbered(&mut moved);
        }
        self.put_into_pools();
        self.changes.classes();
        self.changes.pools = BTreeSet::new();
    }

    /// Makes the pools anew, of all slices and claims.
    fn put_into_pools(&mut self) {
        self.pools = SharedMap::default();
        for (name, slice) in self.slices.iter() {
            self.pools.get_or_default(slice.pool_key()).slices.push(name.clone());
        }
        let claims: Vec<(Arc<ObjectKey>, Arc<PackedClaim>)> =
            self.claims.iter().map(|(key, claim)| (key.clone(), claim.clone())).collect();
        claims.into_iter().for_each(|(key, claim)| self.give(&key, &claim));
    }
}

#[cfg(test)]
mod tests;
