//! The status of a claim's devices, from its record and the inventory. Pure.

use std::collections::BTreeMap;

use hostler_backend::Health;
use hostler_linux::IdSet;
use serde_json::json;

use super::message::{ConditionTime, DeviceCondition, DeviceData, DeviceStatus, READY, is_same};
use crate::{
    claims::store::{ClaimRecord, RecordDevice, RecordState},
    inventory::Inventory,
};

/// The API server takes no more conditions of a device, from all writers together.
const MOST_CONDITIONS: usize = 8;
/// The API server stores no more data of a device.
const MOST_DATA_BYTES: usize = 10 << 10;
/// The API server takes far more; a person does not.
const LONGEST_MESSAGE_CHARS: usize = 1024;

/// Troubles of a claim beside those of its devices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClaimTrouble<'a> {
    /// Why it is not ready.
    pub(super) problem: Option<&'a str>,
    /// The container that is not bound as the claim says.
    pub(super) degraded: Option<&'a str>,
}

/// The devices of a claim: nothing as long as the claim was never ready. Times are those of `now`.
pub(super) fn claim_devices(
    record: &ClaimRecord,
    trouble: ClaimTrouble<'_>,
    inventory: &Inventory,
    driver: &str,
    now: ConditionTime,
) -> Vec<DeviceStatus> {
    if record.state != RecordState::Prepared {
        return Vec::new();
    }
    let mut devices: Vec<DeviceStatus> = Vec::new();
    for device in &record.devices {
        let status = device_status(device, trouble, inventory, driver, now);
        // Administrative access may give one device to several requests; the API server has one place for both.
        if !devices.iter().any(|known| is_same(known, &status)) {
            devices.push(status);
        }
    }
    devices
}

/// Status of a claim's devices on the API server.
#[derive(Debug, Default)]
pub(super) struct StoredDevices {
    /// True if the claim is gone, or another one of the same name.
    pub(super) gone: bool,
    /// Entries of this driver.
    pub(super) ours: Vec<DeviceStatus>,
    /// Devices that have no room for a condition of ours.
    full: Vec<DeviceStatus>,
    generation: Option<i64>,
}

impl StoredDevices {
    /// The claim is gone.
    pub(super) fn gone() -> Self {
        Self { gone: true, ..Self::default() }
    }

    /// Tells what is ours in a claim's `status.devices`.
    pub(super) fn new(devices: Vec<DeviceStatus>, generation: Option<i64>, driver: &str) -> Self {
        let own = |device: &DeviceStatus| DeviceStatus {
            conditions: device.conditions.iter().filter(|one| one.kind == READY).cloned().collect(),
            ..device.clone()
        };
        let ours = devices.iter().filter(|device| device.driver == driver).map(own).collect();
        Self { gone: false, ours, full: devices.into_iter().filter(is_full).collect(), generation }
    }

    /// True if all of what is wanted is there, and nothing else of this driver.
    pub(super) fn says(&self, wanted: &[DeviceStatus]) -> bool {
        let mut wanted = wanted.to_vec();
        self.fit(&mut wanted);
        self.ours == wanted
    }

    /// Makes what is wanted fit what is there. A condition that still says the same has the time at which it began to.
    pub(super) fn fit(&self, wanted: &mut [DeviceStatus]) {
        for device in wanted {
            if self.full.iter().any(|full| is_same(full, device)) {
                device.conditions.clear();
            }
            let known = self.ours.iter().find(|known| is_same(known, device));
            let known = known.and_then(|known| known.conditions.first());
            for condition in &mut device.conditions {
                condition.observed_generation = self.generation.unwrap_or_default();
                if let Some(known) = known.filter(|known| known.status == condition.status) {
                    condition.last_transition_time = known.last_transition_time;
                }
            }
        }
    }
}

fn is_full(device: &DeviceStatus) -> bool {
    let others = device.conditions.iter().filter(|condition| condition.kind != READY);
    others.count() >= MOST_CONDITIONS
}

fn device_status(
    device: &RecordDevice,
    trouble: ClaimTrouble<'_>,
    inventory: &Inventory,
    driver: &str,
    now: ConditionTime,
) -> DeviceStatus {
    let (status, reason, message) = ready(device, trouble, inventory);
    let condition = DeviceCondition {
        kind: READY.to_owned(),
        status: status.to_owned(),
        // Filled in when it is known what the API server has.
        observed_generation: 0,
        last_transition_time: Some(now),
        reason: reason.to_owned(),
        message: message.chars().take(LONGEST_MESSAGE_CHARS).collect(),
    };
    DeviceStatus {
        conditions: vec![condition],
        data: data(device).as_ref().map(DeviceData::from),
        device: device.grant.device.to_string(),
        driver: driver.to_owned(),
        pool: device.grant.pool.clone(),
        share_id: device.grant.share_id.as_ref().map(|share| share.0.clone()),
    }
}

/// Status, reason and message of the condition.
fn ready(
    device: &RecordDevice,
    trouble: ClaimTrouble<'_>,
    inventory: &Inventory,
) -> (&'static str, &'static str, String) {
    let name = device.grant.device.as_str();
    let health = inventory.find(&device.grant.pool, name).map(|(_, found)| &found.health);
    if let Some(reason) = inventory.unknown_reason(&device.grant.pool) {
        return ("Unknown", "HealthUnknown", format!("nothing is known of device {name}: {reason}"));
    }
    // A device that binds nothing is not the one that was taken away.
    let degraded = trouble.degraded.filter(|_| device.plan.pinning.binds());
    match (health, trouble.problem) {
        // First, since a problem is often only how a start noticed it.
        (Some(Health::Unhealthy { reason }), _) => ("False", "Unhealthy", reason.clone()),
        (_, Some(problem)) => ("False", "NotPrepared", problem.to_owned()),
        (_, None) if degraded.is_some() => ("False", "Degraded", degraded.unwrap_or_default().to_owned()),
        (Some(Health::Healthy), None) => ("True", "Prepared", prepared(device)),
        (Some(Health::Unknown { reason }), None) => ("Unknown", "HealthUnknown", reason.clone()),
        (None, None) => ("False", "Gone", format!("device {name} is not on the node any more")),
    }
}

/// Message for a prepared device, with the wishes of the claim that cannot be met.
fn prepared(device: &RecordDevice) -> String {
    let unmet: String = device.unmet.iter().map(|unmet| format!("; {unmet}")).collect();
    format!("device {} is prepared{unmet}", device.grant.device)
}

/// Data: the CPUs and nodes that the device is bound to, and the amounts that were taken of it.
fn data(device: &RecordDevice) -> Option<serde_json::Value> {
    let mut data = serde_json::Map::new();
    let pinning = &device.plan.pinning;
    for (key, ids) in [("cpus", &pinning.cpus), ("mems", &pinning.mems)] {
        if !ids.is_empty() {
            data.insert(key.to_owned(), IdSet::from(ids.clone()).to_string().into());
        }
    }
    let consumed: BTreeMap<&str, String> =
        device.grant.consumed.iter().map(|(name, amount)| (name.as_str(), amount.to_string())).collect();
    if !consumed.is_empty() {
        data.insert("consumed".to_owned(), json!(consumed));
    }
    let data = serde_json::Value::Object(data);
    let empty = data.as_object().is_some_and(serde_json::Map::is_empty);
    (!empty && data.to_string().len() <= MOST_DATA_BYTES).then_some(data)
}

#[cfg(test)]
mod tests;
