//! What the API server asks and is answered: AdmissionReview (`admission.k8s.io/v1`), as far as it is about claims of pods.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hostler_api::{resource::GROUP, well_known::POD_CLAIM_NAME};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::hold::PodRef;

/// What the server says of a warning at most, before it cuts it.
const MOST_OF_A_WARNING: usize = 256;

/// A question of the API server.
#[derive(Debug, Deserialize)]
pub(super) struct AdmissionReview {
    pub(super) request: AdmissionRequest,
}

/// What somebody wants to write.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionRequest {
    /// Comes back in the answer.
    pub(super) uid: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    resource: GroupVersionResource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    object: Option<ReviewedClaim>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GroupVersionResource {
    group: String,
    version: String,
    resource: String,
}

/// A claim, as far as it says whose it is and what it wants.
#[derive(Debug, Deserialize)]
pub(super) struct ReviewedClaim {
    #[serde(default)]
    metadata: ReviewedMeta,
    /// As the server sends it: what is not known here stays as it is.
    #[serde(default)]
    spec: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReviewedMeta {
    annotations: BTreeMap<String, String>,
    owner_references: Vec<ReviewedOwner>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReviewedOwner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(deserialize_with = "or_false")]
    controller: bool,
}

fn or_false<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A claim that is made for a pod, from a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GeneratedClaim {
    pub(super) namespace: String,
    /// Whose it will be.
    pub(super) pod: PodRef,
    /// What the pod calls it.
    pub(super) pod_claim: String,
    /// The spec, as the server sent it.
    pub(super) spec: Value,
}

impl AdmissionRequest {
    /// The claim, if it is one that is made for a pod from a template. Those that a scheduler makes for extended resources have no
    /// name in the pod, and are to stay as they are: the scheduler has chosen their devices.
    pub(super) fn generated_claim(self) -> Option<GeneratedClaim> {
        let Self { operation, resource, sub_resource, namespace, object, .. } = self;
        let is_claim = resource.group == GROUP && resource.version == "v1" && resource.resource == "resourceclaims";
        if operation != "CREATE" || !is_claim || !sub_resource.is_empty() {
            return None;
        }
        object?.generated(namespace)
    }
}

impl ReviewedClaim {
    /// The claim in this namespace, if it is one that is made for a pod from a template.
    pub(super) fn generated(self, namespace: String) -> Option<GeneratedClaim> {
        let Self { mut metadata, spec } = self;
        let pod_claim = metadata.annotations.remove(POD_CLAIM_NAME)?;
        let is_pod = |it: &ReviewedOwner| it.controller && it.api_version == "v1" && it.kind == "Pod";
        let owner = metadata.owner_references.into_iter().find(is_pod)?;
        // They become parts of a path.
        let is_good = is_name(&namespace) && is_name(&owner.name);
        is_good.then_some(GeneratedClaim {
            namespace,
            pod: PodRef { name: owner.name, uid: owner.uid },
            pod_claim,
            spec,
        })
    }
}

/// Whether an object can be called so.
fn is_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    (1..=253).contains(&name.len())
        && name.bytes().all(is_inner)
        && name.starts_with(|it: char| it.is_ascii_alphanumeric())
        && !name.contains("..")
}

/// What is answered: the claim is made, with these changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SteerAnswer {
    /// JSON patch (RFC 6902); empty: it stays as it is.
    pub(super) patch: Vec<Value>,
    /// For whoever makes the claim.
    pub(super) warnings: Vec<String>,
}

impl SteerAnswer {
    /// It stays as it is, and somebody should know why.
    pub(super) fn warning(text: impl Into<String>) -> Self {
        Self { patch: Vec::new(), warnings: vec![text.into()] }
    }

    /// As the server reads it.
    pub(super) fn review(&self, uid: &str) -> Value {
        let mut response = json!({ "uid": uid, "allowed": true });
        if !self.patch.is_empty() {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(Value::from(self.patch.clone()).to_string()));
        }
        if !self.warnings.is_empty() {
            let cut = |text: &String| -> String { text.chars().take(MOST_OF_A_WARNING).collect() };
            response["warnings"] = self.warnings.iter().map(cut).collect();
        }
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
    }
}
