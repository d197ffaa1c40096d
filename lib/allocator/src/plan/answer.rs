//! The answer of a plan.

use std::collections::BTreeMap;

use hostler_api::ExactQuantity;
use serde::{Deserialize, Serialize};

use super::{CutShort, Snapshot};

/// The nodes of the pods of some sets, and the cluster with those pods placed.
#[derive(Debug)]
pub struct Plan {
    /// The order in which the sets were placed.
    pub order: Order,
    /// The sets, in the order in which they were given.
    pub sets: Vec<SetPlan>,
    pub(super) after: Snapshot,
}

/// The order in which sets are placed. More important ones come first in all of them.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The order in which the sets were given.
    AsGiven,
    /// Sets whose pods ask for the most first.
    LargestFirst,
    /// Sets that fit on the fewest nodes first.
    FewestNodesFirst,
}

/// The verdict on the pods of a set.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All pods fit.
    Fits,
    /// Something that is not looked at decides.
    Undecided,
    /// Not all pods fit.
    DoesNotFit,
}

/// The plan of one set of pods.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetPlan {
    /// Name of the set.
    pub name: String,
    /// Namespace of its pods.
    pub namespace: String,
    /// The verdict on the pods.
    pub verdict: Verdict,
    /// Number of pods in the set.
    pub wanted: u32,
    /// Number of pods that have a node.
    pub placed: u32,
    /// Nodes of the pods, in the order in which nodes were filled.
    pub placements: Vec<Placement>,
    /// The reason why no further pod can run on any node, where that does not lie with the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Nodes that would take one more pod.
    pub room: Vec<String>,
    /// Reasons why the other nodes do not take one more pod, the most frequent first.
    pub refusals: Vec<NodeRefusal>,
    /// The point at which planning stopped, if it took more work or time than one asker has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<CutShort>,
    /// Constraints on where the pods run that the plan does not look at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<String>,
    /// Other remarks on the set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Pods of a set on a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placement {
    /// The node.
    pub node: String,
    /// Number of pods.
    pub pods: u32,
    /// Devices of the pods, where the caller asked for their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<PlacedDevice>,
}

/// A device of a pod.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PlacedDevice {
    /// Index of the pod in the set, counted from 0.
    pub pod: u32,
    /// The pod's name for the claim.
    pub claim: String,
    /// `request` or `request/subrequest`.
    pub request: String,
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Amounts that the pod takes of a device that several claims share, by capacity.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed: BTreeMap<String, ExactQuantity>,
}

/// A reason why nodes do not take a pod, with those nodes.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct NodeRefusal {
    /// The first reason, in words.
    pub reason: String,
    /// The kind of the reason, for advice.
    #[serde(skip)]
    pub kind: NodeRefusalKind,
    /// The nodes, by name.
    pub nodes: Vec<String>,
}

/// The kind of a reason why a node does not take a pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NodeRefusalKind {
    /// The node's kubelet does not say that it is ready.
    NotReady,
    /// The node takes no new pods.
    Cordoned,
    /// The pod names another node, or labels that the node has not.
    NotWanted,
    /// The pod does not tolerate a taint of the node.
    Taint,
    /// A host port is taken.
    Port,
    /// The node lacks CPU, memory or another resource.
    Lacking,
    /// The pods would be spread too unevenly.
    Spread,
    /// Pods that the pod must run near are not there, or such that it must run far from are.
    OtherPods,
    /// The claim has its devices elsewhere.
    ClaimElsewhere,
    /// The devices of the node do not satisfy the claims.
    Devices,
}

impl Plan {
    /// Returns the least favourable verdict of all sets.
    pub fn verdict(&self) -> Verdict {
        self.sets.iter().map(|set| set.verdict).max().unwrap_or(Verdict::Fits)
    }

    /// Returns the cluster with all pods that were placed, ready for the next question.
    pub fn after(&self) -> &Snapshot {
        &self.after
    }
}
