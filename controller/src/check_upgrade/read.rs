//! Reads what is deployed: from files, or object by object from a cluster.

use std::path::PathBuf;

use hostler_api::provisioning;
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use serde::Deserialize;
use serde_json::Value;

use super::{
    deployed::{CONTROLLER_NAMESPACE, DAEMON_NAMESPACE, DeployedObjects, list, name_of},
    expected::{DEFINITIONS, ExpectedManifest, ROLES},
};
use crate::{
    cluster_args::ClusterArgs,
    plan::{ClusterReadError, InputProblem, for_each_object, for_each_text},
};

const ROLES_GROUP: &str = "rbac.authorization.k8s.io";

/// Reads manifests.
pub(super) fn from_files(files: &[PathBuf]) -> Result<DeployedObjects, Vec<InputProblem>> {
    let (mut deployed, mut problems, mut unreadable) = (DeployedObjects::default(), Vec::new(), Vec::new());
    for_each_text(files, &mut unreadable, &mut |input| {
        for_each_object(&input, &mut problems, &mut |object| {
            object.head()?;
            deployed.objects.push(object.read()?);
            Ok(())
        });
    });
    problems.extend(unreadable);
    if problems.is_empty() { Ok(deployed) } else { Err(problems) }
}

/// Reads a cluster.
pub(super) async fn from_cluster(access: &ClusterArgs) -> Result<DeployedObjects, ClusterReadError> {
    let client = access.client().map_err(ClusterReadError::Connect)?;
    let minor = client.minor_release().await.map_err(ClusterReadError::call)?;
    let serves_claims = match client.version().await.map(drop).or(client.classic_version().await.map(drop)) {
        Ok(()) => true,
        Err(ApiFailure::NoResourceApi) => false,
        Err(failure) => return Err(ClusterReadError::call(failure)),
    };
    let deployed = DeployedObjects { minor: Some(minor), serves_claims: Some(serves_claims), objects: Vec::new() };
    let mut reader = ClusterReader { client, deployed };
    reader.read().await?;
    Ok(reader.deployed)
}

struct ClusterReader {
    client: ApiClient,
    deployed: DeployedObjects,
}

#[derive(Deserialize)]
struct ListedPage {
    #[serde(default)]
    items: Vec<Value>,
}

impl ClusterReader {
    async fn read(&mut self) -> Result<(), ClusterReadError> {
        let custom = |group, kind, plural| Collection::custom(group, "v1", kind, plural);
        for expected in DEFINITIONS.iter().flat_map(ExpectedManifest::objects) {
            let all = custom("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions");
            self.get(&all, name_of(&expected)).await?;
        }
        for expected in ROLES.iter().flat_map(ExpectedManifest::objects) {
            match (expected["kind"].as_str(), expected["metadata"]["namespace"].as_str()) {
                (Some("ClusterRole"), _) => {
                    self.get(&custom(ROLES_GROUP, "ClusterRole", "clusterroles"), name_of(&expected)).await?;
                }
                (Some("Role"), Some(namespace)) => {
                    self.get(&custom(ROLES_GROUP, "Role", "roles").of(namespace), name_of(&expected)).await?;
                }
                _ => {}
            }
        }
        let workloads = [
            ("DaemonSet", "daemonsets", DAEMON_NAMESPACE, "hostler"),
            ("Deployment", "deployments", CONTROLLER_NAMESPACE, "hostler-controller"),
        ];
        for (kind, plural, namespace, name) in workloads {
            self.get(&custom("apps", kind, plural).of(namespace), name).await?;
            self.read_configuration(kind, namespace).await?;
        }
        self.list(&Collection::core("Node", "nodes")).await?;
        self.read_objects().await
    }

    /// Reads the ConfigMaps of a workload.
    async fn read_configuration(&mut self, kind: &str, namespace: &str) -> Result<(), ClusterReadError> {
        let volumes = |workload: &Value| -> Vec<String> {
            let maps = list(&workload["spec"]["template"]["spec"]["volumes"]);
            maps.filter_map(|volume| volume["configMap"]["name"].as_str().map(str::to_owned)).collect()
        };
        let names: Vec<String> = self.deployed.of(kind).flat_map(volumes).collect();
        for name in names {
            self.get(&Collection::core("ConfigMap", "configmaps").of(namespace), &name).await?;
        }
        Ok(())
    }

    /// Reads hostler's objects in the version in which the cluster stores them, and requests for capacity.
    async fn read_objects(&mut self) -> Result<(), ClusterReadError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let stored = |definition: &Value| {
            let spec = &definition["spec"];
            let version = list(&spec["versions"]).find(|version| version["storage"] == true)?;
            let (kind, plural) = (text(&spec["names"]["kind"]), text(&spec["names"]["plural"]));
            Some(Collection::custom(&text(&spec["group"]), &text(&version["name"]), &kind, &plural))
        };
        let kinds: Vec<Collection> = self.deployed.of("CustomResourceDefinition").filter_map(stored).collect();
        for all in kinds {
            self.list(&all).await?;
        }
        for version in provisioning::VERSIONS {
            let (group, kind) = (provisioning::GROUP, provisioning::PROVISIONING_REQUEST_KIND);
            if self.list(&Collection::custom(group, version, kind, provisioning::PROVISIONING_REQUESTS)).await? {
                break;
            }
        }
        Ok(())
    }

    async fn get(&mut self, all: &Collection, name: &str) -> Result<(), ClusterReadError> {
        match self.client.get::<Value>(all, name).await {
            Ok(object) => self.deployed.objects.push(with_kind(object, all)),
            Err(failure) if failure.code() == Some(404) => {}
            Err(failure) => return Err(ClusterReadError::of("get", all, failure)),
        }
        Ok(())
    }

    /// Reads all objects of a kind; false if the kind is not served.
    async fn list(&mut self, all: &Collection) -> Result<bool, ClusterReadError> {
        let mut pages = Vec::new();
        match self.client.list(all, &mut |page| pages.push(page)).await {
            Ok(()) => {}
            Err(failure) if failure.code() == Some(404) => return Ok(false),
            Err(failure) => return Err(ClusterReadError::of("list", all, failure)),
        }
        for page in pages {
            let page: ListedPage = serde_json::from_slice(&page).map_err(|error| {
                ClusterReadError::call(ApiFailure::unusable(format!("list {}", all.plural()), error))
            })?;
            self.deployed.objects.extend(page.items.into_iter().map(|object| with_kind(object, all)));
        }
        Ok(true)
    }
}

/// Items of lists do not name their kind.
fn with_kind(mut object: Value, all: &Collection) -> Value {
    object["apiVersion"] = all.api_version().into();
    object["kind"] = all.kind().into();
    object
}
