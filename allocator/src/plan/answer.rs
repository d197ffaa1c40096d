//! What a plan says.

use std::collections::BTreeMap;

use hostler_api::ExactQuantity;
use serde::{Deserialize, Serialize};

use super::{CutShort, Snapshot};

/// Where the pods of some sets go, and what is left then.
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
    /// As they were given.
    AsGiven,
    /// Those that want the most first.
    LargestFirst,
    /// Those that fit on the fewest nodes first.
    FewestNodesFirst,
}

/// Whether the pods of a set fit.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All of them.
    Fits,
    /// Something that is not looked at decides.
    Undecided,
    /// Not all of them.
    DoesNotFit,
}

/// Where the pods of a set go.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetPlan {
    /// Name of the set.
    pub name: String,
    /// Namespace of its pods.
    pub namespace: String,
    /// Whether they fit.
    pub verdict: Verdict,
    /// How many there are.
    pub wanted: u32,
    /// How many have a node.
    pub placed: u32,
    /// Where they are, in the order in which nodes were filled.
    pub placements: Vec<Placement>,
    /// Why none more can be anywhere, where that is not for reasons of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Nodes that would take one more.
    pub room: Vec<String>,
    /// Why the other nodes do not take one more, the most frequent first.
    pub refusals: Vec<Refusal>,
    /// How far it was looked at, if it took more work or time than one asker has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<CutShort>,
    /// What decides where they run and was not looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<String>,
    /// What else there is to say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Pods of a set on a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placement {
    /// The node.
    pub node: String,
    /// How many.
    pub pods: u32,
    /// Their devices, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<PlacedDevice>,
}

/// A device of a pod.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PlacedDevice {
    /// Which pod of the set, counted from 0.
    pub pod: u32,
    /// What the pod calls the claim.
    pub claim: String,
    /// `request` or `request/subrequest`.
    pub request: String,
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// What it takes of a device that several claims share.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed: BTreeMap<String, ExactQuantity>,
}

/// Why nodes do not take a pod.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Refusal {
    /// The first reason, in words.
    pub reason: String,
    /// The nodes, by name.
    pub nodes: Vec<String>,
}

impl Plan {
    /// Whether everything fits.
    pub fn verdict(&self) -> Verdict {
        self.sets.iter().map(|set| set.verdict).max().unwrap_or(Verdict::Fits)
    }

    /// The cluster with all that was placed: the next question can be asked of it.
    pub fn after(&self) -> &Snapshot {
        &self.after
    }
}
