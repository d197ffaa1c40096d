//! Counting the pods of a cluster for one set: which of them its terms select, and which keep it away.

use std::{collections::HashMap, rc::Rc};

use hostler_api::core::{Affinity, LabelSelector, TopologySpreadConstraint};

use super::{
    PodGroups, UnknownTerm,
    spread::{SpreadCount, SpreadParts},
    topology::{DomainCounts, Topology},
};
use crate::plan::{
    neighbours::{PodsOfNodes, StandingPods, all_standing},
    nodes,
    pod_terms::{PodIdentity, PodTerm, Selected, SelectedPod, TermOwner, has_pod_terms, with_label_keys},
    pods::Wish,
    snapshot::{Cluster, Usage},
};

/// The policy of a constraint that counts only nodes where the pod could be.
const HONOR: &str = "Honor";

/// The pods of a cluster, counted as soon as a set has terms about them.
#[derive(Debug, Default)]
pub(in crate::plan) struct PodCensus<'a> {
    standing: Option<Vec<StandingPods<'a>>>,
    topologies: HashMap<String, Rc<Topology>>,
}

impl<'a> PodCensus<'a> {
    /// Counts the pods that decide where the pods of the set may be.
    pub(in crate::plan) fn groups(&mut self, cluster: &'a Cluster, usage: &Usage, wish: &Wish) -> PodGroups {
        let Some(identity) = wish.identity.as_deref() else { return PodGroups::default() };
        let mut count = GroupCount {
            cluster,
            identity,
            near: Vec::new(),
            topologies: &mut self.topologies,
            groups: PodGroups::default(),
        };
        count.repelling(usage);
        if has_pod_terms(&wish.spec) {
            count.open(wish);
            let standing = self.standing.get_or_insert_with(|| all_standing(&cluster.facts, |name| cluster.node(name)));
            standing.iter().for_each(|pods| count.add(pods, pods.is_going, &pods.nodes));
            usage.pods.iter().for_each(|pods| count.add(&*pods.identity, false, &pods.nodes));
        }
        let is_asked = count.is_filter_asked(wish);
        usage.nominated(wish.priority).for_each(|(node, pod)| count.add_nominated(node, &pod.identity, is_asked));
        count.groups
    }
}

/// The counts of one set while they are made.
struct GroupCount<'c, 'w> {
    cluster: &'c Cluster,
    /// The pods of the set.
    identity: &'w PodIdentity,
    /// Affinity of the set.
    near: Vec<PodTerm>,
    topologies: &'c mut HashMap<String, Rc<Topology>>,
    groups: PodGroups,
}

impl GroupCount<'_, '_> {
    fn topology(&mut self, key: &str) -> Rc<Topology> {
        if let Some(known) = self.topologies.get(key) {
            return known.clone();
        }
        let made = Rc::new(Topology::new(&self.cluster.nodes, key));
        self.topologies.insert(key.to_owned(), made.clone());
        made
    }

    fn selects(&self, term: &PodTerm, pod: &impl SelectedPod, owner: TermOwner) -> Selected {
        term.selects(pod, owner, &self.cluster.facts.namespaces)
    }

    fn note_unknown(&mut self, term: UnknownTerm, namespace: &str) {
        let namespaces = self.groups.unknown.entry(term).or_default();
        if !namespaces.iter().any(|it| it == namespace) {
            namespaces.push(namespace.to_owned());
        }
    }

    /// Counts the pods that keep the set away.
    fn repelling(&mut self, usage: &Usage) {
        let cluster = self.cluster;
        for pods in cluster.repelling.iter() {
            self.add_repelling(&pods.terms, &pods.nodes);
        }
        for pods in &usage.pods {
            self.add_repelling(&pods.identity.far, &pods.nodes);
        }
    }

    fn add_repelling(&mut self, terms: &[PodTerm], nodes: &PodsOfNodes) {
        let identity = self.identity;
        for term in terms {
            match self.selects(term, identity, TermOwner::Standing) {
                Selected::Yes => {
                    let at = self.repelling_by(&term.topology_key);
                    let counts = &mut self.groups.repelling[at];
                    nodes.iter().for_each(|(node, pods)| counts.add(*node, u64::from(*pods)));
                }
                Selected::No => {}
                Selected::Unknown => self.note_unknown(UnknownTerm::Repelling, &identity.namespace),
            }
        }
    }

    fn repelling_by(&mut self, key: &str) -> usize {
        let topology = self.topology(key);
        position(&mut self.groups.repelling, key, topology)
    }

    /// Prepares the counts of the set's own terms.
    fn open(&mut self, wish: &Wish) {
        let identity = self.identity;
        let near = wish.spec.affinity.as_ref().map_or(&[][..], Affinity::near);
        self.near = PodTerm::of_incoming(near, &identity.namespace, &identity.labels);
        self.groups.is_near_itself = !self.near.is_empty() && self.all_near(identity);
        let own = u64::from(self.groups.is_near_itself);
        for at in 0..self.near.len() {
            let key = self.near[at].topology_key.clone();
            let topology = self.topology(&key);
            let at = position(&mut self.groups.near, &key, topology);
            self.groups.near[at].own = own;
        }
        for term in &identity.far {
            let topology = self.topology(&term.topology_key);
            let at = position(&mut self.groups.far, &term.topology_key, topology);
            self.groups.far[at].own += u64::from(self.selects(term, identity, TermOwner::Incoming) == Selected::Yes);
            // The set's pods keep each other away once they stand, too.
            if self.selects(term, identity, TermOwner::Standing) == Selected::Yes {
                let at = self.repelling_by(&term.topology_key);
                self.groups.repelling[at].own += 1;
            }
        }
        self.open_spread(wish);
    }

    fn open_spread(&mut self, wish: &Wish) {
        let identity = self.identity;
        let required = wish.spec.topology_spread_constraints.iter().filter(|it| it.is_required());
        let constraints: Vec<&TopologySpreadConstraint> = required.collect();
        let topologies: Vec<Rc<Topology>> = constraints.iter().map(|it| self.topology(&it.topology_key)).collect();
        for (constraint, topology) in constraints.into_iter().zip(&topologies) {
            let selector = constraint.label_selector.clone();
            let selector = selector.map(|it| with_label_keys(it, &constraint.match_label_keys, true, &identity.labels));
            let selects_own = selects(selector.as_ref(), identity);
            let mut counts = DomainCounts::new(&constraint.topology_key, topology.clone());
            counts.own = u64::from(selects_own && is_counting(selector.as_ref()));
            let parts = SpreadParts {
                counts,
                selects_own,
                eligible: eligible(self.cluster, &topologies, constraint, wish),
                max_skew: constraint.max_skew,
                min_domains: constraint.min_domains.unwrap_or(1),
            };
            self.groups.spread.push(SpreadCount::new(parts));
            self.groups.selectors.push(selector);
        }
    }

    /// Counts pods that stand on nodes.
    fn add(&mut self, pods: &impl SelectedPod, is_going: bool, nodes: &PodsOfNodes) {
        if !self.near.is_empty() && self.all_near(pods) {
            let groups = &mut self.groups;
            for counts in &mut groups.near {
                for (node, pods) in nodes {
                    groups.has_near |= counts.topology.domain(*node).is_some();
                    counts.add(*node, u64::from(*pods));
                }
            }
        }
        let identity = self.identity;
        for term in &identity.far {
            match self.selects(term, pods, TermOwner::Incoming) {
                Selected::Yes => {
                    let topology = self.topology(&term.topology_key);
                    let at = position(&mut self.groups.far, &term.topology_key, topology);
                    let counts = &mut self.groups.far[at];
                    nodes.iter().for_each(|(node, pods)| counts.add(*node, u64::from(*pods)));
                }
                Selected::No => {}
                Selected::Unknown => self.note_unknown(UnknownTerm::Far, pods.namespace()),
            }
        }
        if !is_going && pods.namespace() == identity.namespace {
            self.add_spread(pods, nodes);
        }
    }

    fn add_spread(&mut self, pods: &impl SelectedPod, nodes: &PodsOfNodes) {
        let PodGroups { spread, selectors, .. } = &mut self.groups;
        for (constraint, selector) in spread.iter_mut().zip(selectors) {
            if is_counting(selector.as_ref()) && selects(selector.as_ref(), pods) {
                nodes.iter().for_each(|(node, pods)| constraint.add(*node, u64::from(*pods)));
            }
        }
    }

    /// Returns true if kube-scheduler asks its filter about other pods: the set has such terms itself, or pods that stand
    /// keep it away.
    fn is_filter_asked(&self, wish: &Wish) -> bool {
        let has_own = wish.spec.affinity.as_ref().is_some_and(|it| !it.near().is_empty() || !it.far().is_empty());
        has_own || self.groups.repelling.iter().any(|it| it.counts.iter().any(|pods| *pods > 0))
    }

    /// Counts a pod that is nominated for a node. Where the filter about other pods is not asked, no nominated one keeps
    /// the set away.
    fn add_nominated(&mut self, node: usize, pod: &PodIdentity, is_filter_asked: bool) {
        let identity = self.identity;
        if is_filter_asked {
            let far = self.first_of(node, &identity.far, pod, TermOwner::Incoming);
            let repelling = self.first_of(node, &pod.far, identity, TermOwner::Standing);
            let counts = self.groups.nominated.entry(node).or_default();
            counts.far = counts.far.take().or(far);
            counts.repelling = counts.repelling.take().or(repelling);
        }
        if pod.namespace == identity.namespace && !self.groups.selectors.is_empty() {
            let counts = self.groups.nominated.entry(node).or_default();
            let counted = self.groups.selectors.iter().map(|it| u64::from(selects(it.as_ref(), pod)));
            let before = counts.spread.iter().copied().chain(std::iter::repeat(0));
            counts.spread = counted.zip(before).map(|(one, other)| one + other).collect();
        }
    }

    /// Returns the label of the first term that selects the pod and whose domains the node is in.
    fn first_of(&mut self, node: usize, terms: &[PodTerm], pod: &PodIdentity, owner: TermOwner) -> Option<String> {
        let is_in = |term: &&PodTerm| self.cluster.nodes[node].node.metadata.labels.contains_key(&term.topology_key);
        let mut unknown = false;
        let found = terms.iter().filter(is_in).find(|term| match self.selects(term, pod, owner) {
            Selected::Unknown => {
                unknown = true;
                false
            }
            answer => answer == Selected::Yes,
        });
        if found.is_none() && unknown {
            let term = if owner == TermOwner::Incoming { UnknownTerm::Far } else { UnknownTerm::Repelling };
            self.note_unknown(term, &pod.namespace);
        }
        found.map(|term| term.topology_key.clone())
    }

    /// Returns true if all terms of the set's affinity select the pod. A term without an answer is taken as one that
    /// does not.
    fn all_near(&mut self, pod: &impl SelectedPod) -> bool {
        let answers: Vec<Selected> =
            self.near.iter().map(|term| self.selects(term, pod, TermOwner::Incoming)).collect();
        if answers.contains(&Selected::Unknown) && !answers.contains(&Selected::No) {
            self.note_unknown(UnknownTerm::Near, pod.namespace());
        }
        answers.iter().all(|it| *it == Selected::Yes)
    }
}

/// Returns the place of the counts by this label of nodes.
fn position(counts: &mut Vec<DomainCounts>, key: &str, topology: Rc<Topology>) -> usize {
    counts.iter().position(|it| it.key == key).unwrap_or_else(|| {
        counts.push(DomainCounts::new(key, topology));
        counts.len() - 1
    })
}

fn selects(selector: Option<&LabelSelector>, pod: &impl SelectedPod) -> bool {
    selector.is_some_and(|it| it.matches_values(|key| pod.label(key)))
}

/// Returns false for a selector without requirements: kube-scheduler counts no pod for it.
fn is_counting(selector: Option<&LabelSelector>) -> bool {
    selector.is_some_and(|it| !it.is_empty())
}

/// Tells of each node whether its pods count for a constraint. Only nodes with the labels of all constraints do.
fn eligible(
    cluster: &Cluster,
    topologies: &[Rc<Topology>],
    constraint: &TopologySpreadConstraint,
    wish: &Wish,
) -> Vec<bool> {
    let is_honoured = |policy: &Option<String>, default: bool| policy.as_ref().map_or(default, |it| it == HONOR);
    let honours_affinity = is_honoured(&constraint.node_affinity_policy, true);
    let honours_taints = is_honoured(&constraint.node_taints_policy, false);
    let of_node = |(at, place)| {
        topologies.iter().all(|topology| topology.domain(at).is_some())
            && (!honours_affinity || nodes::labels(place, &wish.spec).is_none())
            && (!honours_taints || nodes::taint(&place.node, &wish.spec).is_none())
    };
    cluster.nodes.iter().enumerate().map(of_node).collect()
}
