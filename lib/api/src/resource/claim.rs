//! The part of a ResourceClaim that both sources of claims read, and its meaning.
//!
//! Fields that are not known are let through here: a newer API server sends some. Readers of files that people write
//! are stricter.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Access, Allocation, ClaimRef, ClaimUid, DeviceName, Grant, NameError, ParseQuantityError, QualifiedName, Quantity,
    ShareId,
    core::NodeSelector,
    resource::{DeviceToleration, ResourceClaimSpec},
    well_known::POD_CLAIM_NAME,
};

const RESULTS: &str = "status.allocation.devices.results";

/// A ResourceClaim; the same shape in v1, v1beta2 and v1beta1.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaim {
    /// `resource.k8s.io/v1`.
    pub api_version: String,
    /// `ResourceClaim`.
    pub kind: String,
    /// Name and identity.
    pub metadata: ResourceClaimMetadata,
    /// Requests of the claim.
    #[serde(default, skip_serializing_if = "ResourceClaimSpec::is_empty")]
    pub spec: ResourceClaimSpec,
    /// Allocation and consumers of the claim.
    #[serde(default)]
    pub status: ResourceClaimStatus,
}

/// Name and identity of a claim.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaimMetadata {
    /// Name.
    pub name: String,
    /// Namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Identity; a claim that is made anew gets a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Time at which deletion was requested; the claim stays for as long as a consumer uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// Remarks of others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// ResourceClaimStatus of a claim.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaimStatus {
    /// Allocation of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResult>,
    /// Consumers that may use the claim: pods, and in later versions groups of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved_for: Vec<ResourceClaimConsumerReference>,
}

/// Consumer that may use a claim.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct ResourceClaimConsumerReference {
    /// Group of the resource; empty for pods.
    #[serde(default, rename = "apiGroup", skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// `pods`, or another resource.
    #[serde(default)]
    pub resource: String,
    /// Name, in the claim's namespace.
    #[serde(default)]
    pub name: String,
    /// Identity: a pod that is made anew under the same name has another UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl ResourceClaimConsumerReference {
    /// True if the consumer is a pod, and not a group of them.
    pub fn is_pod(&self) -> bool {
        self.resource == "pods"
    }
}

/// Allocation of a claim, by all drivers.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocationResult {
    /// DeviceAllocationResult.
    #[serde(default)]
    pub devices: DeviceAllocationResult,
    /// Nodes on which the devices can be used; any node where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// Time of the allocation, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_timestamp: Option<String>,
}

/// DeviceAllocationResult of an allocation.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct DeviceAllocationResult {
    /// The devices.
    #[serde(default)]
    pub results: Vec<DeviceRequestAllocationResult>,
    /// OpaqueDeviceConfiguration configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<DeviceAllocationConfiguration>,
}

/// One device of an allocation. Fields that matter only to other drivers are not checked before the driver is known
/// to be ours.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceRequestAllocationResult {
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
    /// Parts of capacities taken: `"4"`, `4` or `1Gi`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed_capacity: BTreeMap<String, serde_json::Value>,
    /// Taints that do not end the use, as they were requested.
    #[serde(default, deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    /// Conditions that must become true before a pod is bound.
    #[serde(default, deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub binding_conditions: Vec<String>,
    /// Conditions that make the scheduler choose anew.
    #[serde(default, deserialize_with = "super::or_empty", skip_serializing_if = "Vec::is_empty")]
    pub binding_failure_conditions: Vec<String>,
    /// Operations that the kubelet skips.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub skip_node_operations: serde_json::Value,
}

/// Configuration of an allocation.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct DeviceAllocationConfiguration {
    /// `FromClass` or `FromClaim`.
    pub source: AllocationConfigSource,
    /// Requests that the configuration is for; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    /// The configuration; a kind of a later version has no such field and is for no driver of today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<OpaqueDeviceConfiguration>,
}

/// Source of configuration. Classes come before claims: the later one wins.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub enum AllocationConfigSource {
    /// From the device class.
    FromClass,
    /// From the claim.
    FromClaim,
}

/// Configuration for one driver.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct OpaqueDeviceConfiguration {
    /// The driver that the configuration is for.
    pub driver: String,
    /// Parameters in the driver's own terms.
    pub parameters: serde_json::Value,
}

/// Error: a ResourceClaim gives nothing to this driver.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// The claim has no allocation.
    #[error("field status.allocation: it is missing; nothing has been given to the claim")]
    NotAllocated,
    /// Only other drivers gave devices.
    #[error("field {RESULTS}: none of them has driver {driver:?}; this daemon serves no other")]
    NotOurs {
        /// This driver.
        driver: String,
    },
    /// A field is missing, unknown or of the wrong type.
    #[error("field {path}: {reason}")]
    Field {
        /// Path of the field.
        path: String,
        /// Description of the mistake, and the fix.
        reason: String,
    },
}

impl AllocationError {
    /// Returns the error of one wrong field.
    pub fn field(path: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Field { path: path.into(), reason: reason.to_string() }
    }
}

impl ResourceClaim {
    /// Returns namespace, name and UID.
    ///
    /// # Errors
    /// When the UID is missing or cannot be one.
    pub fn claim(&self) -> Result<ClaimRef, AllocationError> {
        let uid = self.metadata.uid.as_deref().ok_or_else(|| {
            AllocationError::field(
                "metadata.uid",
                "it is missing; give every claim a unique text, a new one when it is made anew",
            )
        })?;
        let uid = ClaimUid::new(uid).map_err(|error| AllocationError::field("metadata.uid", error))?;
        Ok(ClaimRef { namespace: self.metadata.namespace.clone(), name: self.metadata.name.clone(), uid })
    }

    /// Devices that `driver` gave, with the configuration that goes with each.
    ///
    /// # Errors
    /// When there is no allocation, none of this driver, or a name or an amount in it is not valid.
    pub fn allocation(&self, driver: &str) -> Result<Allocation, AllocationError> {
        let grants = self.status.allocation.as_ref().ok_or(AllocationError::NotAllocated)?.grants(driver)?;
        Ok(Allocation {
            grants,
            pod_claim_name: self.metadata.annotations.get(POD_CLAIM_NAME).cloned(),
            reserved_for: self.status.reserved_for.clone(),
        })
    }
}

impl AllocationResult {
    /// Devices that `driver` gave, with the configuration that goes with each.
    ///
    /// # Errors
    /// When there are none, or a name or an amount is not valid.
    pub fn grants(&self, driver: &str) -> Result<Vec<Grant>, AllocationError> {
        let DeviceAllocationResult { results, config } = &self.devices;
        let ours = results.iter().enumerate().filter(|(_, result)| result.driver == driver);
        let grants = ours.map(|(index, result)| grant(&format!("{RESULTS}[{index}]"), result, config));
        let grants = grants.collect::<Result<Vec<Grant>, AllocationError>>()?;
        if grants.is_empty() { Err(AllocationError::NotOurs { driver: driver.to_owned() }) } else { Ok(grants) }
    }
}

fn grant(
    path: &str,
    result: &DeviceRequestAllocationResult,
    config: &[DeviceAllocationConfiguration],
) -> Result<Grant, AllocationError> {
    let device = DeviceName::new(result.device.clone())
        .map_err(|error| AllocationError::field(format!("{path}.device"), error))?;
    let consumed = result.consumed_capacity.iter().map(|(name, amount)| {
        let wrong = |reason: String| AllocationError::field(format!("{path}.consumedCapacity.{name}"), reason);
        let name = own_name(name, &result.driver).map_err(|error| wrong(error.to_string()))?;
        Ok((name, quantity(amount).map_err(wrong)?))
    });
    Ok(Grant {
        request: result.request.clone(),
        pool: result.pool.clone(),
        device,
        share_id: result.share_id.clone().map(ShareId),
        access: if result.admin_access == Some(true) { Access::Admin } else { Access::Use },
        consumed: consumed.collect::<Result<_, AllocationError>>()?,
        config: config_for(result, config),
    })
}

/// A name without a domain is the driver's own; `driver/name` is the same name.
fn own_name(name: &str, driver: &str) -> Result<QualifiedName, NameError> {
    let own = name.strip_prefix(driver).and_then(|rest| rest.strip_prefix('/'));
    QualifiedName::new(own.unwrap_or(name))
}

/// A quantity as people write it.
fn quantity(amount: &serde_json::Value) -> Result<Quantity, String> {
    let text = match amount {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Number(number) => number.to_string(),
        other => return Err(format!("{other} is not a quantity such as 4 or \"1Gi\"")),
    };
    text.parse().map_err(|error: ParseQuantityError| error.to_string())
}

/// The configuration of a result, in order of precedence: the last one wins.
fn config_for(
    result: &DeviceRequestAllocationResult,
    config: &[DeviceAllocationConfiguration],
) -> Vec<serde_json::Value> {
    let main_request = result.request.split_once('/').map_or(&*result.request, |(request, _)| request);
    let is_for = |requests: &[String]| {
        requests.is_empty() || requests.iter().any(|request| *request == result.request || request == main_request)
    };
    let ours = |config: &&DeviceAllocationConfiguration| {
        config.opaque.as_ref().is_some_and(|opaque| opaque.driver == result.driver) && is_for(&config.requests)
    };
    let mut found: Vec<&DeviceAllocationConfiguration> = config.iter().filter(ours).collect();
    found.sort_by_key(|config| config.source);
    found.into_iter().filter_map(|config| Some(config.opaque.as_ref()?.parameters.clone())).collect()
}

#[cfg(test)]
mod tests;
