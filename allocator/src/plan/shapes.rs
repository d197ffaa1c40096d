//! Shapes of nodes: the pools that a node sees, reduced to kinds of devices. Nodes of one shape differ in names only, and the
//! allocator's answer on one of them is its answer on all.

use std::rc::Rc;

use super::{
    projection::{Projection, Run},
    sequences::Sequences,
    snapshot::{Cluster, NodePool},
};

/// What nodes see that differ in names only.
#[derive(Debug)]
pub(super) struct Shape {
    /// One of those nodes, on which the allocator is asked.
    pub(super) representative: usize,
    /// Its slices, in the order of the allocator.
    pub(super) parts: Box<[Part]>,
    /// How many runs of devices there are in all parts.
    pub(super) slots: usize,
    /// Whether there are slices that are not one node's.
    pub(super) is_wide: bool,
}

/// A slice of a shape.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The slice itself, where it is not one node's.
    pub(super) wide: Option<usize>,
    /// Number of its first run.
    pub(super) first: usize,
    pub(super) runs: Rc<[Run]>,
}

impl Part {
    pub(super) fn slots(&self) -> std::ops::Range<usize> {
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

/// The slices of a node, in the order of its shape's parts.
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

    /// All that the allocator's answer can depend on, and names only as far as they are equal.
    fn add_pool(&mut self, seen: &NodePool, pools: &[NodePool], key: &mut Vec<u32>) {
        let (cluster, pool) = (self.cluster, &self.cluster.pools[seen.pool]);
        let same_name = pools.iter().position(|other| cluster.pools[other.pool].name == pool.name);
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        key.push(same_name.map_or(u32::MAX, number));
        match seen.view {
            Some(view) => key.extend([1, number(seen.pool), view]),
            None => {
                let flags = u32::from(pool.is_complete) | u32::from(pool.is_clear) << 1;
                key.extend([0, flags, number(pool.slices.len())]);
                for slice in &pool.slices {
                    key.push(self.projection.kind(&cluster.slices[*slice].1, &cluster.facts.store));
                }
            }
        }
    }

    fn make(&mut self, node: usize) -> Shape {
        let (cluster, mut parts, mut slots) = (self.cluster, Vec::new(), 0);
        for seen in &cluster.nodes[node].pools {
            for slice in &cluster.pools[seen.pool].slices {
                let kind = self.projection.kind(&cluster.slices[*slice].1, &cluster.facts.store);
                let runs = self.projection.runs(kind).clone();
                let part = Part { wide: seen.view.map(|_| *slice), first: slots, runs };
                slots += part.runs.len();
                parts.push(part);
            }
        }
        let is_wide = parts.iter().any(|part| part.wide.is_some());
        Shape { representative: node, parts: parts.into(), slots, is_wide }
    }
}

/// Which part of a shape a slot belongs to, and which of its runs it is.
pub(super) fn part_of(shape: &Shape, slot: usize) -> (usize, usize) {
    let part = shape.parts.partition_point(|part| part.first + part.runs.len() <= slot);
    (part, slot - shape.parts[part].first)
}
