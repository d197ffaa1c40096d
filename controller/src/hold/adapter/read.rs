//! From objects of the API server to events of the core. Pure.

use hostler_api::{
    Quantity,
    fabric::{FABRIC_TAINT, FabricAttachment, fabric_pool},
    hardware::NodeHardwareSpec,
    reservation::{ReservationSpec, ReservationStatus},
    resource::{DeviceAttribute, DeviceCapacity, DeviceTaint, ResourceSliceSpec, SliceDevice, SliceQuantity},
    well_known::{CONTROLLER_FIELD_MANAGER, HELD_ATTRIBUTE, HELD_TAINT},
};
use hostler_cluster::since_1970;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    hold::{
        Amounts, DeviceKey, Fence, FenceRule, HoldEvent, KnownAttachment, NodeFences, PublishedDevice, PublishedSlice,
    },
    reservation_object::ReservationObject,
};

/// Value of the taint of devices behind switches that could not be attached.
const FAILED: &str = "failed";
/// Label that marks a rule as ours.
pub(super) const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Prefix of the names of our rules.
const RULE_PREFIX: &str = "hold-";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct SeenMeta {
    name: String,
    uid: String,
    resource_version: String,
    generation: i64,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    finalizers: Vec<String>,
    labels: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct SeenObjectMeta {
    metadata: SeenMeta,
}

#[derive(Deserialize)]
struct SeenReservation {
    metadata: SeenMeta,
    #[serde(default)]
    spec: ReservationSpec,
    #[serde(default)]
    status: ReservationStatus,
}

#[derive(Deserialize)]
struct SeenHardware {
    metadata: SeenMeta,
    spec: NodeHardwareSpec,
}

#[derive(Deserialize)]
struct SeenSlice {
    metadata: SeenMeta,
    spec: ResourceSliceSpec,
}

impl<'de> Deserialize<'de> for ReservationObject {
    fn deserialize<D: Deserializer<'de>>(object: D) -> Result<Self, D::Error> {
        let SeenReservation { metadata, spec, status } = SeenReservation::deserialize(object)?;
        Ok(Self {
            name: metadata.name,
            uid: metadata.uid,
            version: metadata.resource_version,
            generation: metadata.generation,
            created: metadata.creation_timestamp.as_deref().and_then(since_1970).unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers,
            labels: metadata.labels,
            spec,
            status,
        })
    }
}

pub(super) fn node_fences(object: &Value) -> Result<NodeFences, serde_json::Error> {
    let SeenHardware { metadata, spec } = SeenHardware::deserialize(object)?;
    let fences = spec.holds.into_iter().map(|it| Fence { pool: it.pool, device: it.device, value: it.value });
    Ok(NodeFences { node: metadata.name, version: metadata.resource_version, fences: fences.collect() })
}

pub(super) fn slice(object: &Value) -> Result<PublishedSlice, serde_json::Error> {
    let SeenSlice { metadata, spec } = SeenSlice::deserialize(object)?;
    let devices: Vec<SliceDevice> = spec.devices.into_iter().map(SliceDevice::unwrapped).collect();
    Ok(PublishedSlice {
        name: metadata.name,
        version: metadata.resource_version,
        driver: spec.driver,
        pool: spec.pool.name,
        node: spec.node_name.unwrap_or_default(),
        devices: devices.iter().map(device).collect(),
    })
}

/// Reads a FabricAttachment.
pub(super) fn attachment(object: &Value) -> Result<KnownAttachment, serde_json::Error> {
    let version = SeenObjectMeta::deserialize(object)?.metadata.resource_version;
    let FabricAttachment { metadata, spec, status } = FabricAttachment::deserialize(object)?;
    Ok(KnownAttachment {
        name: metadata.name,
        version,
        pool: fabric_pool(&spec.manager, &spec.domain),
        node: spec.node_name,
        keeper: spec.kept_for.map(|keeper| keeper.uid),
        is_released: spec.release || metadata.deletion_timestamp.is_some(),
        phase: status.phase,
        message: status.message,
        retry_at: status.retry_at.as_deref().and_then(since_1970),
    })
}

fn has_attribute(device: &SliceDevice) -> bool {
    device.attributes.get(HELD_ATTRIBUTE) == Some(&DeviceAttribute::Bool(true))
}

fn device(device: &SliceDevice) -> PublishedDevice {
    let held = device.taints.iter().find(|taint| &*taint.key == HELD_TAINT && taint.prevents_allocation());
    // A device that is attached, or is given back, is in order: the Reservation that keeps it may go on.
    let is_attached = |taint: &DeviceTaint| &*taint.key == FABRIC_TAINT && taint.value.as_deref() != Some(FAILED);
    let mut others = device.taints.iter().filter(|taint| &*taint.key != HELD_TAINT && !is_attached(taint));
    PublishedDevice {
        name: device.name.to_string(),
        held_for: held.map(|taint| taint.value.as_deref().unwrap_or_default().to_owned()),
        is_held: has_attribute(device),
        is_usable: !others.any(DeviceTaint::prevents_allocation),
        is_shareable: device.allow_multiple_allocations,
        capacity: if device.allow_multiple_allocations { capacity(device) } else { Amounts::new() },
        is_partition: !device.consumes_counters.is_empty(),
        has_binding_conditions: !device.binding_conditions.is_empty(),
    }
}

fn capacity(device: &SliceDevice) -> Amounts {
    let amount = |capacity: &DeviceCapacity| match &capacity.value {
        SliceQuantity::Exact(amount) => Quantity::try_from(*amount).ok(),
        SliceQuantity::Unreadable(_) => None,
    };
    device.capacity.iter().filter_map(|(name, it)| Some((name.to_owned(), amount(it)?))).collect()
}

/// The event of the core for a rule. A rule that has our name and another author now counts as gone.
pub(super) fn rule_event(object: &Value) -> Option<HoldEvent> {
    let gone = || rule_name(object).map(|name| HoldEvent::RuleGone(name.to_owned()));
    rule(object).map(HoldEvent::Rule).or_else(gone)
}

fn rule_name(object: &Value) -> Option<&str> {
    object["metadata"]["name"].as_str().filter(|name| name.starts_with(RULE_PREFIX))
}

/// Returns a rule if it is ours: by its label, or since it closes devices with our taint.
pub(super) fn rule(object: &Value) -> Option<FenceRule> {
    let name = rule_name(object)?;
    let (selector, taint) = (&object["spec"]["deviceSelector"], &object["spec"]["taint"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // A rule that closes nothing, or whose taint cannot be tolerated by our value, counts for no Reservation.
    let is_held = taint["key"] == HELD_TAINT;
    let closes = is_held && (taint["effect"] == "NoSchedule" || taint["effect"] == "NoExecute");
    let is_ours = is_held || object["metadata"]["labels"][MANAGED_BY_LABEL] == CONTROLLER_FIELD_MANAGER;
    is_ours.then(|| FenceRule {
        name: name.to_owned(),
        device: DeviceKey::new(&text(&selector["driver"]), &text(&selector["pool"]), &text(&selector["device"])),
        value: if closes { text(&taint["value"]) } else { String::new() },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_device_says_for_whom_it_is_held_and_whether_it_can_be_used() {
        let read = slice(&json!({
            "metadata": {"name": "s", "resourceVersion": "3"},
            "spec": {"driver": "d", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [
                {"name": "a", "taints": [{"key": "hostler.dev/held", "value": "v", "effect": "NoSchedule"}]},
                {"name": "b", "taints": [{"key": "d/unhealthy", "effect": "NoSchedule"}], "allowMultipleAllocations": true},
                {"name": "c", "basic": {"attributes": {"hostler.dev/held": {"bool": true}}}},
                {"name": "e", "consumesCounters": [{"counterSet": "s", "counters": {}}], "taints": [{"key": "x", "effect": "None"}]},
            ]},
        }))
        .unwrap();
        let words = |device: &PublishedDevice| {
            (device.held_for.clone(), device.is_usable, device.is_shareable, device.is_partition)
        };
        assert_eq!(
            read.devices.iter().map(words).collect::<Vec<_>>(),
            [
                (Some("v".to_owned()), true, false, false),
                (None, false, true, false),
                (None, true, false, false),
                (None, true, false, true),
            ]
        );
        let by_attribute = read.devices.iter().filter(|device| device.is_held);
        assert_eq!(by_attribute.map(|device| &*device.name).collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn rules_of_others_are_none_of_ours() {
        let rule_with = |name: &str, key: &str, effect: &str| {
            let taint = json!({"key": key, "value": "v", "effect": effect});
            let selector = json!({"driver": "d", "pool": "p", "device": "a"});
            rule(&json!({"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}))
        };
        let rule_called = |name: &str, key: &str| rule_with(name, key, "NoSchedule");
        assert_eq!(rule_with("hold-1", HELD_TAINT, "None").unwrap().value, "", "it closes nothing");
        let ours = rule_called("hold-1", HELD_TAINT).unwrap();
        assert_eq!((ours.device, ours.value.as_str()), (DeviceKey::new("d", "p", "a"), "v"));
        assert_eq!((rule_called("repair", HELD_TAINT), rule_called("hold-1", "x")), (None, None));
    }

    #[test]
    fn a_rule_of_ours_that_somebody_gave_another_taint_closes_nothing_and_is_still_ours() {
        let edited = |labels: Value| {
            json!({
                "metadata": {"name": "hold-1", "labels": labels},
                "spec": {
                    "deviceSelector": {"driver": "d", "pool": "p", "device": "a"},
                    "taint": {"key": "x", "value": "v", "effect": "NoSchedule"},
                },
            })
        };
        let ours = rule(&edited(json!({MANAGED_BY_LABEL: CONTROLLER_FIELD_MANAGER}))).unwrap();
        assert_eq!((ours.device, &*ours.value), (DeviceKey::new("d", "p", "a"), ""), "it is made anew");
        // A rule without the label has another author, and closes nothing of ours.
        assert!(matches!(rule_event(&edited(json!({}))), Some(HoldEvent::RuleGone(name)) if name == "hold-1"));
    }
}
