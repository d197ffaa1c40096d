//! Reads what is deployed: from files, or object by object from a cluster.

use std::path::PathBuf;

use hostler_api::provisioning;
use hostler_cluster::{ApiFailure, Collection};
use serde_json::Value;

use crate::{
    cluster_args::ClusterArgs,
    deployed::{DEFINITIONS, DeployedObjects, DeployedReader, ExpectedManifest, ROLES, list, name_of},
    plan::{ClusterReadError, InputProblem, for_each_object, for_each_text},
};

const ROLES_GROUP: &str = "rbac.authorization.k8s.io";

/// Reads manifests.
pub(super) fn from_files(files: &[PathBuf]) -> Result<DeployedObjects, Vec<InputProblem>> {
    let (mut deployed, mut problems, mut unreadable) = (DeployedObjects::default(), Vec::new(), Vec::new());
    for_each_text(files, &mut unreadable, &mut |input| {
        for_each_object(&input, &mut problems, &mut |object, _| {
            deployed.objects.push(object.read()?);
            Ok(())
        });
    });
    problems.extend(unreadable);
    if problems.is_empty() { Ok(deployed) } else { Err(problems) }
}

/// Reads a cluster.
pub(super) async fn from_cluster(access: &ClusterArgs) -> Result<DeployedObjects, ClusterReadError> {
    let client = access.client().map_err(ClusterReadError::connect)?;
    let minor = client.minor_release().await.map_err(ClusterReadError::call)?;
    let serves_claims = match client.version().await.map(drop).or(client.classic_version().await.map(drop)) {
        Ok(()) => true,
        Err(ApiFailure::NoResourceApi) => false,
        Err(failure) => return Err(ClusterReadError::call(failure)),
    };
    let known = DeployedObjects { minor: Some(minor), serves_claims: Some(serves_claims), objects: Vec::new() };
    let mut reader = DeployedReader::new(client, known);
    read(&mut reader).await?;
    // What is not read would be taken for missing.
    reader.refusals.into_iter().next().map_or(Ok(reader.deployed), Err)
}

async fn read(reader: &mut DeployedReader) -> Result<(), ClusterReadError> {
    let custom = |group, kind, plural| Collection::custom(group, "v1", kind, plural);
    for expected in DEFINITIONS.iter().flat_map(ExpectedManifest::objects) {
        let all = custom("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions");
        reader.get(&all, name_of(&expected)).await?;
    }
    for expected in ROLES.iter().flat_map(ExpectedManifest::objects) {
        match (expected["kind"].as_str(), expected["metadata"]["namespace"].as_str()) {
            (Some("ClusterRole"), _) => {
                reader.get(&custom(ROLES_GROUP, "ClusterRole", "clusterroles"), name_of(&expected)).await?;
            }
            (Some("Role"), Some(namespace)) => {
                reader.get(&custom(ROLES_GROUP, "Role", "roles").of(namespace), name_of(&expected)).await?;
            }
            _ => {}
        }
    }
    reader.workloads().await?;
    reader.list(&Collection::core("Node", "nodes")).await?;
    read_objects(reader).await
}

/// Reads hostler's objects in the version in which the cluster stores them, and requests for capacity.
async fn read_objects(reader: &mut DeployedReader) -> Result<(), ClusterReadError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let stored = |definition: &Value| {
        let spec = &definition["spec"];
        let version = list(&spec["versions"]).find(|version| version["storage"] == true)?;
        let (kind, plural) = (text(&spec["names"]["kind"]), text(&spec["names"]["plural"]));
        Some(Collection::custom(&text(&spec["group"]), &text(&version["name"]), &kind, &plural))
    };
    let kinds: Vec<Collection> = reader.deployed.of("CustomResourceDefinition").filter_map(stored).collect();
    for all in kinds {
        reader.list(&all).await?;
    }
    for version in provisioning::VERSIONS {
        let (group, kind) = (provisioning::GROUP, provisioning::PROVISIONING_REQUEST_KIND);
        if reader.list(&Collection::custom(group, version, kind, provisioning::PROVISIONING_REQUESTS)).await? {
            break;
        }
    }
    Ok(())
}
