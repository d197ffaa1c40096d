//! Negotiation of scheduler and drivers about the node of one pod. The shape is the same in all versions; 1.26 calls
//! it PodScheduling.

use serde::{Deserialize, Serialize};

use super::ClassicMeta;
use crate::resource::or_empty;

/// The negotiation about one pod; has the pod's name and belongs to it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PodSchedulingContext {
    /// Name of the pod.
    pub metadata: ClassicMeta,
    /// Proposals of the scheduler.
    pub spec: PodSchedulingContextSpec,
    /// Answers of the drivers.
    pub status: PodSchedulingContextStatus,
}

/// Proposals of the scheduler.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSchedulingContextSpec {
    /// The node for which claims shall be allocated now.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selected_node: String,
    /// Nodes that would do.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub potential_nodes: Vec<String>,
}

/// Answers of the drivers.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSchedulingContextStatus {
    /// One entry for each claim that is not allocated yet.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_claims: Vec<ClaimSchedulingStatus>,
}

/// Nodes on which a claim cannot be allocated.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSchedulingStatus {
    /// Name of the claim in the pod.
    pub name: String,
    /// Nodes that will not do. An entry counts even if this is empty.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub unsuitable_nodes: Vec<String>,
}
