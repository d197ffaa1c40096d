//! An index from hashes to numbers. The numbered sequences are not in it: they would be held twice.

use std::sync::Arc;

/// Number of recent entries above which they are merged into the settled ones.
const MOST_RECENT: usize = 4096;

const EMPTY: u32 = u32::MAX;

/// Numbers by hash. Copies share all but the newest.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    settled: Arc<Table>,
    /// Entries that came while there was a copy.
    recent: Table,
}

/// A hash table of pairs of a part of a hash and a number; at least a quarter is empty.
#[derive(Clone, Debug, Default)]
struct Table {
    slots: Vec<(u32, u32)>,
    len: usize,
}

impl Index {
    /// Finds the number with this hash for which `is_meant` holds.
    pub(super) fn find(&self, hash: u64, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        self.settled.find(part(hash), &is_meant).or_else(|| self.recent.find(part(hash), &is_meant))
    }

    /// Adds a number that is not there.
    pub(super) fn insert(&mut self, hash: u64, number: u32) {
        let is_settling = self.recent.len >= MOST_RECENT;
        match Arc::get_mut(&mut self.settled) {
            Some(settled) if self.recent.len == 0 => return settled.insert(part(hash), number),
            None if !is_settling => return self.recent.insert(part(hash), number),
            _ => {}
        }
        let settled = Arc::make_mut(&mut self.settled);
        for (part, number) in std::mem::take(&mut self.recent).slots.into_iter().filter(|slot| slot.1 != EMPTY) {
            settled.insert(part, number);
        }
        settled.insert(part(hash), number);
    }
}

impl Table {
    fn find(&self, part: u32, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(part)?;
        loop {
            match self.slots[at] {
                (_, EMPTY) => return None,
                (other, number) if other == part && is_meant(number) => return Some(number),
                _ => at = (at + 1) % self.slots.len(),
            }
        }
    }

    fn insert(&mut self, part: u32, number: u32) {
        if self.len * 4 >= self.slots.len() * 3 {
            self.grow();
        }
        let Some(mut at) = self.home(part) else { return };
        while self.slots[at].1 != EMPTY {
            at = (at + 1) % self.slots.len();
        }
        self.slots[at] = (part, number);
        self.len += 1;
    }

    fn grow(&mut self) {
        let larger = vec![(0, EMPTY); (self.slots.len() * 2).max(16)];
        let slots = std::mem::replace(&mut self.slots, larger);
        self.len = 0;
        for (part, number) in slots.into_iter().filter(|slot| slot.1 != EMPTY) {
            self.insert(part, number);
        }
    }

    /// Returns the first slot for a number with this part of a hash; `None` if the table has no slots.
    fn home(&self, part: u32) -> Option<usize> {
        (part as usize).checked_rem(self.slots.len())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a part is what is wanted")]
fn part(hash: u64) -> u32 {
    hash as u32
}
