//! Fields of features that are switched off: dropped without a word, unless the object had them before.

use serde_json::{Value, json};

use super::{
    classic,
    resources::{ApiServerRelease, ObjectKind, ServedResource},
    rules::ServerSettings,
    schema::now,
};

/// A gate, and where its fields are; `*` is every member of a list or a map.
const SLICE_FIELDS: &[(&str, &[&str])] = &[
    ("DRADeviceTaints", &["spec/devices/*/taints"]),
    (
        "DRAPartitionableDevices",
        &[
            "spec/sharedCounters",
            "spec/perDeviceNodeSelection",
            "spec/devices/*/consumesCounters",
            "spec/devices/*/nodeName",
            "spec/devices/*/nodeSelector",
            "spec/devices/*/allNodes",
        ],
    ),
    ("DRAConsumableCapacity", &["spec/devices/*/allowMultipleAllocations", "spec/devices/*/capacity/*/requestPolicy"]),
    (
        "DRADeviceBindingConditions",
        &["spec/devices/*/bindsToNode", "spec/devices/*/bindingConditions", "spec/devices/*/bindingFailureConditions"],
    ),
    (
        "DRAListTypeAttributes",
        &[
            "spec/devices/*/attributes/*/ints",
            "spec/devices/*/attributes/*/bools",
            "spec/devices/*/attributes/*/strings",
            "spec/devices/*/attributes/*/versions",
        ],
    ),
    (
        "DRANodeAllocatableResources",
        &["spec/devices/*/nodeAllocatableResources", "spec/devices/*/nodeAllocatableResourceMappings"],
    ),
    ("DRAPartitionableDevicesType", &["spec/partitionTypeAttribute"]),
    ("DRAOptionalNodeOperations", &["spec/skipNodeOperations"]),
    ("DRADeviceCompatibilityGroups", &["spec/devices/*/consumesCounters/*/compatibilityGroups"]),
];

const CLAIM_FIELDS: &[(&str, &[&str])] = &[
    ("DRAResourceClaimDeviceStatus", &["status/devices"]),
    ("DRAAdminAccess", &["spec/devices/requests/*/exactly/adminAccess"]),
    ("DRAPrioritizedList", &["spec/devices/requests/*/firstAvailable"]),
    (
        "DRADeviceTaints",
        &["spec/devices/requests/*/exactly/tolerations", "status/allocation/devices/results/*/tolerations"],
    ),
    (
        "DRAConsumableCapacity",
        &[
            "spec/devices/requests/*/exactly/capacity",
            "status/allocation/devices/results/*/shareID",
            "status/allocation/devices/results/*/consumedCapacity",
            "status/devices/*/shareID",
        ],
    ),
    (
        "DRADeviceBindingConditions",
        &[
            "status/allocation/devices/results/*/bindingConditions",
            "status/allocation/devices/results/*/bindingFailureConditions",
            "status/allocation/allocationTimestamp",
        ],
    ),
    ("DRAOptionalNodeOperations", &["status/allocation/devices/results/*/skipNodeOperations"]),
];

/// Removes the fields of disabled gates, and fills in those that the server sets.
pub(crate) fn settle(settings: &ServerSettings, resource: &ServedResource, old: Option<&Value>, object: &mut Value) {
    let fields = match resource.kind {
        ObjectKind::ResourceSlice => SLICE_FIELDS,
        ObjectKind::ResourceClaim => CLAIM_FIELDS,
        // Before 1.31 no gate but that of the whole API had anything to say.
        ObjectKind::ClassicClaim if settings.release == ApiServerRelease::V1_31 => classic::GATED_FIELDS_OF_CLAIMS,
        ObjectKind::ClassicDeviceClass => classic::GATED_FIELDS_OF_CLASSES,
        _ => return,
    };
    for (_, paths) in fields.iter().filter(|(gate, _)| !settings.is_on(gate)) {
        let parts = |path: &'static str| path.split('/').collect::<Vec<_>>();
        if !old.is_some_and(|old| paths.iter().any(|path| has(old, &parts(path)))) {
            paths.iter().for_each(|path| remove(object, &parts(path)));
        }
    }
    for device in object["spec"]["devices"].as_array_mut().into_iter().flatten() {
        for taint in device.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten() {
            if taint["timeAdded"].is_null() {
                taint["timeAdded"] = json!(now());
            }
        }
    }
}

fn has(value: &Value, path: &[&str]) -> bool {
    match path {
        [] => true,
        ["*", rest @ ..] => {
            let in_list = value.as_array().is_some_and(|list| list.iter().any(|item| has(item, rest)));
            in_list || value.as_object().is_some_and(|map| map.values().any(|item| has(item, rest)))
        }
        [field, rest @ ..] => value.get(field).is_some_and(|value| has(value, rest)),
    }
}

fn remove(value: &mut Value, path: &[&str]) {
    match path {
        [] => {}
        [last] => {
            if let Some(object) = value.as_object_mut() {
                object.remove(*last);
            }
        }
        ["*", rest @ ..] => match value {
            Value::Array(list) => list.iter_mut().for_each(|item| remove(item, rest)),
            Value::Object(map) => map.values_mut().for_each(|item| remove(item, rest)),
            _ => {}
        },
        [field, rest @ ..] => {
            if let Some(value) = value.get_mut(field) {
                remove(value, rest);
            }
        }
    }
}

/// The name that 1.36 has for the resources of the node, and no other release knows. The types of 1.37 would lose the
/// field.
const OLD_NAME: &str = "nodeAllocatableResourceMappings";

/// Brings back, after the pruning, what only this release has, and takes out what only others have.
pub(crate) fn keep_names(settings: &ServerSettings, resource: &ServedResource, given: &Value, decoded: &mut Value) {
    if resource.kind == ObjectKind::Pod {
        classic::keep_sources(settings.release, given, decoded);
    }
    if resource.kind != ObjectKind::ResourceSlice || settings.release != ApiServerRelease::V1_36 {
        return;
    }
    let given = given["spec"]["devices"].as_array().into_iter().flatten();
    let decoded = decoded["spec"].get_mut("devices").and_then(Value::as_array_mut).into_iter().flatten();
    for (given, device) in given.zip(decoded) {
        remove(device, &["nodeAllocatableResources"]);
        if let Some(mappings) = given.get(OLD_NAME) {
            device[OLD_NAME] = mappings.clone();
        }
    }
}
