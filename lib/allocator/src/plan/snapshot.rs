//! A cluster at one moment, made ready for questions: the pools that each node sees, and the holders of devices.
//! Questions change nothing in it; a plan notes what it takes in a copy that shares everything else.

mod pools;
mod rules;
mod usage;

use std::sync::Arc;

use hostler_api::core::{Node, NodeSelector};

use super::{
    amounts::Amounts,
    facts::{ClusterFacts, PackedSlice},
    neighbours::{RepellingPods, all_repelling},
    sequences::NumberMap,
};

pub(super) use pools::{NodePool, SnapshotPool};
pub(super) use usage::{GivenClaim, SharedUse, SliceUse, Usage};

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) cluster: Arc<Cluster>,
    pub(super) usage: Usage,
}

/// The part of a snapshot that questions do not change.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) facts: ClusterFacts,
    /// By name.
    pub(super) nodes: Arc<Vec<NodePlace>>,
    /// By name.
    pub(super) slices: Arc<Vec<(Arc<str>, Arc<PackedSlice>)>>,
    pub(super) pools: Arc<Vec<SnapshotPool>>,
    /// By driver and name.
    pool_numbers: Arc<NumberMap<(u32, u32), usize>>,
    /// Pods that run and keep others away.
    pub(super) repelling: Arc<Vec<RepellingPods>>,
    /// Facts that no answer can take into account, in sentences.
    pub(super) unseen: Arc<Vec<String>>,
}

/// A node and the pools that it sees.
#[derive(Debug)]
pub(super) struct NodePlace {
    pub(super) node: Arc<Node>,
    pub(super) allocatable: Amounts,
    /// Pools in the order of the allocator: by driver and name.
    pub(super) pools: Box<[NodePool]>,
}

impl NodePlace {
    pub(super) fn name(&self) -> &str {
        &self.node.metadata.name
    }

    pub(super) fn is_of(&self, selector: &NodeSelector) -> bool {
        selector.matches(self.name(), &self.node.metadata.labels)
    }
}

impl Snapshot {
    /// Makes a snapshot of these facts.
    pub fn new(mut facts: ClusterFacts) -> Self {
        let unseen = rules::unseen(&facts);
        let slices = rules::tainted(&mut facts);
        let pools = pools::gather(&facts, &slices);
        let nodes = pools::places(&facts, &slices, &pools);
        let pool_numbers: NumberMap<_, _> =
            pools.iter().enumerate().map(|(at, pool)| ((pool.driver, pool.name), at)).collect();
        // From here on changes are only those that are added to the snapshot's facts.
        facts.take_changes();
        let repelling = all_repelling(&facts, |name| find_node(&nodes, name));
        let cluster = Cluster {
            facts,
            repelling: repelling.into(),
            nodes: nodes.into(),
            slices: slices.into(),
            pools: pools.into(),
            pool_numbers: pool_numbers.into(),
            unseen: unseen.into(),
        };
        Self { usage: Usage::of(&cluster), cluster: Arc::new(cluster) }
    }

    /// Returns the cluster with additions to a copy of its [`facts`](Self::facts). Additions that only questions name,
    /// templates and claims without devices, take no time; for all others everything is looked at anew.
    #[must_use]
    pub fn with(&self, facts: ClusterFacts) -> Self {
        if facts.changes.has_only_names() {
            let cluster = Cluster { facts, ..Cluster::clone(&self.cluster) };
            return Self { cluster: Arc::new(cluster), usage: self.usage.clone() };
        }
        Self::new(facts)
    }

    /// The known facts of the cluster.
    pub fn facts(&self) -> &ClusterFacts {
        &self.cluster.facts
    }

    /// Returns the use of the slice with this name; `None`: it is untouched.
    pub(super) fn slice_use(&self, name: &str) -> Option<&SliceUse> {
        let at = self.cluster.slices.binary_search_by(|(other, _)| (**other).cmp(name)).ok()?;
        self.usage.slice(at)
    }

    /// Facts that no answer takes into account, in sentences.
    pub fn unseen(&self) -> &[String] {
        &self.cluster.unseen
    }
}

impl Cluster {
    pub(super) fn node(&self, name: &str) -> Option<usize> {
        find_node(&self.nodes, name)
    }

    /// Finds a device by name: the slice, and the place in it.
    pub(super) fn device(&self, driver: u32, pool: u32, device: u32) -> Option<(usize, usize)> {
        let pool = &self.pools[*self.pool_numbers.get(&(driver, pool))?];
        let at = |slice: &usize| Some((*slice, self.slices[*slice].1.position(device, &self.facts.store)?));
        pool.slices.iter().find_map(at)
    }
}

fn find_node(nodes: &[NodePlace], name: &str) -> Option<usize> {
    nodes.binary_search_by(|node| node.name().cmp(name)).ok()
}
