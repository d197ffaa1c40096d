//! The schema of the one CRD that can be installed: what a NodeResourceTopology may contain.

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeResourceTopology {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    topology_policies: Vec<String>,
    zones: Vec<Zone>,
    #[serde(default)]
    attributes: Vec<Attribute>,
}

#[derive(Deserialize, Serialize)]
struct Zone {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(default)]
    costs: Vec<Cost>,
    #[serde(default)]
    attributes: Vec<Attribute>,
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize, Serialize)]
struct Cost {
    name: String,
    value: i64,
}

#[derive(Deserialize, Serialize)]
struct Attribute {
    name: String,
    value: String,
}

#[derive(Deserialize, Serialize)]
struct Resource {
    name: String,
    capacity: Quantity,
    allocatable: Quantity,
    available: Quantity,
}
