//! Usage of a cluster: devices by slice, other resources by node, claims that a plan allocates. A copy shares all
//! that is not changed in it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use hostler_api::{ExactQuantity, ObjectKey, core::NodeSelector};

use super::Cluster;
use crate::plan::{
    facts::{NominatedPod, PackedPod, PackedResult, from_json},
    neighbours::PlacedPods,
    node_use::NodeUse,
    sequences::NumberMap,
};

/// Usage of a cluster.
#[derive(Clone, Debug, Default)]
pub(in crate::plan) struct Usage {
    /// Usage by index of the slice; only slices of which something is taken.
    slices: NumberMap<usize, Arc<SliceUse>>,
    /// Usage by index of the node.
    nodes: Vec<Arc<NodeUse>>,
    /// Claims that plans have allocated, or let more pods use.
    pub(in crate::plan) claims: HashMap<ObjectKey, GivenClaim>,
    /// Pods that plans have placed.
    pub(in crate::plan) pods: Vec<Arc<PlacedPods>>,
    /// Pods that are nominated for a node and were not placed by a plan, with the index of the node.
    pub(in crate::plan) nominated: Arc<Vec<(usize, ObjectKey, Arc<NominatedPod>)>>,
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
        let nominated = cluster.facts.nominated.iter();
        let of_node =
            |(key, pod): (&ObjectKey, &Arc<NominatedPod>)| Some((cluster.node(&pod.node)?, key.clone(), pod.clone()));
        usage.nominated = Arc::new(nominated.filter_map(of_node).collect());
        usage
    }

    /// Forgets that these pods are nominated: a plan places them.
    pub(in crate::plan) fn forget_nominated(&mut self, keys: &[ObjectKey]) {
        if self.nominated.iter().any(|(_, key, _)| keys.contains(key)) {
            Arc::make_mut(&mut self.nominated).retain(|(_, key, _)| !keys.contains(key));
        }
    }

    /// Returns the pods for which kube-scheduler leaves room when it looks at a pod of this priority, with the index
    /// of their node.
    pub(in crate::plan) fn nominated(&self, priority: i32) -> impl Iterator<Item = (usize, &NominatedPod)> {
        self.nominated.iter().filter(move |(_, _, pod)| pod.priority >= priority).map(|(node, _, pod)| (*node, &**pod))
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
        let mut alike: NumberMap<(u32, u32), (i64, &PackedPod)> = NumberMap::new();
        for pod in facts.pods.values() {
            alike.entry((pod.node, pod.spec)).or_insert((0, pod)).0 += 1;
        }
        let mut known: NumberMap<u32, NodeUse> = NumberMap::new();
        for (times, pod) in alike.into_values() {
            let Some(node) = cluster.node(facts.text(pod.node)) else { continue };
            let holds = known.entry(pod.spec).or_insert_with(|| NodeUse::of_pod(&pod.spec(&facts.store.texts)));
            self.node_mut(node).add(holds, times);
        }
    }
}
