//! A case: a cluster, pods to place there one after the other, and where upstream places them.

use std::collections::BTreeMap;

use hostler_allocator::plan::{ClusterFacts, NodeRefusalKind, PlanBoxes, PlanOptions, PodSet, Snapshot};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// One line of a file of clusters.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ClusterCase {
    /// What is special.
    pub(crate) name: String,
    /// Nodes.
    pub(crate) nodes: Vec<Value>,
    /// Namespaces.
    pub(crate) namespaces: Vec<Value>,
    /// Pods that run, and pods that wait and are nominated for a node.
    pub(crate) pods: Vec<Value>,
    /// Pods to place.
    pub(crate) set: AskedSet,
    /// What upstream says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<ClusterAnswer>,
}

/// Pods to place.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct AskedSet {
    pub(crate) namespace: String,
    pub(crate) count: u32,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) spec: Value,
}

/// Nodes of the pods, each on the first node by name that takes it, and the filter that keeps one more pod from a node.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct ClusterAnswer {
    pub(crate) placed: Vec<String>,
    pub(crate) refusals: BTreeMap<String, String>,
}

/// What a program says.
#[derive(Debug, Deserialize)]
pub(super) struct ClusterReply {
    #[serde(flatten)]
    pub(super) answer: ClusterAnswer,
    #[serde(default)]
    pub(super) error: String,
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

impl ClusterCase {
    fn snapshot(&self) -> Snapshot {
        let mut facts = ClusterFacts::default();
        self.nodes.iter().for_each(|node| facts.add_node(read(node)));
        self.namespaces.iter().for_each(|namespace| facts.add_namespace(read(namespace)));
        self.pods.iter().for_each(|pod| facts.add_pod(&read(pod)));
        Snapshot::new(facts)
    }

    fn set(&self, count: u32) -> PodSet {
        let AskedSet { namespace, labels, spec, .. } = &self.set;
        PodSet {
            name: "set".to_owned(),
            namespace: namespace.clone(),
            count,
            labels: labels.clone(),
            spec: read(spec),
            ..PodSet::default()
        }
    }

    /// Places the pods one by one, each in the cluster with those before it.
    pub(super) fn ours(&self) -> ClusterAnswer {
        let (mut snapshot, mut answer) = (self.snapshot(), ClusterAnswer::default());
        for _ in 0..self.set.count {
            let plan = snapshot.plan(&[self.set(1)], &PlanOptions::default());
            let Some(placement) = plan.sets[0].placements.first() else { break };
            answer.placed.push(placement.node.clone());
            snapshot = plan.after().clone();
        }
        let fit = snapshot.fit(&self.set(1), &PlanOptions::default(), &mut PlanBoxes::default());
        assert!(fit.unsupported.is_empty(), "{}: {:?}", self.name, fit.unsupported);
        for refusal in fit.refusals {
            answer.refusals.extend(refusal.nodes.into_iter().map(|node| (node, filter(refusal.kind).to_owned())));
        }
        answer
    }

    /// Places all pods as one set, and returns their nodes.
    pub(super) fn together(&self) -> Vec<String> {
        let plan = self.snapshot().plan(&[self.set(self.set.count)], &PlanOptions::default());
        let places = plan.sets[0].placements.iter();
        let mut nodes: Vec<String> =
            places.flat_map(|place| std::iter::repeat_n(place.node.clone(), place.pods as usize)).collect();
        nodes.sort();
        nodes
    }

    /// Returns the nodes where upstream places the pods, in order.
    pub(super) fn sorted_places(&self) -> Vec<String> {
        let mut nodes = self.answer.clone().unwrap_or_default().placed;
        nodes.sort();
        nodes
    }

    /// Returns true if the planner may begin the set elsewhere than on the first node.
    pub(super) fn may_begin_anywhere(&self) -> bool {
        self.set.count > 1 && !self.set.spec["affinity"]["podAffinity"].is_null()
    }
}

/// The filter of kube-scheduler that has such reasons.
fn filter(kind: NodeRefusalKind) -> &'static str {
    match kind {
        NodeRefusalKind::Cordoned => "NodeUnschedulable",
        NodeRefusalKind::NotWanted => "NodeAffinity",
        NodeRefusalKind::Taint => "TaintToleration",
        NodeRefusalKind::Port => "NodePorts",
        NodeRefusalKind::Lacking => "NodeResourcesFit",
        NodeRefusalKind::Spread => "PodTopologySpread",
        NodeRefusalKind::OtherPods => "InterPodAffinity",
        NodeRefusalKind::NotReady | NodeRefusalKind::ClaimElsewhere | NodeRefusalKind::Devices => "another",
    }
}
