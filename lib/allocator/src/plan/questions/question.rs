//! One question, in numbers.

use super::{
    super::{
        occupancy::{FRESH, free_of},
        projection::Run,
        shapes::{Part, ShapePool},
    },
    claims::{ClaimList, Interest, Judging},
};

/// Marks the start of a pool in a question. No kind of device has that number.
const POOL: u32 = u32::MAX;

/// A question, and the slots of the node for each of its groups of devices.
#[derive(Debug, Default)]
pub(super) struct Question {
    pub(super) key: Vec<u32>,
    groups: u32,
    /// Group and slot, in order.
    slots: Vec<(u32, usize)>,
    /// True if devices that the claims could use are taken. This and `strangers` are part of a refusal's reason.
    has_taken: bool,
    strangers: u64,
}

impl Question {
    pub(super) fn start(&mut self, claims: u32) {
        self.key.clear();
        self.key.push(claims);
        self.slots.clear();
        (self.groups, self.has_taken, self.strangers) = (0, false, 0);
    }

    /// Begins a pool. Returns the positions in the key of the pool and of its devices.
    pub(super) fn begin(&mut self, pool: &ShapePool) -> (usize, usize) {
        let start = self.key.len();
        self.key.extend([POOL, u32::try_from(pool.header.len()).unwrap_or(u32::MAX)]);
        self.key.extend(&pool.header);
        (start, self.key.len())
    }

    /// Adds all devices of a part, with the number of each run's taken ones.
    pub(super) fn add_all(&mut self, part: &Part, taken: Option<&[u32]>) {
        for (at, run) in part.runs.iter().enumerate() {
            let taken = taken.map_or(FRESH, |taken| taken[at]);
            self.key.extend([run.kind, u32::try_from(run.len).unwrap_or(u32::MAX), taken]);
            self.add_group(part.first + at);
        }
    }

    /// Adds the free devices of a part that the claims could use. Devices of no use between those of a kind do not
    /// matter, nor do devices beyond the number that the claims could take.
    pub(super) fn add_useful(
        &mut self,
        part: &Part,
        taken: Option<&[u32]>,
        header: usize,
        list: &mut ClaimList,
        judging: &Judging<'_>,
    ) {
        for (at, run) in part.runs.iter().enumerate() {
            let taken = taken.map_or(FRESH, |taken| taken[at]);
            match list.interest(run.kind, judging) {
                Interest::None(class) => self.strangers |= 1 << class,
                Interest::Some => self.add_run(*run, taken, part.first + at, header, list.most),
            }
        }
    }

    fn add_run(&mut self, run: Run, taken: u32, slot: usize, header: usize, most: u32) {
        if run.is_shareable {
            self.key.extend([run.kind, taken]);
            self.add_group(slot);
            return;
        }
        self.has_taken |= taken > 0;
        let free = u32::try_from(free_of(run, taken)).unwrap_or(u32::MAX);
        if free == 0 {
            return;
        }
        match &mut self.key[header..] {
            [.., kind, count] if *kind == run.kind => {
                *count = count.saturating_add(free).min(most);
                self.slots.push((self.groups - 1, slot));
            }
            _ => {
                self.key.extend([run.kind, free.min(most)]);
                self.add_group(slot);
            }
        }
    }

    fn add_group(&mut self, slot: usize) {
        self.slots.push((self.groups, slot));
        self.groups += 1;
    }

    pub(super) fn end(&mut self) {
        #[expect(clippy::cast_possible_truncation, reason = "both halves are there")]
        self.key.extend([u32::from(self.has_taken), self.strangers as u32, (self.strangers >> 32) as u32]);
    }

    /// Lists the slots of a group of devices.
    pub(super) fn slots(&self, group: u32) -> impl Iterator<Item = usize> {
        let start = self.slots.partition_point(|(other, _)| *other < group);
        self.slots[start..].iter().take_while(move |(other, _)| *other == group).map(|(_, slot)| *slot)
    }

    /// Returns the group of a slot.
    pub(super) fn group(&self, slot: usize) -> Option<u32> {
        self.slots.iter().find(|(_, other)| *other == slot).map(|(group, _)| *group)
    }
}
