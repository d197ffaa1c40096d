//! Chooses for a claim: the device, or a part of its capacities that no other claim holds.

use hostler_api::{
    Access, ConfigProblem, Grant, Quantity, few,
    opaque::{OpaqueConfig, is_placement},
    well_known::HOSTLER_API_VERSION,
};
use hostler_backend::{BackendError, Capacity, DevicePlan, HeldDevice, PlanWork, Sharing};
use serde_json::json;

/// Chooses for one grant. The plan holds what is written to the "hardware": the device, the amounts and the
/// configuration.
pub(crate) fn plan(work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
    let config = config(work.grant)?;
    if work.grant.access == Access::Use {
        check_free(work)?;
    }
    let mut data = json!({ "device": work.grant.device });
    if !work.grant.consumed.is_empty() {
        data["consumed"] = json!(work.grant.consumed);
    }
    if let Some(config) = config {
        data["config"] = config.clone();
    }
    Ok(DevicePlan { data, ..DevicePlan::default() })
}

/// The configuration that counts. The fake takes any object, but an object that calls itself one of this driver's
/// kinds has to be one that the fake takes.
fn config(grant: &Grant) -> Result<Option<&serde_json::Value>, BackendError> {
    let mut problems = Vec::new();
    for config in &grant.config {
        if !config.is_object() {
            let reason = format!("{config} is not an object; the fake takes any object");
            problems.push(ConfigProblem::new("parameters", reason));
        } else if config.get("apiVersion").is_some_and(|version| version == HOSTLER_API_VERSION) {
            match OpaqueConfig::parse(config, "parameters") {
                Ok(OpaqueConfig::Fake(_) | OpaqueConfig::Placement(_)) => {}
                Ok(other) => problems.push(ConfigProblem::new(
                    "parameters.kind",
                    format!("{} says nothing to the fake device {}; it takes FakeConfig", other.kind(), grant.device),
                )),
                Err(found) => problems.extend(found),
            }
        }
    }
    if problems.is_empty() {
        Ok(grant.config.iter().rfind(|config| !is_placement(config)))
    } else {
        Err(BackendError::Config { problems })
    }
}

fn check_free(work: &PlanWork<'_>) -> Result<(), BackendError> {
    let device = &work.device.name;
    let users = || work.held.iter().filter(|held| held.grant.device == *device && held.grant.access == Access::Use);
    if work.device.sharing == Sharing::Exclusive {
        return match users().find(|held| held.claim != work.claim) {
            Some(holder) => Err(BackendError::refused(format!("device {device} is held by {}", holder.claim_name))),
            None => Ok(()),
        };
    }
    for (name, capacity) in work.device.capacity.iter() {
        let amount = |held: &HeldDevice<'_>| held.grant.consumed.get(name).copied().unwrap_or(capacity.value);
        let taken = users().fold(Quantity::default(), |sum, held| sum.plus(amount(held)));
        let wanted = work.grant.consumed.get(name).copied().unwrap_or(capacity.value);
        if taken.plus(wanted) > capacity.value {
            let holders: Vec<&str> = users().map(|held| held.claim_name).collect();
            return Err(too_much(work, name, capacity, wanted, taken, &holders));
        }
    }
    Ok(())
}

fn too_much(
    work: &PlanWork<'_>,
    name: &str,
    capacity: &Capacity,
    wanted: Quantity,
    taken: Quantity,
    holders: &[&str],
) -> BackendError {
    let (device, free) = (&work.device.name, capacity.value.minus(taken).human());
    let mut reason = format!("device {device} has {free} of {name} left, and {} was asked for", wanted.human());
    if !holders.is_empty() {
        reason = format!("{reason}; the rest is held by {}", few(holders));
    }
    BackendError::refused(reason)
}
