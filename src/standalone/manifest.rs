//! Parser of ResourceClaims that people write.
//!
//! Where a manifest says what a claim is given, unknown fields are refused: a misspelt `consumedCapacity` must not hand
//! out a whole device. These are the fields below `status.allocation.devices`, and those of `spec` in a claim without
//! an allocation. Elsewhere unknown fields are allowed, as `kubectl get -o yaml` writes many.

use hostler_api::resource::{AllocationError, DeviceClass, ResourceClaim};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::validate::documents;

/// Versions of the API whose claims have the shape that is read here.
const API_VERSIONS: [&str; 2] = ["resource.k8s.io/v1", "resource.k8s.io/v1beta2"];

/// The group of claims.
const CLAIM_GROUP: &str = "resource.k8s.io";

/// Prefix of the fields of an allocated claim that must all be known.
const STRICT: &str = "status.allocation.devices.";
/// Prefix of such fields in a claim without an allocation, and in a class.
const STRICT_SPEC: &str = "spec.";

/// A problem of a manifest. The folder adds the file's name.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The text is not JSON or YAML.
    #[error("it is not valid JSON or YAML: {0}")]
    Syntax(String),
    /// The object is not a claim.
    #[error(transparent)]
    Claim(#[from] AllocationError),
}

fn field(path: impl Into<String>, reason: impl std::fmt::Display) -> ManifestError {
    AllocationError::field(path, reason).into()
}

/// Parses JSON or YAML.
///
/// # Errors
/// When the text is not a ResourceClaim; the error names the field.
pub fn parse(text: &str) -> Result<ResourceClaim, ManifestError> {
    let value: Value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| ManifestError::Syntax(error.to_string()))?
    } else {
        // Without the booleans of YAML 1.1: a pool may be called `n`.
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| ManifestError::Syntax(error.to_string()))?
    };
    checked(strict(value, STRICT)?)
}

/// Reads one object. Fields below `strict` have to be known.
fn strict<T: DeserializeOwned>(value: Value, strict: &str) -> Result<T, ManifestError> {
    let mut unknown = None;
    let mut note = |path: serde_ignored::Path<'_>| {
        let path = dotted(&path);
        if path.starts_with(strict) {
            unknown.get_or_insert(path);
        }
    };
    let object: T = serde_path_to_error::deserialize(serde_ignored::Deserializer::new(value, &mut note))
        .map_err(|error| field(error.path().to_string(), error.inner()))?;
    match unknown {
        Some(path) => Err(field(path, "there is no such field; correct its spelling or remove it")),
        None => Ok(object),
    }
}

/// A claim without an allocation, and classes that are no part of hostler's deployment. The body of `POST /v1/fits` and
/// `POST /v1/unallocated-claims`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UnallocatedClaim {
    /// The claim.
    pub claim: ResourceClaim,
    /// Classes that the claim names. A class with the name of one of hostler's takes its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<DeviceClass>,
}

/// A problem of one document of several.
#[derive(Debug, thiserror::Error)]
#[error("document {document}")]
pub struct DocumentError {
    /// Number of the document, from 1.
    pub document: usize,
    /// The problem.
    #[source]
    pub source: ManifestError,
}

/// Parses claims without an allocation, or templates of such claims, with the classes beside them, from JSON or YAML
/// with any number of documents and lists.
///
/// # Errors
/// Every problem, document by document; 0 stands for the text as a whole.
pub fn parse_unallocated(text: &str) -> Result<Vec<UnallocatedClaim>, Vec<DocumentError>> {
    let documents =
        documents(text).map_err(|reason| vec![DocumentError { document: 0, source: ManifestError::Syntax(reason) }])?;
    let (mut claims, mut classes, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for (index, document) in documents.into_iter().enumerate() {
        for object in items(document) {
            match unallocated(object) {
                Ok(UnallocatedObject::Claim(claim)) => claims.push(*claim),
                Ok(UnallocatedObject::Class(class)) => classes.push(*class),
                // Examples hold the pods that use a claim as well.
                Ok(UnallocatedObject::Other) => {}
                Err(source) => errors.push(DocumentError { document: index + 1, source }),
            }
        }
    }
    if errors.is_empty() {
        Ok(claims.into_iter().map(|claim| UnallocatedClaim { claim, classes: classes.clone() }).collect())
    } else {
        Err(errors)
    }
}

/// Objects of a document: none of an empty document, several of a list.
fn items(mut document: Value) -> Vec<Value> {
    let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match document.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items,
        _ if document.is_null() => Vec::new(),
        _ => vec![document],
    }
}

/// An object in a file of claims without allocations.
enum UnallocatedObject {
    Claim(Box<ResourceClaim>),
    Class(Box<DeviceClass>),
    /// An object without devices.
    Other,
}

fn unallocated(mut object: Value) -> Result<UnallocatedObject, ManifestError> {
    match object["kind"].as_str() {
        Some("DeviceClass") => Ok(UnallocatedObject::Class(Box::new(strict(object, STRICT_SPEC)?))),
        Some("ResourceClaimTemplate") => {
            // The claims of a template differ in their names alone.
            let mut taken = |field: &str| object.pointer_mut(field).map(Value::take).unwrap_or_default();
            let [spec, metadata, version] = ["/spec/spec", "/metadata", "/apiVersion"].map(&mut taken);
            let claim = json!({ "apiVersion": version, "kind": "ResourceClaim", "metadata": metadata, "spec": spec });
            Ok(UnallocatedObject::Claim(Box::new(checked(strict(claim, STRICT_SPEC)?)?)))
        }
        Some("ResourceClaim") => Ok(UnallocatedObject::Claim(Box::new(checked(strict(object, STRICT_SPEC)?)?))),
        Some(_) if is_of_others(&object) => Ok(UnallocatedObject::Other),
        Some(other) => {
            Err(field("kind", format!("it is {other:?}; write ResourceClaim, ResourceClaimTemplate or DeviceClass")))
        }
        None => Err(field("kind", "it is missing; write ResourceClaim, ResourceClaimTemplate or DeviceClass")),
    }
}

/// True for an object of another group than that of claims. The groups of objects that use claims are not known here:
/// pods, Jobs, Reservations and requests of batch systems stand beside claims in one file. A misspelt kind of claims
/// keeps its group, and is refused.
fn is_of_others(object: &Value) -> bool {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, _) = version.split_once('/').unwrap_or(("", version));
    !version.is_empty() && group != CLAIM_GROUP
}

/// Refuses an object that is no claim, or that leaves out a field that only later versions of the API may leave out.
fn checked(claim: ResourceClaim) -> Result<ResourceClaim, ManifestError> {
    if claim.kind != "ResourceClaim" {
        return Err(field("kind", format!("it is {:?}; write ResourceClaim", claim.kind)));
    }
    if !API_VERSIONS.contains(&claim.api_version.as_str()) {
        return Err(field("apiVersion", format!("it is {:?}; write {}", claim.api_version, API_VERSIONS[0])));
    }
    let config = claim.status.allocation.iter().flat_map(|allocation| &allocation.devices.config);
    if let Some(index) = config.into_iter().position(|config| config.opaque.is_none()) {
        return Err(field(
            format!("{STRICT}config[{index}].opaque"),
            "it is missing; write driver and parameters below it",
        ));
    }
    Ok(claim)
}

/// Returns a path in the form in which people write it: `results[0].device`.
fn dotted(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", dotted(parent)),
        Path::Map { parent, key } => match dotted(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => dotted(parent),
    }
}

#[cfg(test)]
mod tests;
