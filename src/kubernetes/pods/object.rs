//! The part of a Pod that is kept: its identity, and the claims of its containers. Everything else is left in the
//! answer.

use std::{collections::BTreeMap, sync::Arc};

use hostler_cluster::ApiObject;
use serde::Deserialize;

use crate::pods::{NodePod, PodClaim, PodContainer, PodContainerClaim, PodContainerKind, PodName};

/// A Pod, as far as it is read.
pub(super) type PodObject = ApiObject<PodSpec, PodStatus>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    init_containers: Vec<ContainerSpec>,
    containers: Vec<ContainerSpec>,
    resource_claims: Vec<PodResourceClaim>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerSpec {
    name: String,
    restart_policy: Option<String>,
    resources: ContainerResources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerResources {
    claims: Vec<ContainerClaim>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerClaim {
    name: String,
    request: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodResourceClaim {
    name: String,
    resource_claim_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    phase: String,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
    resource_claim_statuses: Vec<PodResourceClaim>,
    extended_resource_claim_status: Option<ExtendedResourceClaim>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    name: String,
    #[serde(rename = "containerID")]
    container_id: String,
}

/// The claim that stands for the extended resources of a pod; the scheduler made it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExtendedResourceClaim {
    resource_claim_name: String,
    request_mappings: Vec<ExtendedResourceRequest>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExtendedResourceRequest {
    container_name: String,
    request_name: String,
}

/// Returns the part that is kept; nothing of an object that no API server gives.
pub(super) fn node_pod(pod: PodObject) -> Option<Arc<NodePod>> {
    let name = PodName { namespace: pod.namespace()?.to_owned(), name: pod.name()?.to_owned() };
    let (uid, deleting) = (pod.version().uid, pod.is_being_deleted());
    let PodObject { spec, status, .. } = pod;
    let extended = status.extended_resource_claim_status.as_ref();
    let mut claims = claims(&spec.resource_claims, &status.resource_claim_statuses);
    if let Some(extended) = extended {
        let claim = PodClaim::Generated(Some(extended.resource_claim_name.clone()));
        claims.entry(extended.resource_claim_name.clone()).or_insert(claim);
    }
    let init = spec.init_containers.into_iter().map(|container| {
        let stays = container.restart_policy.as_deref() == Some("Always");
        let kind = if stays { PodContainerKind::Sidecar } else { PodContainerKind::Init };
        node_container(container, kind, &status.init_container_statuses, extended)
    });
    let regular = spec
        .containers
        .into_iter()
        .map(|container| node_container(container, PodContainerKind::Regular, &status.container_statuses, extended));
    let ended = matches!(status.phase.as_str(), "Succeeded" | "Failed");
    Some(Arc::new(NodePod { name, uid, ended, deleting, containers: init.chain(regular).collect(), claims }))
}

fn claims(named: &[PodResourceClaim], told: &[PodResourceClaim]) -> BTreeMap<String, PodClaim> {
    let claim = |claim: &PodResourceClaim| match &claim.resource_claim_name {
        Some(object) => PodClaim::Named(object.clone()),
        None => generated(told.iter().find(|told| told.name == claim.name)),
    };
    named.iter().map(|named| (named.name.clone(), claim(named))).collect()
}

/// An entry of the status without a name says that the template gives nothing; no entry says nothing yet.
fn generated(told: Option<&PodResourceClaim>) -> PodClaim {
    match told {
        None => PodClaim::Generated(None),
        Some(PodResourceClaim { resource_claim_name: None, .. }) => PodClaim::Nothing,
        Some(PodResourceClaim { resource_claim_name: object, .. }) => PodClaim::Generated(object.clone()),
    }
}

fn node_container(
    container: ContainerSpec,
    kind: PodContainerKind,
    statuses: &[ContainerStatus],
    extended: Option<&ExtendedResourceClaim>,
) -> PodContainer {
    let status = statuses.iter().find(|status| status.name == container.name);
    let own = container.resources.claims.into_iter();
    let own = own.map(|claim| PodContainerClaim { name: claim.name, request: claim.request });
    let of_extended = extended.into_iter().flat_map(|extended| {
        let mapped = extended.request_mappings.iter().filter(|mapped| mapped.container_name == container.name);
        mapped.map(|mapped| PodContainerClaim {
            name: extended.resource_claim_name.clone(),
            request: Some(mapped.request_name.clone()),
        })
    });
    let claims = own.chain(of_extended).collect();
    // `containerd://0123…`; empty before the first start.
    let runtime_id = status.and_then(|status| status.container_id.split_once("://")).map(|(_, id)| id.to_owned());
    PodContainer { kind, claims, runtime_id, name: container.name }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "callers make both on the spot")]
    fn of(spec: Value, status: Value) -> NodePod {
        let metadata = json!({"name": "train", "namespace": "ml", "uid": "p1", "labels": {"a": "b"}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status});
        Arc::unwrap_or_clone(node_pod(serde_json::from_value(pod).unwrap()).unwrap())
    }

    #[test]
    fn claims_are_named_generated_not_known_yet_or_nothing() {
        let claim = |name: &str| json!({"name": name, "resourceClaimTemplateName": "t"});
        let pod = of(
            json!({"containers": [], "resourceClaims": [
                {"name": "own", "resourceClaimName": "shared"}, claim("new"), claim("made"), claim("none")]}),
            json!({"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "train-made-x7"}, {"name": "none"}]}),
        );
        let claims: Vec<(&str, &PodClaim)> = pod.claims.iter().map(|(name, claim)| (name.as_str(), claim)).collect();
        assert_eq!(
            claims,
            [
                ("made", &PodClaim::Generated(Some("train-made-x7".to_owned()))),
                ("new", &PodClaim::Generated(None)),
                ("none", &PodClaim::Nothing),
                ("own", &PodClaim::Named("shared".to_owned())),
            ]
        );
    }

    #[test]
    fn containers_come_with_their_kind_their_claims_and_the_id_of_the_runtime() {
        let uses = |claims: Value| json!({"claims": claims});
        let pod = of(
            json!({
                "initContainers": [
                    {"name": "first"},
                    {"name": "beside", "restartPolicy": "Always", "resources": uses(json!([{"name": "a"}]))},
                ],
                "containers": [{"name": "main", "resources": uses(json!([{"name": "a", "request": "r"}]))}],
            }),
            json!({
                "phase": "Running",
                "initContainerStatuses": [{"name": "first", "containerID": "containerd://f00"}],
                "containerStatuses": [{"name": "main", "containerID": ""}],
            }),
        );
        let kinds: Vec<PodContainerKind> = pod.containers.iter().map(|container| container.kind).collect();
        assert_eq!(kinds, [PodContainerKind::Init, PodContainerKind::Sidecar, PodContainerKind::Regular]);
        let ids: Vec<Option<&str>> = pod.containers.iter().map(|container| container.runtime_id.as_deref()).collect();
        assert_eq!(ids, [Some("f00"), None, None]);
        let used = |index: usize| pod.containers[index].claims.clone();
        assert_eq!(used(1), [PodContainerClaim { name: "a".to_owned(), request: None }]);
        assert_eq!(used(2), [PodContainerClaim { name: "a".to_owned(), request: Some("r".to_owned()) }]);
        assert!(!pod.ended && !pod.deleting);
    }

    #[test]
    fn extended_resources_are_a_claim_that_the_scheduler_made() {
        let pod = of(
            json!({"containers": [{"name": "main"}, {"name": "other"}]}),
            json!({"extendedResourceClaimStatus": {
                "resourceClaimName": "train-extended-x7",
                "requestMappings": [
                    {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}],
            }}),
        );
        let generated = PodClaim::Generated(Some("train-extended-x7".to_owned()));
        assert_eq!(pod.claims.get("train-extended-x7"), Some(&generated));
        let request = Some("container-0-request-0".to_owned());
        assert_eq!(pod.containers[0].claims, [PodContainerClaim { name: "train-extended-x7".to_owned(), request }]);
        assert!(pod.containers[1].claims.is_empty());
    }

    #[test]
    fn a_pod_without_a_status_has_just_been_made() {
        let pod = json!({
            "metadata": {"name": "a", "namespace": "b", "uid": "c", "deletionTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"containers": [{"name": "main"}]},
        });
        let pod = node_pod(serde_json::from_value(pod).unwrap()).unwrap();
        assert!(pod.deleting && !pod.ended && pod.containers[0].runtime_id.is_none());
    }
}
