//! Pods that stand on nodes, by what terms about pods see of them.
//!
//! Pods that keep others away matter to every question, and are kept ready. All pods are counted only for a question
//! that has terms itself: a cluster of half a million pods without such terms pays nothing for them.

use std::{collections::HashMap, sync::Arc};

use super::{
    facts::{ClusterFacts, PackedPod, PodLabels},
    pod_terms::{PodIdentity, PodTerm, SelectedPod, repelling},
    sequences::NumberMap,
};

/// Nodes, with the number of pods on each.
pub(super) type PodsOfNodes = Vec<(usize, u32)>;

/// Pods that run and keep others away.
#[derive(Debug)]
pub(super) struct RepellingPods {
    pub(super) terms: Vec<PodTerm>,
    pub(super) nodes: PodsOfNodes,
}

/// Pods that run and are alike to all terms.
#[derive(Debug)]
pub(super) struct StandingPods<'f> {
    namespace: &'f str,
    labels: PodLabels<'f>,
    /// True if the pods are being deleted.
    pub(super) is_going: bool,
    pub(super) nodes: PodsOfNodes,
}

/// Pods that a plan has placed.
#[derive(Debug)]
pub(super) struct PlacedPods {
    pub(super) identity: Arc<PodIdentity>,
    pub(super) nodes: PodsOfNodes,
}

impl SelectedPod for StandingPods<'_> {
    fn namespace(&self) -> &str {
        self.namespace
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }
}

/// Counts pods of groups on nodes.
struct GroupedPods<K>(HashMap<K, NumberMap<usize, u32>>);

impl<K: Eq + std::hash::Hash> GroupedPods<K> {
    fn new() -> Self {
        Self(HashMap::new())
    }

    fn add(&mut self, group: K, node: usize) {
        *self.0.entry(group).or_default().entry(node).or_default() += 1;
    }

    fn into_groups(self) -> impl Iterator<Item = (K, PodsOfNodes)> {
        self.0.into_iter().map(|(group, nodes)| (group, nodes.into_iter().collect()))
    }
}

/// Indices of nodes, by the numbers of their names.
fn nodes_of(facts: &ClusterFacts, index: impl Fn(&str) -> Option<usize>) -> impl FnMut(u32) -> Option<usize> {
    let mut known: NumberMap<u32, Option<usize>> = NumberMap::new();
    move |name: u32| *known.entry(name).or_insert_with(|| index(facts.text(name)))
}

/// Returns the pods that run and keep others away; `index` finds nodes by name.
pub(super) fn all_repelling(facts: &ClusterFacts, index: impl Fn(&str) -> Option<usize>) -> Vec<RepellingPods> {
    let mut repels: NumberMap<u32, bool> = NumberMap::new();
    let mut is_repelling = |pod: &PackedPod| {
        *repels.entry(pod.spec).or_insert_with(|| !repelling(&pod.spec(&facts.store.texts)).is_empty())
    };
    let (mut groups, mut node_of) = (GroupedPods::new(), nodes_of(facts, index));
    for (key, pod) in facts.pods.iter().filter(|(_, pod)| is_repelling(pod)) {
        if let Some(node) = node_of(pod.node) {
            groups.add((&*key.namespace, pod.spec), node);
        }
    }
    let group = |((namespace, spec), nodes): ((&str, u32), PodsOfNodes)| {
        let spec = facts.spec_of_pods(spec);
        RepellingPods { terms: PodTerm::of_standing(repelling(&spec), namespace), nodes }
    };
    groups.into_groups().map(group).collect()
}

/// Returns all pods that run; `index` finds nodes by name.
pub(super) fn all_standing(facts: &ClusterFacts, index: impl Fn(&str) -> Option<usize>) -> Vec<StandingPods<'_>> {
    let (mut groups, mut node_of) = (GroupedPods::new(), nodes_of(facts, index));
    for (key, pod) in facts.pods.iter() {
        if let Some(node) = node_of(pod.node) {
            groups.add((&*key.namespace, pod.labels, pod.is_going), node);
        }
    }
    let group = |((namespace, labels, is_going), nodes)| StandingPods {
        namespace,
        labels: facts.labels_of_pods(labels),
        is_going,
        nodes,
    };
    groups.into_groups().map(group).collect()
}
