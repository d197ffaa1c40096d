//! States of nodes' devices, each held once: for each run of devices of one kind how many are taken, and of a device that
//! several claims hold what they take of it. Nodes in one state are one question to the allocator.

use std::collections::{BTreeMap, HashMap};

use hostler_api::ExactQuantity;

use super::{
    projection::Run,
    sequences::{Sequences, Texts},
    shapes::{Shape, Shapes, slices_of},
    snapshot::{Cluster, Share, SliceUse, Usage},
};

/// In the place of what is taken of a device that several claims can hold: nothing, or all of it by one claim. Other
/// values are numbers of shares.
const FRESH: u32 = 0;
const WHOLE: u32 = 1;
const FIRST_SHARE: u32 = 2;

/// What is taken of one run of devices.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Taken {
    /// So many of them.
    Devices(usize),
    /// These parts of the one device.
    Share(BTreeMap<String, ExactQuantity>),
}

/// All states that were met.
#[derive(Debug, Default)]
pub(super) struct States {
    /// The shape, then a number for each of its slots.
    all: Sequences<u32>,
    shares: Texts,
    /// What is taken of slices that are not one node's, and how often that has changed.
    wide: HashMap<usize, Box<[u32]>>,
    changes: u64,
    /// By state of a node's own devices: the state with those that are not its own, as of a change.
    composed: HashMap<u32, (u64, u32)>,
    scratch: Vec<u32>,
}

impl States {
    /// Forgets what is taken of slices that are not one node's: another usage follows.
    pub(super) fn restart(&mut self) {
        self.wide.clear();
        self.changes += 1;
    }

    /// The state of the node's own devices; of others nothing is in it.
    pub(super) fn own(&mut self, cluster: &Cluster, shapes: &Shapes, usage: &Usage, node: usize) -> u32 {
        let shape = shapes.of(node);
        let mut state = std::mem::take(&mut self.scratch);
        state.clear();
        state.push(shapes.of_nodes[node]);
        state.resize(shape.slots + 1, FRESH);
        for (part, slice) in shape.parts.iter().zip(slices_of(cluster, node)) {
            if let Some(taken) = usage.slice(slice) {
                let numbers = self.numbers(&part.runs, taken);
                match part.wide {
                    None => state[1..][part.slots()].copy_from_slice(&numbers),
                    Some(slice) => drop(self.wide.entry(slice).or_insert(numbers)),
                }
            }
        }
        let number = self.all.intern(&state);
        self.scratch = state;
        number
    }

    /// The state of all devices that a node sees.
    pub(super) fn composed(&mut self, own: u32, shapes: &Shapes) -> u32 {
        let shape = &shapes.all[self.shape(own) as usize];
        if !shape.is_wide {
            return own;
        }
        if let Some((_, state)) = self.composed.get(&own).filter(|(changes, _)| *changes == self.changes) {
            return *state;
        }
        let mut state = self.all.get(own).to_vec();
        for part in &shape.parts {
            if let Some(numbers) = part.wide.and_then(|slice| self.wide.get(&slice)) {
                state[1..][part.slots()].copy_from_slice(numbers);
            }
        }
        let number = self.all.intern(&state);
        self.composed.insert(own, (self.changes, number));
        number
    }

    /// Takes the wide part of a state over, for all nodes; the answer is the state of the node's own devices.
    pub(super) fn split(&mut self, state: u32, shapes: &Shapes) -> u32 {
        let shape = &shapes.all[self.shape(state) as usize];
        if !shape.is_wide {
            return state;
        }
        let mut own = self.all.get(state).to_vec();
        for part in &shape.parts {
            if let Some(slice) = part.wide {
                let numbers = &mut own[1..][part.slots()];
                if self.wide.get(&slice).is_none_or(|before| **before != *numbers) {
                    self.wide.insert(slice, numbers.into());
                    self.changes += 1;
                }
                numbers.fill(FRESH);
            }
        }
        self.all.intern(&own)
    }

    /// How often something was taken of slices that are not one node's.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The number of a state's shape.
    pub(super) fn shape(&self, state: u32) -> u32 {
        self.all.get(state)[0]
    }

    /// What is taken of a slot.
    pub(super) fn taken(&self, state: u32, slot: usize, run: Run) -> Taken {
        match self.all.get(state)[slot + 1] {
            taken if !run.is_shareable => Taken::Devices(taken as usize),
            FRESH => Taken::Devices(0),
            WHOLE => Taken::Devices(1),
            share => Taken::Share(self.share(share)),
        }
    }

    /// The state after some more is taken.
    pub(super) fn with(&mut self, state: u32, more: &[(usize, Option<&BTreeMap<String, ExactQuantity>>)]) -> u32 {
        let mut next = self.all.get(state).to_vec();
        for (slot, consumed) in more {
            let number = next[slot + 1];
            next[slot + 1] = match consumed {
                None => number + 1,
                Some(consumed) => {
                    let mut share = Share { consumed: self.share(number) };
                    share.add(consumed);
                    self.share_number(&share)
                }
            };
        }
        self.all.intern(&next)
    }

    /// How many devices of the node's own nobody has anything of.
    pub(super) fn free(&self, own: u32, shape: &Shape) -> usize {
        let numbers = &self.all.get(own)[1..];
        let parts = shape.parts.iter().filter(|part| part.wide.is_none());
        let runs = parts.flat_map(|part| part.runs.iter().zip(&numbers[part.slots()]));
        runs.map(|(run, taken)| {
            run.len.saturating_sub(if run.is_shareable { (*taken).min(1) } else { *taken } as usize)
        })
        .sum()
    }

    fn numbers(&mut self, runs: &[Run], taken: &SliceUse) -> Box<[u32]> {
        runs.iter().map(|run| self.number(*run, taken)).collect()
    }

    fn number(&mut self, run: Run, taken: &SliceUse) -> u32 {
        if !run.is_shareable {
            let whole = (run.start..run.start + run.len).filter(|at| taken.is_taken(*at)).count();
            return u32::try_from(whole).unwrap_or(u32::MAX);
        }
        match taken.shares.get(&run.start) {
            _ if taken.is_taken(run.start) => WHOLE,
            Some(share) => self.share_number(share),
            None => FRESH,
        }
    }

    fn share_number(&mut self, share: &Share) -> u32 {
        FIRST_SHARE + self.shares.intern(&serde_json::to_string(&share.consumed).unwrap_or_default())
    }

    fn share(&self, number: u32) -> BTreeMap<String, ExactQuantity> {
        let text = number.checked_sub(FIRST_SHARE).map(|number| self.shares.get(number));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}
