//! The API group `""` (core), as far as it is read here: nodes, pods, and the terms that decide which pod runs on
//! which node.
//!
//! Types have the names of Kubernetes' own, and fields that are not known are let through.

mod affinity;
mod label_selector;
mod metadata;
mod namespace;
mod node;
mod pod;
mod quota;
mod requests;
mod selector;
mod toleration;

use serde::{Deserialize, Deserializer};

pub use affinity::{
    Affinity, NodeAffinity, PodAffinity, PodAffinityTerm, PreferredSchedulingTerm, TopologySpreadConstraint,
};
pub use label_selector::{LabelSelector, LabelSelectorOperator, LabelSelectorRequirement};
pub use metadata::{ObjectMeta, OwnerReference};
pub use namespace::{NAMESPACE_NAME_LABEL, Namespace};
pub use node::{Node, NodeCondition, NodeSpec, NodeStatus, ResourceList};
pub use pod::{
    Container, ContainerPort, Pod, PodResourceClaim, PodSchedulingGate, PodSpec, PodStatus, PodTemplateSpec,
    ResourceRequirements, Volume,
};
pub use quota::{ResourceQuota, ResourceQuotaSpec};
pub use selector::{NodeSelector, NodeSelectorError, NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm};
pub use toleration::{Taint, Toleration};

/// Reads `null` as the default: Go writes a list or a map that was never made as `null`.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
