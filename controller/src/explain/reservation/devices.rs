//! Explains each device of a Reservation, and names the missing step that it waits for.

use std::collections::BTreeMap;

use hostler_api::{
    fabric::of_fabric_pool,
    hardware::{Condition, ConditionStatus, HardwareConditionType, NodeHold},
    reservation::{ReservedDevice, ReservedDeviceState as State},
};
use serde::Deserialize;

/// The number of devices that have a line of their own.
const MOST_LINES: usize = 32;

/// Devices that a node was told to close, and the progress that its daemon reports.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeHolds {
    metadata: HoldsMeta,
    spec: HoldsSpec,
    status: HoldsStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HoldsMeta {
    /// The node's name; empty where there is no NodeHardware.
    name: String,
    generation: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HoldsSpec {
    holds: Vec<NodeHold>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HoldsStatus {
    driver: String,
    holds_generation: Option<i64>,
    conditions: Vec<Condition>,
}

/// Returns a line for each device that is not plainly held, and one line for all that are.
pub(super) fn device_lines(devices: &[ReservedDevice], nodes: &BTreeMap<String, NodeHolds>) -> Vec<String> {
    let (held, others): (Vec<_>, Vec<_>) = devices.iter().partition(|device| device.state == State::Held);
    let mut lines: Vec<String> = others.iter().take(MOST_LINES).map(|device| line(device, nodes)).collect();
    let more = others.len().saturating_sub(MOST_LINES);
    lines.extend((more > 0).then(|| format!("and {more} more that are not held")));
    lines.extend((!held.is_empty()).then(|| format!("held: {}", hostler_api::few(held.into_iter().map(name)))));
    lines
}

/// Returns pool, name and node.
pub(super) fn name(device: &ReservedDevice) -> String {
    let ReservedDevice { driver, pool, device, node_name, .. } = device;
    if node_name.is_empty() {
        format!("{driver}/{pool}/{device}")
    } else {
        format!("{driver}/{pool}/{device} on {node_name}")
    }
}

fn line(device: &ReservedDevice, nodes: &BTreeMap<String, NodeHolds>) -> String {
    let holder = device.owner.as_ref().map(|owner| {
        let claim = format!("claim {}/{}", owner.namespace, owner.claim);
        if owner.pod.is_empty() { claim } else { format!("pod {}/{} ({claim})", owner.namespace, owner.pod) }
    });
    let how = match (device.state, holder) {
        (State::HandedOver, Some(holder)) => format!("{holder} has it, which is an owner"),
        (State::HandedOver, None) => "an owner has it".to_owned(),
        (State::Lost, Some(holder)) => format!("lost: {holder} has it"),
        (State::Lost, None) => "lost: it is gone, does not work or cannot be closed".to_owned(),
        (State::Fencing, Some(holder)) => format!("waited for: {holder} still has it"),
        (State::Fencing, None) => format!("being closed to others: {}", closing(device, nodes)),
        (State::Releasing, Some(holder)) if device.conflict => format!("{holder} has it, and it is not kept any more"),
        (State::Releasing, _) => "being opened to others".to_owned(),
        (State::Held, _) => "held".to_owned(),
    };
    let conflict = if device.conflict { "; two claims had it, it stays closed until none has it" } else { "" };
    format!("{}: {how}{conflict}", name(device))
}

/// Names the object that has to close a device, and tells if it has.
fn closing(device: &ReservedDevice, nodes: &BTreeMap<String, NodeHolds>) -> String {
    let node = &device.node_name;
    let Some(NodeHolds { metadata, spec, status }) = nodes.get(node) else {
        return "whose turn it is could not be read".to_owned();
    };
    if metadata.name.is_empty() {
        return format!("there is no NodeHardware {node}; does hostler's daemon run there?");
    }
    if status.driver != device.driver {
        return "that takes a DeviceTaintRule; may the controller make them (deploy/holds/rules)?".to_owned();
    }
    if !spec.holds.iter().any(|hold| hold.pool == device.pool && hold.device == device.device) {
        return format!("the controller has not told node {node} yet");
    }
    if of_fabric_pool(&device.pool).is_some() {
        // The controller itself publishes devices behind switches.
        return format!("the controller has not published that in a slice of {} yet", device.pool);
    }
    let unpublished = status.conditions.iter().find(|it| it.kind == HardwareConditionType::HoldsPublished.as_str());
    if let Some(condition) = unpublished.filter(|it| it.status == ConditionStatus::False) {
        return format!("the daemon of node {node} cannot: {}", condition.message);
    }
    if status.holds_generation.is_none_or(|done| done < metadata.generation) {
        return format!("the daemon of node {node} has not published it yet; is it running?");
    }
    "it is closed; what schedulers had decided on before is waited for".to_owned()
}
