//! Occupancy of nodes' devices, in numbers: for each run of devices of one kind how many are taken, and for a device
//! that several claims hold the parts that they take.

use std::collections::BTreeMap;

use hostler_api::ExactQuantity;

use super::{
    projection::Run,
    sequences::{NumberMap, Texts},
    shapes::{Part, Shape, Shapes, slices_of},
    snapshot::{Cluster, SharedUse, SliceUse, Usage},
};

/// Number of a device that several claims can hold, of which nothing is taken; `WHOLE`: one claim has all of it. Other
/// values are numbers of shares.
pub(super) const FRESH: u32 = 0;
const WHOLE: u32 = 1;
const FIRST_SHARE: u32 = 2;

/// The taken part of one run of devices.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Taken {
    /// Number of taken devices.
    Devices(usize),
    /// Parts of the one device, by capacity.
    Share(BTreeMap<String, ExactQuantity>),
}

/// Taken devices, by node and slot of its shape; of slices that are not one node's, by slice.
#[derive(Debug, Default)]
pub(super) struct Occupancy {
    own: Vec<Box<[u32]>>,
    wide: NumberMap<usize, Box<[u32]>>,
    /// Number of times that something was taken of those slices.
    changes: u64,
    shares: Texts,
}

impl Occupancy {
    /// Starts anew, from another usage. Numbers of shares stay what they are.
    pub(super) fn restart(&mut self, cluster: &Cluster, shapes: &Shapes, usage: &Usage) {
        self.wide.clear();
        self.changes += 1;
        self.own = (0..cluster.nodes.len()).map(|node| self.of_node(cluster, shapes, usage, node)).collect();
    }

    fn of_node(&mut self, cluster: &Cluster, shapes: &Shapes, usage: &Usage, node: usize) -> Box<[u32]> {
        let shape = shapes.of(node);
        let mut own = vec![FRESH; shape.slots];
        for (part, slice) in shape.parts.iter().zip(slices_of(cluster, node)) {
            let Some(taken) = usage.slice(slice) else { continue };
            match part.wide {
                None => own[part.slots()].copy_from_slice(&self.numbers(&part.runs, taken)),
                Some(slice) if !self.wide.contains_key(&slice) => {
                    let numbers = self.numbers(&part.runs, taken);
                    self.wide.insert(slice, numbers);
                }
                Some(_) => {}
            }
        }
        own.into()
    }

    /// Number of times that something was taken of slices that are not one node's.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the numbers of the node's own devices, by slot.
    pub(super) fn own(&self, node: usize) -> &[u32] {
        &self.own[node]
    }

    /// Returns the numbers of a part; `None` where nothing is taken.
    pub(super) fn part(&self, node: usize, part: &Part) -> Option<&[u32]> {
        match part.wide {
            None => Some(&self.own[node][part.slots()]),
            Some(slice) => self.wide.get(&slice).map(|numbers| &**numbers),
        }
    }

    /// Returns the taken part of a run that has this number.
    pub(super) fn taken(&self, number: u32, run: Run) -> Taken {
        match number {
            taken if !run.is_shareable => Taken::Devices(taken as usize),
            FRESH => Taken::Devices(0),
            WHOLE => Taken::Devices(1),
            share => Taken::Share(self.share(share)),
        }
    }

    /// Takes one device of a slot, or parts of a slot's only device.
    pub(super) fn take(
        &mut self,
        node: usize,
        part: &Part,
        slot: usize,
        parts: Option<&BTreeMap<String, ExactQuantity>>,
    ) {
        let number = self.part(node, part).map_or(FRESH, |numbers| numbers[slot - part.first]);
        let next = match parts {
            None => number + 1,
            Some(parts) => {
                let mut share = SharedUse { consumed: self.share(number) };
                share.add(parts);
                self.share_number(&share)
            }
        };
        match part.wide {
            None => self.own[node][slot] = next,
            Some(slice) => {
                let numbers = self.wide.entry(slice).or_insert_with(|| vec![FRESH; part.runs.len()].into());
                numbers[slot - part.first] = next;
                self.changes += 1;
            }
        }
    }

    /// Number of the node's own devices of which nothing is taken.
    pub(super) fn free(&self, node: usize, shape: &Shape) -> usize {
        let parts = shape.parts.iter().filter(|part| part.wide.is_none());
        let runs = parts.flat_map(|part| part.runs.iter().zip(&self.own[node][part.slots()]));
        runs.map(|(run, taken)| free_of(*run, *taken)).sum()
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

    fn share_number(&mut self, share: &SharedUse) -> u32 {
        FIRST_SHARE + self.shares.intern(&serde_json::to_string(&share.consumed).unwrap_or_default())
    }

    fn share(&self, number: u32) -> BTreeMap<String, ExactQuantity> {
        let text = number.checked_sub(FIRST_SHARE).map(|number| self.shares.get(number));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// Number of devices of a run of which nothing is taken.
pub(super) fn free_of(run: Run, taken: u32) -> usize {
    run.len.saturating_sub(if run.is_shareable { taken.min(1) } else { taken } as usize)
}
