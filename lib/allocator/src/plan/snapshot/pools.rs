//! Pools, and the nodes that see them.
//!
//! A pool is one node's if all of its slices are; such pools of different nodes can be alike, which makes large
//! clusters small. Every other pool is there once, for all nodes that see it.

use std::{collections::HashMap, sync::Arc};

use hostler_api::{
    core::{Node, NodeSelector},
    resource::{ResourceSliceSpec, SliceDevice},
};

use super::NodePlace;
use crate::plan::{
    amounts::Amounts,
    facts::{ClusterFacts, PackedSlice, Store},
    sequences::{NumberMap, Sequences},
};

type Slices = [(Arc<str>, Arc<PackedSlice>)];

/// The slices of a driver's pool with the newest generation.
#[derive(Debug)]
pub(in crate::plan) struct SnapshotPool {
    pub(in crate::plan) driver: u32,
    pub(in crate::plan) name: u32,
    /// By name.
    pub(in crate::plan) slices: Vec<usize>,
    /// The one node that all of them are of.
    pub(in crate::plan) node: Option<u32>,
    /// True if all slices are there.
    pub(in crate::plan) is_complete: bool,
    /// True if each name of a device is there once.
    pub(in crate::plan) is_clear: bool,
}

/// A pool as one node sees it.
#[derive(Clone, Copy, Debug)]
pub(in crate::plan) struct NodePool {
    pub(in crate::plan) pool: usize,
    /// Number of the set of slices and devices that it sees, for pools that are not one node's: equal numbers, equal
    /// views.
    pub(in crate::plan) view: Option<u32>,
}

/// All pools, by driver and name.
pub(super) fn gather(facts: &ClusterFacts, slices: &Slices) -> Vec<SnapshotPool> {
    let mut members: NumberMap<(u32, u32), Vec<usize>> = NumberMap::new();
    for (at, (_, slice)) in slices.iter().enumerate() {
        members.entry((slice.driver, slice.pool)).or_default().push(at);
    }
    let mut clear = HashMap::new();
    let mut pools: Vec<SnapshotPool> =
        members.into_values().map(|members| pool(facts, slices, members, &mut clear)).collect();
    pools.sort_by_key(|pool| (facts.text(pool.driver), facts.text(pool.name)));
    pools
}

/// Makes a pool of its slices. `clear` has the answers for pools whose devices have the same names.
fn pool(
    facts: &ClusterFacts,
    slices: &Slices,
    mut members: Vec<usize>,
    clear: &mut HashMap<Vec<u32>, bool>,
) -> SnapshotPool {
    let of = |at: usize| &slices[at].1;
    let newest = members.iter().map(|at| of(*at).generation).max().unwrap_or_default();
    members.retain(|at| of(*at).generation == newest);
    let first = of(members[0]);
    let is_one_node = first.node.is_some() && members.iter().all(|at| of(*at).node == first.node);
    SnapshotPool {
        driver: first.driver,
        name: first.pool,
        node: first.node.filter(|_| is_one_node),
        is_complete: members.iter().all(|at| usize::try_from(of(*at).slice_count) == Ok(members.len())),
        is_clear: *clear
            .entry(members.iter().map(|at| of(*at).names).collect())
            .or_insert_with_key(|columns| is_clear(&facts.store, columns.iter().copied())),
        slices: members,
    }
}

fn is_clear(store: &Store, columns: impl Iterator<Item = u32>) -> bool {
    let mut names: Vec<u32> = columns.flat_map(|column| store.columns.get(column)).copied().collect();
    names.sort_unstable();
    names.windows(2).all(|pair| pair[0] != pair[1])
}

/// All nodes, by name, with the pools that they see.
pub(super) fn places(facts: &ClusterFacts, slices: &Slices, pools: &[SnapshotPool]) -> Vec<NodePlace> {
    let mut own: NumberMap<u32, Vec<usize>> = NumberMap::new();
    for (at, pool) in pools.iter().enumerate() {
        if let Some(node) = pool.node {
            own.entry(node).or_default().push(at);
        }
    }
    let wide: Vec<usize> = (0..pools.len()).filter(|at| pools[*at].node.is_none()).collect();
    let mut views = Views::new(facts, slices);
    let place = |node: &Arc<Node>| {
        let name = facts.store.texts.find(&node.metadata.name);
        let own = name.and_then(|name| own.get(&name)).into_iter().flatten();
        let mut seen: Vec<NodePool> = own.map(|pool| NodePool { pool: *pool, view: None }).collect();
        seen.extend(wide.iter().filter_map(|pool| views.of(node, *pool, &pools[*pool])));
        seen.sort_by_key(|seen| seen.pool);
        NodePlace { node: node.clone(), allocatable: Amounts::of(node.allocatable()), pools: seen.into() }
    };
    facts.nodes.values().map(place).collect()
}

/// Views that nodes have of pools that are not one node's.
struct Views<'a> {
    facts: &'a ClusterFacts,
    slices: &'a Slices,
    /// Frames of slices, read once: they choose nodes.
    frames: NumberMap<u32, ResourceSliceSpec>,
    rests: NumberMap<u32, SliceDevice>,
    views: Sequences<bool>,
}

impl<'a> Views<'a> {
    fn new(facts: &'a ClusterFacts, slices: &'a Slices) -> Self {
        Self { facts, slices, frames: NumberMap::new(), rests: NumberMap::new(), views: Sequences::default() }
    }

    fn of(&mut self, node: &Node, pool: usize, members: &SnapshotPool) -> Option<NodePool> {
        let mut seen = Vec::new();
        for at in &members.slices {
            let slice = self.slices[*at].1.clone();
            self.see(node, &slice, &mut seen);
        }
        seen.contains(&true).then(|| NodePool { pool, view: Some(self.views.intern(&seen)) })
    }

    /// Adds true or false to `seen` for the slice or, where devices choose nodes, for each device: does the node see
    /// it?
    fn see(&mut self, node: &Node, slice: &PackedSlice, seen: &mut Vec<bool>) {
        let store = &self.facts.store;
        let frame = self.frames.entry(slice.frame).or_insert_with(|| slice.frame(store));
        if frame.per_device_node_selection != Some(true) {
            let name = slice.node.map(|name| store.texts.get(name));
            seen.push(chooses(node, name, frame.node_selector.as_deref(), frame.all_nodes));
            return;
        }
        for (at, rest) in store.columns.get(slice.rest).iter().enumerate() {
            let rest = self.rests.entry(*rest).or_insert_with(|| slice.rest(at, store));
            seen.push(chooses(node, rest.node_name.as_deref(), rest.node_selector.as_deref(), rest.all_nodes));
        }
    }
}

fn chooses(node: &Node, name: Option<&str>, selector: Option<&NodeSelector>, all: Option<bool>) -> bool {
    match (name.filter(|name| !name.is_empty()), selector) {
        (Some(name), _) => name == node.metadata.name,
        _ if all == Some(true) => true,
        // The allocator fails on an invalid selector, and for that it has to see it.
        (None, Some(selector)) => {
            selector.check().is_err() || selector.matches(&node.metadata.name, &node.metadata.labels)
        }
        (None, None) => false,
    }
}
