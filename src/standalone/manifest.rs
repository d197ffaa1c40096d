//! Reads a ResourceClaim that people write.
//!
//! Below `status.allocation.devices` unknown fields are refused: a misspelt `consumedCapacity` must not hand out a
//! whole device. Elsewhere they are let through, as `kubectl get -o yaml` writes many.

use hostler_api::resource::{AllocationError, ResourceClaim};

/// Versions of the API whose claims have the shape that is read here.
const API_VERSIONS: [&str; 2] = ["resource.k8s.io/v1", "resource.k8s.io/v1beta2"];

/// Below this, every field has to be known.
const STRICT: &str = "status.allocation.devices.";

/// What is wrong with a manifest. The folder adds the file's name.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON or YAML.
    #[error("it is not valid JSON or YAML: {0}")]
    Syntax(String),
    /// Not a claim.
    #[error(transparent)]
    Claim(#[from] AllocationError),
}

fn field(path: impl Into<String>, reason: impl std::fmt::Display) -> ManifestError {
    AllocationError::field(path, reason).into()
}

/// Reads JSON or YAML.
///
/// # Errors
/// When the text is not a ResourceClaim; the error names the field.
pub fn parse(text: &str) -> Result<ResourceClaim, ManifestError> {
    let value: serde_json::Value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| ManifestError::Syntax(error.to_string()))?
    } else {
        // Without the booleans of YAML 1.1: a pool may be called `n`.
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| ManifestError::Syntax(error.to_string()))?
    };
    let mut unknown = None;
    let mut note = |path: serde_ignored::Path<'_>| {
        let path = dotted(&path);
        if path.starts_with(STRICT) {
            unknown.get_or_insert(path);
        }
    };
    let claim: ResourceClaim = serde_path_to_error::deserialize(serde_ignored::Deserializer::new(value, &mut note))
        .map_err(|error| field(error.path().to_string(), error.inner()))?;
    match unknown {
        Some(path) => Err(field(path, "there is no such field; correct its spelling or remove it")),
        None => checked(claim),
    }
}

/// Refuses what is no claim, and what only a later API server may leave out.
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

/// A path as people write it: `results[0].device`.
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
