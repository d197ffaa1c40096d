//! Reads objects one by one and kind by kind, as far as the user may.

use hostler_cluster::{ApiClient, ApiFailure, Collection};
use serde::Deserialize;
use serde_json::Value;

use super::{DeployedObjects, WORKLOADS, list};
use crate::plan::ClusterReadError;

/// Reads objects of a cluster, each with `apiVersion` and `kind`.
#[derive(Debug)]
pub(crate) struct DeployedReader {
    client: ApiClient,
    /// Objects that were read.
    pub(crate) deployed: DeployedObjects,
    /// Refusals for want of a right, in the order of the questions.
    pub(crate) refusals: Vec<ClusterReadError>,
}

#[derive(Deserialize)]
struct ListedPage {
    #[serde(default)]
    items: Vec<Value>,
}

impl DeployedReader {
    /// Makes a reader that has read nothing, for a cluster of which these facts are known.
    pub(crate) fn new(client: ApiClient, deployed: DeployedObjects) -> Self {
        Self { client, deployed, refusals: Vec::new() }
    }

    /// Reads both workloads, and the ConfigMaps that they mount.
    pub(crate) async fn workloads(&mut self) -> Result<(), ClusterReadError> {
        for (kind, plural, namespace, name) in WORKLOADS {
            self.get(&Collection::custom("apps", "v1", kind, plural).of(namespace), name).await?;
            let volumes = |workload: &Value| -> Vec<String> {
                let maps = list(&workload["spec"]["template"]["spec"]["volumes"]);
                maps.filter_map(|volume| volume["configMap"]["name"].as_str().map(str::to_owned)).collect()
            };
            let names: Vec<String> = self.deployed.of(kind).flat_map(volumes).collect();
            for name in names {
                self.get(&Collection::core("ConfigMap", "configmaps").of(namespace), &name).await?;
            }
        }
        Ok(())
    }

    /// Reads an object, if it exists and may be read.
    pub(crate) async fn get(&mut self, all: &Collection, name: &str) -> Result<(), ClusterReadError> {
        match self.client.get::<Value>(all, name).await {
            Ok(object) => self.deployed.objects.push(with_kind(object, all)),
            Err(failure) if failure.code() == Some(404) => {}
            Err(failure) => self.take_refusal(ClusterReadError::of("get", all, failure))?,
        }
        Ok(())
    }

    /// Reads all objects of a kind that may be read; false if the kind is not served.
    pub(crate) async fn list(&mut self, all: &Collection) -> Result<bool, ClusterReadError> {
        let mut pages = Vec::new();
        match self.client.list(all, &mut |page| pages.push(page)).await {
            Ok(()) => {}
            Err(failure) if failure.code() == Some(404) => return Ok(false),
            Err(failure) => self.take_refusal(ClusterReadError::of("list", all, failure))?,
        }
        for page in pages {
            let page: ListedPage = serde_json::from_slice(&page).map_err(|error| {
                ClusterReadError::call(ApiFailure::unusable(format!("list {}", all.plural()), error))
            })?;
            self.deployed.objects.extend(page.items.into_iter().map(|object| with_kind(object, all)));
        }
        Ok(true)
    }

    fn take_refusal(&mut self, error: ClusterReadError) -> Result<(), ClusterReadError> {
        match error {
            ClusterReadError::Forbidden { .. } => self.refusals.push(error),
            other => return Err(other),
        }
        Ok(())
    }
}

/// Items of lists do not name their kind.
fn with_kind(mut object: Value, all: &Collection) -> Value {
    object["apiVersion"] = all.api_version().into();
    object["kind"] = all.kind().into();
    object
}
