//! A claim that has a device behind a switch, and the conditions that tell the scheduler of the device.

use std::time::Duration;

use hostler_api::{
    ObjectKey, Quantity,
    fabric::{ATTACH_FAILED_CONDITION, ATTACHED_CONDITION, AttachedClaim, MEMORY_CAPACITY, of_fabric_pool},
    hardware::{Condition, ConditionStatus},
    resource::{AllocationResult, ResourceClaimSpec},
};
use hostler_cluster::since_1970;
use serde::Deserialize;

use crate::observed::only_node;

/// A claim that has the device by its allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClaimOfDevice {
    pub(crate) key: ObjectKey,
    pub(super) uid: String,
    pub(super) version: String,
    /// Pool of the device.
    pub(crate) pool: String,
    /// The node that the scheduler chose.
    pub(crate) node: Option<String>,
    /// Time of the allocation, since 1970.
    pub(super) allocated: Option<Duration>,
    /// Name of the device.
    pub(super) device: String,
    /// Memory that the claim asks of the device.
    pub(super) memory: Option<Quantity>,
    /// The claim's first device of this driver that has binding conditions.
    pub(super) first: Option<ClaimDevice>,
    /// Conditions of the claim's devices behind switches.
    pub(super) told: Vec<ToldDevice>,
}

/// A device of a claim.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct ClaimDevice {
    pub(super) pool: String,
    pub(super) device: String,
}

/// The conditions of a device of a claim that this controller writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ToldDevice {
    pub(super) device: ClaimDevice,
    pub(super) conditions: Vec<Condition>,
}

/// The conditions of a claim's devices as they are to be, over this version of the claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClaimConditions {
    pub(super) key: ObjectKey,
    pub(super) uid: String,
    pub(super) version: String,
    /// Conditions of all devices that this controller writes: conditions that an apply leaves out are removed.
    pub(super) devices: Vec<ToldDevice>,
    /// The news among them.
    pub(super) news: ClaimNews,
}

/// News for a claim about its device.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClaimNews {
    /// The device is attached and ready.
    Attached,
    /// The device is not there yet, or not any more.
    Waits { reason: &'static str, message: String },
    /// The claim is to be given another device.
    Failed { reason: String, message: String },
}

/// A claim as the server sends it.
#[derive(Debug, Deserialize)]
struct ServedClaim {
    metadata: ServedClaimMeta,
    #[serde(default)]
    spec: ResourceClaimSpec,
    #[serde(default)]
    status: ServedClaimStatus,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServedClaimMeta {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServedClaimStatus {
    allocation: Option<AllocationResult>,
    devices: Vec<ServedDeviceStatus>,
}

/// AllocatedDeviceStatus: an entry of `status.devices`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServedDeviceStatus {
    driver: String,
    pool: String,
    device: String,
    conditions: Vec<Condition>,
}

impl ClaimOfDevice {
    /// Reads a claim; `None` if it has no device of this name behind a switch.
    ///
    /// # Errors
    /// When the object is no claim.
    pub(crate) fn of(
        object: &serde_json::Value,
        driver: &str,
        device: &str,
    ) -> Result<Option<Self>, serde_json::Error> {
        let ServedClaim { metadata, spec, status } = ServedClaim::deserialize(object)?;
        let Some(allocation) = status.allocation else { return Ok(None) };
        let results = &allocation.devices.results;
        // Administrators see devices that others have.
        let ours = results.iter().filter(|it| it.driver == driver && it.admin_access != Some(true));
        let is_meant = |pool: &str, name: &str| name == device && of_fabric_pool(pool).is_some();
        let Some(own) = ours.clone().find(|it| is_meant(&it.pool, &it.device)) else { return Ok(None) };
        let (pool, memory) = (own.pool.clone(), spec.devices.asked(&own.request, MEMORY_CAPACITY));
        let first = ours.clone().find(|it| !it.binding_conditions.is_empty());
        let first = first.map(|it| ClaimDevice { pool: it.pool.clone(), device: it.device.clone() });
        let told = status.devices.into_iter().filter(|it| it.driver == driver).filter_map(told).collect();
        Ok(Some(Self {
            key: ObjectKey::new(&metadata.namespace, &metadata.name),
            uid: metadata.uid,
            version: metadata.resource_version,
            pool,
            node: allocation.node_selector.as_ref().and_then(only_node),
            allocated: allocation.allocation_timestamp.as_deref().and_then(since_1970),
            device: device.to_owned(),
            memory,
            first,
            told,
        }))
    }

    /// Returns the claim as the spec of an attachment names it.
    pub(crate) fn named(&self) -> AttachedClaim {
        let ObjectKey { namespace, name } = self.key.clone();
        AttachedClaim { namespace, name, uid: self.uid.clone() }
    }

    /// True if the claim was told that the device is attached.
    pub(crate) fn is_told_attached(&self) -> bool {
        self.condition(ATTACHED_CONDITION).is_some_and(|it| it.status == ConditionStatus::True)
    }

    /// True if the claim is to be given another device: the scheduler takes this one away from it.
    pub(super) fn is_failed(&self) -> bool {
        let failed = |it: &Condition| it.kind == ATTACH_FAILED_CONDITION && it.status == ConditionStatus::True;
        self.told.iter().any(|told| told.conditions.iter().any(failed))
    }

    /// True if the failure of this device stands where the scheduler sees it.
    pub(super) fn is_told_of_failure(&self) -> bool {
        let failed = |it: &Condition| it.kind == ATTACH_FAILED_CONDITION && it.status == ConditionStatus::True;
        let is_on = |device: &ClaimDevice| {
            self.told.iter().any(|told| told.device == *device && told.conditions.iter().any(failed))
        };
        is_on(&self.own()) && self.first.as_ref().is_none_or(is_on)
    }

    /// True if the claim was told to wait for this reason.
    pub(super) fn is_told_to_wait(&self, reason: &str) -> bool {
        let waits = |it: &Condition| it.status != ConditionStatus::True && it.reason == reason;
        self.condition(ATTACHED_CONDITION).is_some_and(waits)
    }

    /// Returns the conditions of the claim with these news.
    pub(super) fn with(&self, news: ClaimNews, now: &str) -> Box<ClaimConditions> {
        let mut devices = self.told.clone();
        let own = self.own();
        let condition = |kind: &str, status, reason: &str, message: &str| Condition {
            kind: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: now.to_owned(),
        };
        use ConditionStatus::{False, True};
        match &news {
            ClaimNews::Attached => {
                let message = "the device is attached to the node of the claim, and ready";
                put(&mut devices, &own, condition(ATTACHED_CONDITION, True, "Attached", message));
            }
            ClaimNews::Waits { reason, message } => {
                put(&mut devices, &own, condition(ATTACHED_CONDITION, False, reason, message));
            }
            ClaimNews::Failed { reason, message } => {
                put(&mut devices, &own, condition(ATTACHED_CONDITION, False, reason, message));
                put(&mut devices, &own, condition(ATTACH_FAILED_CONDITION, True, reason, message));
                // The scheduler looks at devices in their order, and at no later one before the first is ready.
                if let Some(first) = self.first.as_ref().filter(|first| **first != own) {
                    let message = format!("device {} of the claim: {message}", self.device);
                    put(&mut devices, first, condition(ATTACH_FAILED_CONDITION, True, reason, &message));
                }
            }
        }
        let (key, uid, version) = (self.key.clone(), self.uid.clone(), self.version.clone());
        Box::new(ClaimConditions { key, uid, version, devices, news })
    }

    fn own(&self) -> ClaimDevice {
        ClaimDevice { pool: self.pool.clone(), device: self.device.clone() }
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        let own = self.own();
        let told = self.told.iter().find(|told| told.device == own)?;
        told.conditions.iter().find(|it| it.kind == kind)
    }
}

/// The conditions of an entry that this controller writes; `None` if it has none.
fn told(entry: ServedDeviceStatus) -> Option<ToldDevice> {
    let ServedDeviceStatus { pool, device, mut conditions, .. } = entry;
    conditions.retain(|it| [ATTACHED_CONDITION, ATTACH_FAILED_CONDITION].contains(&&*it.kind));
    (!conditions.is_empty()).then_some(ToldDevice { device: ClaimDevice { pool, device }, conditions })
}

/// Puts a condition in its place. The time of one that had the same status stays.
fn put(devices: &mut Vec<ToldDevice>, device: &ClaimDevice, condition: Condition) {
    let at = devices.iter().position(|told| told.device == *device).unwrap_or_else(|| {
        devices.push(ToldDevice { device: device.clone(), conditions: Vec::new() });
        devices.len() - 1
    });
    let Some(told) = devices.get_mut(at) else { return };
    let known = told.conditions.iter().position(|it| it.kind == condition.kind);
    let known = known.map(|at| told.conditions.remove(at)).filter(|known| known.status == condition.status);
    let since = known.map_or_else(|| condition.last_transition_time.clone(), |known| known.last_transition_time);
    told.conditions.push(Condition { last_transition_time: since, ..condition });
}

#[cfg(test)]
mod tests;
