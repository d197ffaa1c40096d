//! Terms of a pod about the nodes and the other pods that it runs near, or far from.

use serde::{Deserialize, Serialize};

use super::{LabelSelector, NodeSelector, NodeSelectorTerm};

/// Affinity to nodes and to other pods.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Nodes that the pod must or should run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
    /// Pods that this pod runs near.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_affinity: Option<PodAffinity>,
    /// Pods that this pod runs far from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// NodeAffinity: nodes that a pod must or should run on.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// The only nodes that the pod may run on.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", skip_serializing_if = "Option::is_none")]
    pub required: Option<NodeSelector>,
    /// Nodes that are preferred to others.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "super::or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub preferred: Vec<PreferredSchedulingTerm>,
}

/// PreferredSchedulingTerm: nodes that are preferred.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PreferredSchedulingTerm {
    /// Weight of the preference.
    pub weight: i32,
    /// Term that matches the preferred nodes.
    pub preference: NodeSelectorTerm,
}

/// PodAffinity or PodAntiAffinity; preferred terms are scores, and are not read.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(default)]
pub struct PodAffinity {
    /// Terms that must be true.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "super::or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub required: Vec<PodAffinityTerm>,
}

/// PodAffinityTerm: pods, and the label of nodes by which a node is near them.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// The pods; none: no pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Label of nodes whose values make the domains.
    pub topology_key: String,
    /// Namespaces of the pods.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Further namespaces of the pods, by their labels. Without this and names, the namespace of the pod itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Labels that the pods must have in common with the pod itself.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub match_label_keys: Vec<String>,
    /// Labels that the pods must not have in common with the pod itself.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub mismatch_label_keys: Vec<String>,
}

/// TopologySpreadConstraint: terms by which pods are spread.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    /// Greatest number of pods by which a domain may exceed the emptiest one.
    pub max_skew: i32,
    /// Label of nodes whose values make the domains.
    pub topology_key: String,
    /// `DoNotSchedule`, which is also meant by an empty text, or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
    /// The pods that are counted; none: no pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Number of domains below which the emptiest one counts as empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_domains: Option<i32>,
    /// `Honor`, which is meant where it is absent: nodes that the pod's node affinity excludes make no domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity_policy: Option<String>,
    /// `Honor`: nodes with taints that the pod does not tolerate make no domain. Absent: `Ignore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_taints_policy: Option<String>,
    /// Labels that the pods must have in common with the pod itself.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub match_label_keys: Vec<String>,
}

impl TopologySpreadConstraint {
    /// True if pods wait rather than break the constraint.
    pub fn is_required(&self) -> bool {
        self.when_unsatisfiable != "ScheduleAnyway"
    }
}

impl Affinity {
    /// Terms about pods that this pod must run near.
    pub fn near(&self) -> &[PodAffinityTerm] {
        self.pod_affinity.as_ref().map_or(&[], |it| &it.required)
    }

    /// Terms about pods that this pod must run far from.
    pub fn far(&self) -> &[PodAffinityTerm] {
        self.pod_anti_affinity.as_ref().map_or(&[], |it| &it.required)
    }
}
