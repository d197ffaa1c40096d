//! Pods, as far as they decide where they can run. What is not understood here but changes where a pod runs has a field
//! all the same, so that nobody takes it for absent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{NodeSelector, NodeSelectorTerm, ObjectMeta, ResourceList, Toleration};

/// A pod.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Pod {
    /// Name and identity.
    pub metadata: ObjectMeta,
    /// What it wants.
    pub spec: PodSpec,
    /// How it is.
    pub status: PodStatus,
}

/// PodTemplateSpec: what the pods of a workload look like.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PodTemplateSpec {
    /// Labels of the pods.
    pub metadata: ObjectMeta,
    /// What they want.
    pub spec: PodSpec,
}

/// PodSpec: what a pod wants.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node that it runs on, or shall run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Labels that the node must have.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Which nodes, and near which pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints that it bears.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Containers.
    #[serde(deserialize_with = "super::or_default")]
    pub containers: Vec<Container>,
    /// Containers that run before them, or beside them.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<Container>,
    /// What all containers want together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// What the runtime wants on top.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub overhead: ResourceList,
    /// Claims on devices.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_claims: Vec<PodResourceClaim>,
    /// How important it is; more comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The name of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// What holds it back.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub scheduling_gates: Vec<PodSchedulingGate>,
    /// Who places it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// How it is spread.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Volumes.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// Whether it uses the network of the node, and so its ports.
    pub host_network: bool,
}

impl PodSpec {
    /// Whether it wants to run on a node with this name and these labels. Whether it could is another question.
    pub fn wants_node(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let affinity = self.affinity.as_ref().and_then(|it| it.node_affinity.as_ref());
        let required = affinity.and_then(|it| it.required.as_ref());
        self.node_name.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == name)
            && self.node_selector.iter().all(|(label, value)| labels.get(label) == Some(value))
            && required.is_none_or(|selector| selector.matches(name, labels))
    }

    /// It runs only where this selector allows that as well.
    pub fn go_only(&mut self, nodes: &NodeSelector) {
        let affinity = self.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
        affinity.required = Some(affinity.required.take().map_or_else(|| nodes.clone(), |it| it.and(nodes)));
    }

    /// It runs on another node than this one.
    pub fn leave_out(&mut self, node: &str) {
        let affinity = self.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
        let required = affinity
            .required
            .get_or_insert_with(|| NodeSelector { node_selector_terms: vec![NodeSelectorTerm::other_than(node)] });
        required.leave_out(node);
    }
}

/// PodStatus: how a pod is.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// The claims that were made for it from templates.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_claim_statuses: Vec<PodResourceClaim>,
}

/// A claim of a pod: one that exists, or a template of which each pod gets one. In a pod's status: the one that was made.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// What the containers call it.
    pub name: String,
    /// The claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
    /// The template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_template_name: Option<String>,
}

/// What holds a pod back.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct PodSchedulingGate {
    /// Who does.
    pub name: String,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name.
    pub name: String,
    /// What it wants.
    pub resources: ResourceRequirements,
    /// Ports.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ContainerPort>,
    /// `Always` for an init container that stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
}

/// ResourceRequirements of a container or a pod.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceRequirements {
    /// What is set aside.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: ResourceList,
    /// The most; set aside as well where no request is named.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: ResourceList,
}

/// A port of a container.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Its number inside.
    pub container_port: u16,
    /// Its number on the node; 0: none.
    #[serde(skip_serializing_if = "is_zero")]
    pub host_port: u16,
    /// The node's address that it is on; empty: all.
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
    /// `TCP`, which is meant where it is empty, `UDP` or `SCTP`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(port: &u16) -> bool {
    *port == 0
}

/// Affinity: which nodes, and near which pods.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Which nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
    /// Near which pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_affinity: Option<PodAffinity>,
    /// Far from which pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// NodeAffinity: which nodes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// These only.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", skip_serializing_if = "Option::is_none")]
    pub required: Option<NodeSelector>,
    /// These rather than others.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "super::or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub preferred: Vec<PreferredSchedulingTerm>,
}

/// PreferredSchedulingTerm: nodes that are liked.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PreferredSchedulingTerm {
    /// How much.
    pub weight: i32,
    /// Which.
    pub preference: NodeSelectorTerm,
}

/// PodAffinity or PodAntiAffinity; only that there is something.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PodAffinity {
    /// Terms that must be true.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "super::or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub required: Vec<serde_json::Value>,
}

/// TopologySpreadConstraint: how pods are spread.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    /// The label of nodes that makes the parts.
    pub topology_key: String,
    /// `DoNotSchedule`, which is meant where it is empty, or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
}

impl TopologySpreadConstraint {
    /// Whether pods wait rather than break it.
    pub fn is_required(&self) -> bool {
        self.when_unsatisfiable != "ScheduleAnyway"
    }
}

/// A volume; only those that decide where a pod can run say what they are.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Name.
    pub name: String,
    /// A claim on storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<serde_json::Value>,
    /// A claim on storage that is made for the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<serde_json::Value>,
}

impl Volume {
    /// Whether it is storage that not every node may reach.
    pub fn is_claimed(&self) -> bool {
        self.persistent_volume_claim.is_some() || self.ephemeral.is_some()
    }
}

impl Pod {
    /// Whether it holds what it asked for: it has a node, and has not ended.
    pub fn is_on_a_node(&self) -> bool {
        self.node().is_some() && !matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    /// Its node.
    pub fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_let_through_and_what_is_null_is_empty() {
        let pod: Pod = serde_json::from_str(
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b"},
                "spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}},
                "ports":[{"containerPort":80,"hostPort":8080,"hostIP":"10.0.0.1"}]}],"tolerations":null,
                "affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"t"}]}},
                "volumes":[{"name":"v","emptyDir":{}},{"name":"w","persistentVolumeClaim":{"claimName":"x"}}]}}"#,
        )
        .unwrap();
        assert_eq!(pod.spec.containers[0].ports[0].host_ip, "10.0.0.1");
        assert_eq!(pod.spec.affinity.unwrap().pod_anti_affinity.unwrap().required.len(), 1);
        assert_eq!(pod.spec.volumes.iter().map(Volume::is_claimed).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_pod_holds_what_it_asked_for_until_it_ends() {
        let pod = |node: &str, phase: &str| Pod {
            spec: PodSpec { node_name: Some(node.into()), ..PodSpec::default() },
            status: PodStatus { phase: phase.into(), ..PodStatus::default() },
            ..Pod::default()
        };
        assert!(pod("n", "Running").is_on_a_node());
        assert!(pod("n", "").is_on_a_node());
        assert!(!pod("", "Pending").is_on_a_node());
        assert!(!pod("n", "Succeeded").is_on_a_node());
    }
}
