//! The answer, for programs. docs/planning.md describes it.

use std::collections::{BTreeMap, HashMap};

use hostler_allocator::plan::{
    CutShort, DeviceCount, NodeLeft, Order, Placement, Plan, PlanOptions, SetPlan, Snapshot, Verdict,
};
use hostler_cli::output::API_VERSION;
use serde::{Deserialize, Serialize};

/// Nodes that are named with a reason.
const EXAMPLES: usize = 10;

/// Answer to a question about which pods fit, and where.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlanAnswer {
    api_version: String,
    kind: String,
    /// The version of Kubernetes whose scheduler decides.
    pub(crate) kubernetes: String,
    /// Verdict about all pods.
    pub(crate) verdict: Verdict,
    /// The order in which sets of equal priority were placed.
    pub(crate) order: Order,
    /// Sets of pods to place, in the order in which they were read.
    pub(crate) pod_sets: Vec<PodSetAnswer>,
    /// Devices by driver: all devices, and those that would be left.
    pub(crate) devices: Vec<DevicesAnswer>,
    /// The same counts by class; a device can be of several.
    pub(crate) classes: Vec<ClassAnswer>,
    /// Nodes, with the pods that would come and the resources that would be left.
    pub(crate) nodes: Vec<NodeAnswer>,
    /// Facts that make the answer less certain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// Pods that are alike.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodSetAnswer {
    /// Namespace of the pods.
    pub(crate) namespace: String,
    /// `Deployment train`.
    pub(crate) name: String,
    /// Verdict about all pods of the set.
    pub(crate) verdict: Verdict,
    /// Number of pods to place.
    pub(crate) wanted: u32,
    /// Number of pods that get a place.
    pub(crate) placed: u32,
    /// Nodes of the pods that get a place.
    pub(crate) nodes: Vec<PlacementAnswer>,
    /// Reasons why no more pods fit, the reason of most nodes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) reasons: Vec<ReasonAnswer>,
    /// The point at which planning was cut short: the question took more work or time than one visitor has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cut_short: Option<CutShort>,
    /// Fields that are not judged here: the answer holds only as far as these decide nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unsupported: Vec<String>,
    /// Facts to know about the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// Pods on a node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct PlacementAnswer {
    pub(crate) node: String,
    pub(crate) pods: u32,
}

/// The reason why no more pods fit.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ReasonAnswer {
    /// The reason in words.
    pub(crate) reason: String,
    /// Number of nodes where this reason is the first; 0 for a reason that is not a node's.
    pub(crate) nodes: usize,
    /// Names of some of these nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) examples: Vec<String>,
}

/// Devices of a driver.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct DevicesAnswer {
    pub(crate) driver: String,
    #[serde(flatten)]
    pub(crate) count: CountAnswer,
}

/// Devices of a class.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ClassAnswer {
    pub(crate) class: String,
    #[serde(flatten)]
    pub(crate) count: CountAnswer,
}

/// Numbers of devices.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct CountAnswer {
    /// All devices.
    pub(crate) devices: usize,
    /// Devices in service of which all or a part is free, before.
    pub(crate) free: usize,
    /// Devices of which all or a part would be free after.
    pub(crate) left: usize,
}

/// A node.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeAnswer {
    pub(crate) node: String,
    /// Number of pods that would come.
    pub(crate) placed: u32,
    /// Resources of the node that would be left.
    pub(crate) left: BTreeMap<String, String>,
    /// Devices of the node that would be free, all or a part, by driver.
    pub(crate) devices_left: BTreeMap<String, usize>,
}

impl PlanAnswer {
    /// Makes the answer from a plan of a snapshot; there are notes of each set, and of the whole.
    pub(crate) fn new(
        before: &Snapshot,
        plan: &Plan,
        options: &PlanOptions,
        notes_of_sets: Vec<Vec<String>>,
        notes: Vec<String>,
    ) -> Self {
        let (before, after) = (before.left(options), plan.after().left(options));
        let sets = plan.sets.iter().zip(notes_of_sets);
        let classes = counts(before.classes, after.classes);
        let drivers = counts(before.devices, after.devices);
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "Plan".to_owned(),
            kubernetes: options.version.to_string(),
            verdict: plan.verdict(),
            order: plan.order,
            pod_sets: sets.map(|(set, notes)| PodSetAnswer::new(set, notes)).collect(),
            devices: drivers.map(|(driver, count)| DevicesAnswer { driver, count }).collect(),
            classes: classes.map(|(class, count)| ClassAnswer { class, count }).collect(),
            nodes: nodes(&plan.sets, after.nodes),
            notes,
        }
    }
}

impl PodSetAnswer {
    fn new(set: &SetPlan, mut notes: Vec<String>) -> Self {
        notes.extend(set.notes.iter().cloned());
        let place = |place: &Placement| PlacementAnswer { node: place.node.clone(), pods: place.pods };
        Self {
            namespace: set.namespace.clone(),
            name: set.name.clone(),
            verdict: set.verdict,
            wanted: set.wanted,
            placed: set.placed,
            nodes: set.placements.iter().map(place).collect(),
            reasons: if set.placed < set.wanted { ReasonAnswer::all_of(set) } else { Vec::new() },
            cut_short: set.cut_short,
            unsupported: set.unsupported.clone(),
            notes,
        }
    }
}

impl ReasonAnswer {
    /// Returns the reasons that keep the next pod of the set from every node.
    pub(crate) fn all_of(set: &SetPlan) -> Vec<Self> {
        let whole = set.problem.iter().map(|problem| Self { reason: problem.clone(), nodes: 0, examples: Vec::new() });
        let refusals = set.refusals.iter().filter(|refusal| set.problem.as_ref() != Some(&refusal.reason));
        let of_nodes = refusals.map(|refusal| Self {
            reason: refusal.reason.clone(),
            nodes: refusal.nodes.len(),
            examples: refusal.nodes.iter().take(EXAMPLES).cloned().collect(),
        });
        whole.chain(of_nodes).collect()
    }
}

/// Counts the devices of each name, before and after.
fn counts(
    before: BTreeMap<String, DeviceCount>,
    after: BTreeMap<String, DeviceCount>,
) -> impl Iterator<Item = (String, CountAnswer)> {
    before.into_iter().map(move |(name, count)| {
        let left = after.get(&name).map_or(0, |after| after.free);
        (name, CountAnswer { devices: count.there, free: count.free, left })
    })
}

fn nodes(sets: &[SetPlan], left: Vec<NodeLeft>) -> Vec<NodeAnswer> {
    let mut placed: HashMap<&str, u32> = HashMap::new();
    for placement in sets.iter().flat_map(|set| &set.placements) {
        *placed.entry(&placement.node).or_default() += placement.pods;
    }
    let answer = |left: NodeLeft| NodeAnswer {
        placed: placed.get(&*left.node).copied().unwrap_or_default(),
        node: left.node,
        left: left.resources,
        devices_left: left.devices.into_iter().map(|(driver, count)| (driver, count.free)).collect(),
    };
    left.into_iter().map(answer).collect()
}
