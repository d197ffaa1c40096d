//! Usage of a cluster: devices by slice, other resources by node, claims that a plan allocates. A copy shares all
//! that is not changed in it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use hostler_api::{
    ExactQuantity, ObjectKey,
    core::{ContainerPort, NodeSelector, PodSpec},
};

use super::Cluster;
use crate::plan::{
    amounts::Amounts,
    facts::{PackedPod, PackedResult, from_json},
    neighbours::PlacedPods,
};

/// Usage of a cluster.
#[derive(Clone, Debug, Default)]
pub(in crate::plan) struct Usage {
    /// Usage by index of the slice; only slices of which something is taken.
    slices: HashMap<usize, Arc<SliceUse>>,
    /// Usage by index of the node.
    nodes: Vec<Arc<NodeUse>>,
    /// Claims that plans have allocated, or let more pods use.
    pub(in crate::plan) claims: HashMap<ObjectKey, GivenClaim>,
    /// Pods that plans have placed.
    pub(in crate::plan) pods: Vec<Arc<PlacedPods>>,
}

/// Taken devices of a slice.
#[derive(Clone, Debug, Default)]
pub(in crate::plan) struct SliceUse {
    /// Devices that one claim holds alone.
    pub(in crate::plan) taken: Vec<bool>,
    /// Devices that several claims hold.
    pub(in crate::plan) shares: BTreeMap<usize, SharedUse>,
}

/// Taken amounts of a device that several claims hold, by name of the capacity.
#[derive(Clone, Debug, Default)]
pub(in crate::plan) struct SharedUse {
    pub(in crate::plan) consumed: BTreeMap<String, ExactQuantity>,
}

/// Taken resources and ports of a node.
#[derive(Clone, Debug, Default)]
pub(in crate::plan) struct NodeUse {
    pub(in crate::plan) amounts: Amounts,
    pub(in crate::plan) ports: Vec<ContainerPort>,
}

/// A claim that a plan has allocated, or lets more pods use.
#[derive(Clone, Debug)]
pub(in crate::plan) struct GivenClaim {
    /// Nodes on which the claim can be used; `None`: all.
    pub(in crate::plan) selector: Option<NodeSelector>,
    /// Number of its users.
    pub(in crate::plan) reserved: usize,
}

impl SliceUse {
    pub(in crate::plan) fn is_taken(&self, at: usize) -> bool {
        self.taken.get(at).copied().unwrap_or_default()
    }

    pub(in crate::plan) fn take(&mut self, at: usize) {
        if self.taken.len() <= at {
            self.taken.resize(at + 1, false);
        }
        self.taken[at] = true;
    }
}

impl SharedUse {
    pub(in crate::plan) fn add(&mut self, more: &BTreeMap<String, ExactQuantity>) {
        for (name, amount) in more {
            let sum = self.consumed.entry(name.clone()).or_insert(ExactQuantity::ZERO);
            *sum = sum.plus(*amount);
        }
    }
}

impl Usage {
    /// Returns the usage by allocated claims and pods on nodes.
    pub(super) fn of(cluster: &Cluster) -> Self {
        let mut usage = Self { nodes: vec![Arc::default(); cluster.nodes.len()], ..Self::default() };
        for claim in cluster.facts.claims.values() {
            for result in claim.allocation.iter().flat_map(|given| &given.results) {
                usage.add_result(cluster, result);
            }
        }
        usage.add_pods(cluster);
        usage
    }

    pub(in crate::plan) fn slice(&self, slice: usize) -> Option<&SliceUse> {
        self.slices.get(&slice).map(|taken| &**taken)
    }

    pub(in crate::plan) fn slice_mut(&mut self, slice: usize) -> &mut SliceUse {
        Arc::make_mut(self.slices.entry(slice).or_default())
    }

    pub(in crate::plan) fn node(&self, node: usize) -> &NodeUse {
        &self.nodes[node]
    }

    pub(in crate::plan) fn node_mut(&mut self, node: usize) -> &mut NodeUse {
        Arc::make_mut(&mut self.nodes[node])
    }

    fn add_result(&mut self, cluster: &Cluster, result: &PackedResult) {
        let Some((slice, at)) = cluster.device(result.driver, result.pool, result.device) else { return };
        let taken = self.slice_mut(slice);
        match result.consumed {
            None => taken.take(at),
            Some(consumed) => {
                let consumed = from_json(&cluster.facts.store.texts, consumed).unwrap_or_default();
                taken.shares.entry(at).or_default().add(&consumed);
            }
        }
    }

    fn add_pods(&mut self, cluster: &Cluster) {
        let facts = &cluster.facts;
        // Replicas are many, and there are few kinds of them.
        let mut alike: HashMap<(u32, u32), (i64, &PackedPod)> = HashMap::new();
        for pod in facts.pods.values() {
            alike.entry((pod.node, pod.spec)).or_insert((0, pod)).0 += 1;
        }
        let mut known: HashMap<u32, NodeUse> = HashMap::new();
        for (times, pod) in alike.into_values() {
            let Some(node) = cluster.node(facts.text(pod.node)) else { continue };
            let holds = known.entry(pod.spec).or_insert_with(|| NodeUse::of_pod(&pod.spec(&facts.store.texts)));
            self.node_mut(node).add(holds, times);
        }
    }
}

impl NodeUse {
    /// Returns the resources and ports that a pod takes.
    pub(in crate::plan) fn of_pod(spec: &PodSpec) -> Self {
        Self { amounts: Amounts::of_pod(&spec.requests()), ports: spec.host_ports() }
    }

    pub(in crate::plan) fn add(&mut self, pod: &Self, times: i64) {
        self.amounts.add(&pod.amounts, times);
        self.ports.extend(pod.ports.iter().cloned());
    }
}
