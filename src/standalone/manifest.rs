//! The part of a ResourceClaim that this driver reads and writes, and what it means. Pure.
//!
//! Below `status.allocation.devices` unknown fields are refused: a misspelt `consumedCapacity` must not hand out a
//! whole device. Elsewhere they are let through, as `kubectl get -o yaml` writes many.

use std::collections::BTreeMap;

use hostler_backend::{Access, ClaimUid, DeviceName, Grant, QualifiedName, Quantity, ShareId};
use serde::{Deserialize, Serialize};

use crate::claims::{Allocation, ClaimRef};

/// Versions of the API whose claims have the shape that is read here.
const API_VERSIONS: [&str; 2] = ["resource.k8s.io/v1", "resource.k8s.io/v1beta2"];

/// A ResourceClaim.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// `resource.k8s.io/v1`.
    pub api_version: String,
    /// `ResourceClaim`.
    pub kind: String,
    /// Name and identity.
    pub metadata: Metadata,
    /// What was asked for; not read.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub spec: serde_json::Value,
    /// What was given.
    #[serde(default)]
    pub status: Status,
}

/// Name and identity of a claim.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Metadata {
    /// Name.
    pub name: String,
    /// Namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Identity; a claim that is made anew gets a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// Status of a claim.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Status {
    /// What was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResult>,
}

/// What was given to a claim, by all drivers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct AllocationResult {
    /// Devices.
    #[serde(default)]
    pub devices: Devices,
}

/// Devices of an allocation.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    /// The devices.
    #[serde(default)]
    pub results: Vec<DeviceResult>,
    /// Opaque configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<Config>,
}

/// One device of an allocation.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceResult {
    /// `request` or `request/subrequest`.
    pub request: String,
    /// Driver of the device.
    pub driver: String,
    /// Pool of the device.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Administrative access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    /// Share of the device.
    #[serde(default, rename = "shareID", skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// Parts of capacities taken.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed_capacity: BTreeMap<QualifiedName, QuantityText>,
    /// For the scheduler.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub tolerations: serde_json::Value,
    /// For the scheduler.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub binding_conditions: serde_json::Value,
    /// For the scheduler.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub binding_failure_conditions: serde_json::Value,
    /// For the kubelet.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub skip_node_operations: serde_json::Value,
}

/// A quantity as people write it: `"4"`, `4` or `1Gi`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct QuantityText(pub Quantity);

impl<'de> Deserialize<'de> for QuantityText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => text,
            serde_json::Value::Number(number) => number.to_string(),
            other => return Err(serde::de::Error::custom(format!("{other} is not a quantity such as 4 or \"1Gi\""))),
        };
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// Opaque configuration of an allocation.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `FromClass` or `FromClaim`.
    pub source: Source,
    /// Requests that it is for; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    /// The configuration.
    pub opaque: Opaque,
}

/// Where configuration comes from. Classes come before claims: what comes later wins.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Source {
    /// From the device class.
    FromClass,
    /// From the claim.
    FromClaim,
}

/// Configuration for one driver.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Opaque {
    /// The driver that it is for.
    pub driver: String,
    /// Whatever that driver understands.
    pub parameters: serde_json::Value,
}

/// What is wrong with a manifest. The folder adds the file's name.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON or YAML.
    #[error("it is not valid JSON or YAML: {0}")]
    Syntax(String),
    /// A field is missing, unknown or of the wrong type.
    #[error("field {path}: {reason}")]
    Field {
        /// Path of the field.
        path: String,
        /// What is wrong, and the fix.
        reason: String,
    },
}

fn field(path: impl Into<String>, reason: impl std::fmt::Display) -> ManifestError {
    ManifestError::Field { path: path.into(), reason: reason.to_string() }
}

impl Manifest {
    /// Reads JSON or YAML.
    ///
    /// # Errors
    /// When the text is not a ResourceClaim; the error names the field.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let value: serde_json::Value = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| ManifestError::Syntax(error.to_string()))?
        } else {
            // Without the booleans of YAML 1.1: a pool may be called `n`.
            let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
            serde_saphyr::from_str_with_options(text, options)
                .map_err(|error| ManifestError::Syntax(error.to_string()))?
        };
        let manifest: Self =
            serde_path_to_error::deserialize(value).map_err(|error| field(error.path().to_string(), error.inner()))?;
        if manifest.kind != "ResourceClaim" {
            return Err(field("kind", format!("it is {:?}; write ResourceClaim", manifest.kind)));
        }
        if !API_VERSIONS.contains(&manifest.api_version.as_str()) {
            return Err(field("apiVersion", format!("it is {:?}; write {}", manifest.api_version, API_VERSIONS[0])));
        }
        Ok(manifest)
    }

    /// Namespace, name and UID.
    ///
    /// # Errors
    /// When the UID is missing or cannot be one.
    pub fn claim(&self) -> Result<ClaimRef, ManifestError> {
        let uid = self.metadata.uid.as_deref().ok_or_else(|| {
            field("metadata.uid", "it is missing; give every claim a unique text, a new one when it is made anew")
        })?;
        let uid = ClaimUid::new(uid).map_err(|error| field("metadata.uid", error))?;
        Ok(ClaimRef { namespace: self.metadata.namespace.clone(), name: self.metadata.name.clone(), uid })
    }

    /// What this driver gave, with the configuration that goes with each device.
    ///
    /// # Errors
    /// When there is no allocation, none of this driver, or a name in it is not valid.
    pub fn allocation(&self, driver: &str) -> Result<Allocation, ManifestError> {
        const RESULTS: &str = "status.allocation.devices.results";
        let allocation = self.status.allocation.as_ref().ok_or_else(|| {
            field("status.allocation", "it is missing; list the devices of the claim in devices.results below it")
        })?;
        let grants: Result<Vec<Grant>, ManifestError> = allocation
            .devices
            .results
            .iter()
            .enumerate()
            .filter(|(_, result)| result.driver == driver)
            .map(|(index, result)| grant(&format!("{RESULTS}[{index}]"), result, &allocation.devices.config))
            .collect();
        let grants = grants?;
        if grants.is_empty() {
            return Err(field(RESULTS, format!("none of them has driver {driver:?}; this daemon serves no other")));
        }
        Ok(Allocation { grants, pod_claim_name: None })
    }
}

fn grant(path: &str, result: &DeviceResult, config: &[Config]) -> Result<Grant, ManifestError> {
    let device = DeviceName::new(result.device.clone()).map_err(|error| field(format!("{path}.device"), error))?;
    Ok(Grant {
        request: result.request.clone(),
        pool: result.pool.clone(),
        device,
        share_id: result.share_id.clone().map(ShareId),
        access: if result.admin_access == Some(true) { Access::Admin } else { Access::Use },
        consumed: result
            .consumed_capacity
            .iter()
            .map(|(name, amount)| (own_name(name, &result.driver), amount.0))
            .collect(),
        config: config_for(result, config),
    })
}

/// A name without a domain is the driver's own; `driver/name` is the same name.
fn own_name(name: &QualifiedName, driver: &str) -> QualifiedName {
    let own = name.as_str().strip_prefix(driver).and_then(|rest| rest.strip_prefix('/'));
    own.and_then(|own| QualifiedName::new(own).ok()).unwrap_or_else(|| name.clone())
}

/// The configuration of a result, in order of precedence: what comes later wins.
fn config_for(result: &DeviceResult, config: &[Config]) -> Vec<serde_json::Value> {
    let main_request = result.request.split_once('/').map_or(&*result.request, |(request, _)| request);
    let applies = |config: &&Config| {
        config.opaque.driver == result.driver
            && (config.requests.is_empty()
                || config.requests.iter().any(|request| *request == result.request || request == main_request))
    };
    let mut found: Vec<&Config> = config.iter().filter(applies).collect();
    found.sort_by_key(|config| config.source);
    found.into_iter().map(|config| config.opaque.parameters.clone()).collect()
}

#[cfg(test)]
mod tests;
