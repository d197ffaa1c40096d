//! Shapes of nodes: the pools that a node sees, reduced to kinds of devices. Nodes of one shape differ in names only,
//! and the allocator's answer on one of them is its answer on all.

use std::{ops::Range, sync::Arc};

use super::{
    projection::{Projection, Run},
    sequences::Sequences,
    snapshot::{Cluster, NodePool},
};

/// The common view of nodes that differ in names only.
#[derive(Debug)]
pub(super) struct Shape {
    /// One of those nodes, on which the allocator is asked.
    pub(super) representative: usize,
    /// Pools, in the order of driver and name.
    pub(super) pools: Box<[ShapePool]>,
    /// Slices, pool after pool.
    pub(super) parts: Box<[Part]>,
    /// Number of runs of devices in all parts.
    pub(super) slots: usize,
    /// True if there are slices that are not one node's.
    pub(super) is_wide: bool,
}

/// A pool of a shape.
#[derive(Debug)]
pub(super) struct ShapePool {
    pub(super) parts: Range<usize>,
    /// Facts that the allocator's answer can depend on beside devices; names only as far as they are equal.
    pub(super) header: Box<[u32]>,
    /// True if the pool is complete and without contradictions.
    pub(super) is_plain: bool,
    /// True if the counters that one device draws on can matter for others.
    pub(super) has_counters: bool,
}

/// A slice of a shape.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The slice itself, where it is not one node's.
    pub(super) wide: Option<usize>,
    /// Number of its first run.
    pub(super) first: usize,
    pub(super) runs: Arc<[Run]>,
}

impl Part {
    pub(super) fn slots(&self) -> Range<usize> {
        self.first..self.first + self.runs.len()
    }
}

/// All shapes of a cluster.
#[derive(Debug)]
pub(super) struct Shapes {
    pub(super) all: Vec<Shape>,
    /// By index of the node.
    pub(super) of_nodes: Vec<u32>,
}

impl Shapes {
    pub(super) fn new(cluster: &Cluster, projection: &mut Projection) -> Self {
        let mut shaper = Shaper { cluster, projection, keys: Sequences::default(), all: Vec::new() };
        let of_nodes = (0..cluster.nodes.len()).map(|node| shaper.shape(node)).collect();
        Self { all: shaper.all, of_nodes }
    }

    /// The shape of a node.
    pub(super) fn of(&self, node: usize) -> &Shape {
        &self.all[self.of_nodes[node] as usize]
    }
}

impl Shape {
    /// Returns the part that a slot belongs to, and the run that it is.
    pub(super) fn part_of(&self, slot: usize) -> (usize, Run) {
        let part = self.parts.partition_point(|part| part.first + part.runs.len() <= slot);
        (part, self.parts[part].runs[slot - self.parts[part].first])
    }
}

/// Lists the slices of a node, in the order of its shape's parts.
pub(super) fn slices_of(cluster: &Cluster, node: usize) -> impl Iterator<Item = usize> {
    cluster.nodes[node].pools.iter().flat_map(|seen| cluster.pools[seen.pool].slices.iter().copied())
}

struct Shaper<'a> {
    cluster: &'a Cluster,
    projection: &'a mut Projection,
    keys: Sequences<u32>,
    all: Vec<Shape>,
}

impl Shaper<'_> {
    fn shape(&mut self, node: usize) -> u32 {
        let pools = &self.cluster.nodes[node].pools;
        let mut key = Vec::with_capacity(8 * pools.len());
        for seen in pools {
            self.add_pool(seen, pools, &mut key);
        }
        let shape = self.keys.intern(&key);
        if shape as usize == self.all.len() {
            let made = self.make(node);
            self.all.push(made);
        }
        shape
    }

    fn add_pool(&mut self, seen: &NodePool, pools: &[NodePool], key: &mut Vec<u32>) {
        let pool = &self.cluster.pools[seen.pool];
        key.extend([self.same_name(seen, pools), number(pool.slices.len())]);
        match seen.view {
            Some(view) => key.extend([1, number(seen.pool), view]),
            None => {
                key.extend([0, u32::from(pool.is_complete), u32::from(pool.is_clear)]);
                for slice in &pool.slices {
                    key.push(self.projection.kind(&self.cluster.slices[*slice].1, &self.cluster.facts.store));
                }
            }
        }
    }

    /// The first pool of the node with this one's name, whatever its driver is.
    fn same_name(&self, seen: &NodePool, pools: &[NodePool]) -> u32 {
        let name = |seen: &NodePool| self.cluster.pools[seen.pool].name;
        pools.iter().position(|other| name(other) == name(seen)).map_or(u32::MAX, number)
    }

    fn make(&mut self, node: usize) -> Shape {
        let pools = &self.cluster.nodes[node].pools;
        let (mut parts, mut slots) = (Vec::new(), 0);
        let made: Vec<ShapePool> = pools.iter().map(|seen| self.pool(seen, pools, &mut parts, &mut slots)).collect();
        let is_wide = parts.iter().any(|part: &Part| part.wide.is_some());
        Shape { representative: node, pools: made.into(), parts: parts.into(), slots, is_wide }
    }

    fn pool(&mut self, seen: &NodePool, pools: &[NodePool], parts: &mut Vec<Part>, slots: &mut usize) -> ShapePool {
        let cluster = self.cluster;
        let (pool, start) = (&cluster.pools[seen.pool], parts.len());
        let mut has_conditions = false;
        for slice in &pool.slices {
            let kind = self.projection.kind(&cluster.slices[*slice].1, &cluster.facts.store);
            let kind = self.projection.slice(kind);
            has_conditions |= kind.has_conditions;
            let part = Part { wide: seen.view.map(|_| *slice), first: *slots, runs: kind.runs.clone() };
            *slots += part.runs.len();
            parts.push(part);
        }
        let has_counters = pool.slices.iter().any(|slice| cluster.slices[*slice].1.has_counters);
        let mut header = vec![pool.driver, flags([pool.is_complete, pool.is_clear, has_conditions, has_counters])];
        header.extend(seen.view.into_iter().flat_map(|view| [number(seen.pool), view]));
        if has_counters {
            header.push(self.same_name(seen, pools));
            header.extend(pool.slices.iter().map(|slice| cluster.slices[*slice].1.frame));
        }
        let is_plain = pool.is_complete && pool.is_clear;
        ShapePool { parts: start..parts.len(), header: header.into(), is_plain, has_counters }
    }
}

fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn flags(flags: [bool; 4]) -> u32 {
    flags.into_iter().fold(0, |all, flag| all << 1 | u32::from(flag))
}
