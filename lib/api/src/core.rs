//! The API group `""` (core), as far as it is read here: nodes, pods, and the terms that decide which pod runs on
//! which node.
//!
//! Types have the names of Kubernetes' own, and fields that are not known are let through.

mod metadata;
mod node;
mod pod;
mod quota;
mod requests;
mod selector;
mod toleration;

use serde::{Deserialize, Deserializer};

pub use metadata::{ObjectMeta, OwnerReference};
pub use node::{Node, NodeCondition, NodeSpec, NodeStatus, ResourceList};
pub use pod::{
    Affinity, Container, ContainerPort, NodeAffinity, Pod, PodAffinity, PodResourceClaim, PodSchedulingGate, PodSpec,
    PodStatus, PodTemplateSpec, PreferredSchedulingTerm, ResourceRequirements, TopologySpreadConstraint, Volume,
};
pub use quota::{ResourceQuota, ResourceQuotaSpec};
pub use selector::{NodeSelector, NodeSelectorError, NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm};
pub use toleration::{Taint, Toleration};

/// Reads `null` as the default: Go writes a list or a map that was never made as `null`.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
