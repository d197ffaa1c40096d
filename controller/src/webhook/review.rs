//! The API server's question and the webhook's answer: AdmissionReview (`admission.k8s.io/v1`), with the fields that
//! concern claims of pods, and pods.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hostler_api::{
    core::{ObjectMeta, Pod},
    resource::GROUP,
    well_known::POD_CLAIM_NAME,
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::hold::PodRef;

/// The longest warning that the server passes on without cutting it.
const MOST_OF_A_WARNING: usize = 256;

/// A question of the API server.
#[derive(Debug, Deserialize)]
pub(super) struct AdmissionReview<T> {
    pub(super) request: AdmissionRequest<T>,
}

/// An object that is about to be written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionRequest<T> {
    /// UID of the question, which the answer repeats.
    pub(super) uid: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    resource: GroupVersionResource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    namespace: String,
    object: Option<T>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GroupVersionResource {
    group: String,
    version: String,
    resource: String,
}

/// A claim, with the fields that name its owner and its requests.
#[derive(Debug, Deserialize)]
pub(super) struct ReviewedClaim {
    #[serde(default)]
    metadata: ReviewedMeta,
    /// The spec as the server sent it: fields that are not known here stay as they are.
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
    /// The pod that will have the claim.
    pub(super) pod: PodRef,
    /// The claim's name in the pod.
    pub(super) pod_claim: String,
    /// The spec, as the server sent it.
    pub(super) spec: Value,
}

impl<T> AdmissionRequest<T> {
    /// Returns the object in its namespace, if it is made and of this kind.
    fn creation(self, group: &str, plural: &str) -> Option<(String, T)> {
        let Self { operation, resource, sub_resource, namespace, object, .. } = self;
        let is_kind = resource.group == group && resource.version == "v1" && resource.resource == plural;
        let is_creation = operation == "CREATE" && is_kind && sub_resource.is_empty();
        Some((namespace, object.filter(|_| is_creation)?))
    }
}

impl AdmissionRequest<Pod> {
    /// Returns the pod that is made.
    pub(super) fn created_pod(self) -> Option<Pod> {
        let (namespace, pod) = self.creation("", "pods")?;
        Some(Pod { metadata: ObjectMeta { namespace, ..pod.metadata }, ..pod })
    }
}

impl AdmissionRequest<ReviewedClaim> {
    /// Returns the claim, if it is made for a pod from a template. Claims that a scheduler makes for extended resources
    /// have no name in the pod, and stay as they are: the scheduler has chosen their devices.
    pub(super) fn generated_claim(self) -> Option<GeneratedClaim> {
        let (namespace, claim) = self.creation(GROUP, "resourceclaims")?;
        claim.generated(namespace)
    }
}

impl ReviewedClaim {
    /// Returns the claim in this namespace, if it is one that is made for a pod from a template.
    pub(super) fn generated(self, namespace: String) -> Option<GeneratedClaim> {
        let Self { mut metadata, spec } = self;
        let pod_claim = metadata.annotations.remove(POD_CLAIM_NAME)?;
        let is_pod = |it: &ReviewedOwner| it.controller && it.api_version == "v1" && it.kind == "Pod";
        let owner = metadata.owner_references.into_iter().find(is_pod)?;
        // Both names become parts of a path.
        let is_good = is_name(&namespace) && is_name(&owner.name);
        is_good.then_some(GeneratedClaim {
            namespace,
            pod: PodRef { name: owner.name, uid: owner.uid },
            pod_claim,
            spec,
        })
    }
}

/// True if an object can have this name.
fn is_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    (1..=253).contains(&name.len())
        && name.bytes().all(is_inner)
        && name.starts_with(|it: char| it.is_ascii_alphanumeric())
        && !name.contains("..")
}

/// An answer: the object is made, with these changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WebhookAnswer {
    /// JSON patch (RFC 6902); empty: the object stays as it is.
    pub(super) patch: Vec<Value>,
    /// Warnings for the client that makes the object.
    pub(super) warnings: Vec<String>,
}

impl WebhookAnswer {
    /// Leaves the object as it is, and says why.
    pub(super) fn warning(text: impl Into<String>) -> Self {
        Self { patch: Vec::new(), warnings: vec![text.into()] }
    }

    /// Returns the answer in the form that the server reads.
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
