//! An index from hashes to numbers. The numbered sequences are not in it: they would be held twice.

use std::sync::Arc;

use hashbrown::HashTable;

/// Number of recent entries above which they are merged into the settled ones.
const MOST_RECENT: usize = 4096;

/// Numbers by hash. Copies share all but the newest.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    settled: Arc<HashTable<u32>>,
    /// Entries that came while there was a copy.
    recent: HashTable<u32>,
}

impl Index {
    /// Finds the number with this hash for which `is_meant` holds.
    pub(super) fn find(&self, hash: u64, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        let is_meant = |number: &u32| is_meant(*number);
        self.settled.find(hash, is_meant).or_else(|| self.recent.find(hash, is_meant)).copied()
    }

    /// Adds a number that is not there. `hash_of` tells the hash of each number, this one among them.
    pub(super) fn insert(&mut self, number: u32, hash_of: impl Fn(u32) -> u64) {
        let hash_of = |number: &u32| hash_of(*number);
        let is_settling = self.recent.len() >= MOST_RECENT;
        if is_settling || Arc::get_mut(&mut self.settled).is_some() {
            let settled = Arc::make_mut(&mut self.settled);
            for number in std::mem::take(&mut self.recent).into_iter().chain([number]) {
                settled.insert_unique(hash_of(&number), number, hash_of);
            }
        } else {
            self.recent.insert_unique(hash_of(&number), number, hash_of);
        }
    }
}
