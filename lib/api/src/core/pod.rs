//! Pods, as far as they decide where they can run. A field that changes where a pod runs is here even if it is not
//! understood, so that no reader takes it for absent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Affinity, NodeSelector, NodeSelectorTerm, ObjectMeta, ResourceList, Toleration, TopologySpreadConstraint};

/// A pod.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Pod {
    /// Name and identity.
    pub metadata: ObjectMeta,
    /// Containers, claims and placement of the pod.
    pub spec: PodSpec,
    /// State of the pod.
    pub status: PodStatus,
}

/// PodTemplateSpec: template of a workload's pods.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PodTemplateSpec {
    /// Labels of the pods.
    pub metadata: ObjectMeta,
    /// Spec of the pods.
    pub spec: PodSpec,
}

/// PodSpec: containers, claims and placement of a pod.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Node that the pod runs on, or shall run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Labels that the node must have.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Affinity to nodes and to other pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints that the pod tolerates.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Containers.
    #[serde(deserialize_with = "super::or_default")]
    pub containers: Vec<Container>,
    /// Containers that run before the others, or beside them.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<Container>,
    /// Resources that all containers ask for together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Resources that the runtime adds.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub overhead: ResourceList,
    /// Claims on devices.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_claims: Vec<PodResourceClaim>,
    /// Priority; higher comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Name of the priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Gates that hold the pod back.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub scheduling_gates: Vec<PodSchedulingGate>,
    /// Scheduler that places the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Terms by which pods are spread.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Volumes.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// True if the pod uses the network of the node, and so its ports.
    pub host_network: bool,
}

impl PodSpec {
    /// True if the pod asks for a node with this name and these labels. The check does not cover the room on the node.
    pub fn wants_node(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let affinity = self.affinity.as_ref().and_then(|it| it.node_affinity.as_ref());
        let required = affinity.and_then(|it| it.required.as_ref());
        self.node_name.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == name)
            && self.node_selector.iter().all(|(label, value)| labels.get(label) == Some(value))
            && required.is_none_or(|selector| selector.matches(name, labels))
    }

    /// Restricts the pod further to nodes that the selector matches.
    pub fn go_only(&mut self, nodes: &NodeSelector) {
        let affinity = self.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
        affinity.required = Some(affinity.required.take().map_or_else(|| nodes.clone(), |it| it.and(nodes)));
    }

    /// Excludes the node from those that the pod can run on.
    pub fn leave_out(&mut self, node: &str) {
        let affinity = self.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
        let required = affinity
            .required
            .get_or_insert_with(|| NodeSelector { node_selector_terms: vec![NodeSelectorTerm::other_than(node)] });
        required.leave_out(node);
    }
}

/// PodStatus: state of a pod.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// Node that the scheduler, or a controller before it, chose for the pod; a hint until the pod has a node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nominated_node_name: String,
    /// Claims that were made for the pod from templates.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_claim_statuses: Vec<PodResourceClaim>,
}

/// A claim of a pod: an existing claim, or a template from which each pod gets a claim. In a pod's status: the claim
/// that was made.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// Name by which the containers refer to the claim.
    pub name: String,
    /// Name of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
    /// Name of the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_template_name: Option<String>,
}

/// Gate that holds a pod back.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct PodSchedulingGate {
    /// Name of the gate.
    pub name: String,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name.
    pub name: String,
    /// Resources that the container asks for.
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
    /// Amounts that are set aside.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: ResourceList,
    /// Upper bounds; set aside as well where no request is named.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: ResourceList,
}

/// A port of a container.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Number of the port inside the container.
    pub container_port: u16,
    /// Number of the port on the node; 0: none.
    #[serde(skip_serializing_if = "is_zero")]
    pub host_port: u16,
    /// Address of the node that the port is on; empty: all addresses.
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
    /// `TCP`, which is also meant by an empty text, `UDP` or `SCTP`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(port: &u16) -> bool {
    *port == 0
}

/// A volume; only volumes that decide where a pod can run say their kind.
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
    /// True if the volume is storage that some nodes may not reach.
    pub fn is_claimed(&self) -> bool {
        self.persistent_volume_claim.is_some() || self.ephemeral.is_some()
    }
}

impl Pod {
    /// True if the pod holds the resources that it asked for: the pod has a node, and has not ended.
    pub fn is_on_a_node(&self) -> bool {
        self.node().is_some() && !matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    /// Name of the node that the pod is nominated for: the pod waits, and schedulers leave room for it there.
    pub fn nominated_node(&self) -> Option<&str> {
        let is_waiting = self.node().is_none() && !matches!(&*self.status.phase, "Succeeded" | "Failed");
        Some(&*self.status.nominated_node_name).filter(|name| is_waiting && !name.is_empty())
    }

    /// Name of the pod's node.
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
        let nominated = |node: &str, phase: &str| {
            let mut pod = pod(node, phase);
            pod.status.nominated_node_name = "m".into();
            pod.nominated_node().map(str::to_owned)
        };
        assert_eq!(nominated("", "Pending"), Some("m".to_owned()));
        assert_eq!(nominated("n", "Pending"), None);
        assert_eq!(nominated("", "Failed"), None);
    }
}
