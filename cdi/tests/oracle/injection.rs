//! What of a spec must be visible in the OCI configuration of a container.

use std::collections::BTreeMap;

use hostler_cdi::{CdiHook, CdiSpec, ContainerEdits, DeviceNode};
use serde_json::{Value, json};

/// All edits that a container gets that requests every device of the file.
pub(crate) fn all_edits(spec: &CdiSpec) -> ContainerEdits {
    let mut edits = spec.container_edits.clone();
    spec.devices.iter().for_each(|device| edits.append(&device.container_edits));
    edits
}

/// The names by which containers request the devices of a file.
pub(crate) fn qualified_names(spec: &CdiSpec) -> Vec<String> {
    spec.devices.iter().map(|device| format!("{}={}", spec.kind, device.name)).collect()
}

/// Asserts that each edit has arrived; where several are for the same place, the last one.
#[track_caller]
pub(crate) fn assert_visible(edits: &ContainerEdits, oci: &Value) {
    assert_env(edits, oci);
    let nodes: BTreeMap<_, _> = edits.device_nodes.iter().map(|node| (&node.path, node)).collect();
    nodes.values().for_each(|node| assert_node(node, oci));
    let interfaces: BTreeMap<_, _> = edits.net_devices.iter().map(|d| (&d.host_interface_name, &d.name)).collect();
    for (host, name) in interfaces {
        assert_eq!(oci["linux"]["netDevices"][host]["name"], json!(name));
    }
    edits.hooks.iter().for_each(|hook| assert_hook(hook, oci));
    assert_mounts(edits, oci);
    if let Some(rdt) = &edits.intel_rdt {
        assert_includes(&oci["linux"]["intelRdt"], &serde_json::to_value(rdt).unwrap());
    }
    for group in edits.additional_gids.iter().filter(|group| **group > 0) {
        assert_contains(&oci["process"]["user"]["additionalGids"], &json!(group));
    }
}

fn assert_env(edits: &ContainerEdits, oci: &Value) {
    let last: BTreeMap<_, _> = edits.env.iter().map(|text| (text.split_once('=').unwrap().0, text)).collect();
    last.values().for_each(|text| assert_contains(&oci["process"]["env"], &json!(text)));
}

fn assert_node(node: &DeviceNode, oci: &Value) {
    let devices = oci["linux"]["devices"].as_array().unwrap();
    let found: Vec<_> = devices.iter().filter(|device| device["path"] == json!(node.path)).collect();
    assert_eq!(found.len(), 1, "{node:?} in {devices:?}");
    let mut expected = serde_json::to_value(node).unwrap();
    let fields = expected.as_object_mut().unwrap();
    let access = fields.remove("permissions").unwrap_or(json!("rwm"));
    fields.remove("hostPath");
    assert_includes(found[0], &expected);
    if matches!(node.node_type.as_deref(), Some("b" | "c")) {
        let rule = json!({"allow": true, "type": node.node_type, "major": node.major,
                          "minor": node.minor.unwrap_or(0), "access": access});
        assert_contains(&oci["linux"]["resources"]["devices"], &rule);
    }
}

fn assert_hook(hook: &CdiHook, oci: &Value) {
    let mut expected = serde_json::to_value(hook).unwrap();
    let name = expected.as_object_mut().unwrap().remove("hookName").unwrap();
    let hooks = oci["hooks"][name.as_str().unwrap()].as_array().unwrap();
    assert!(hooks.iter().any(|found| includes(found, &expected)), "{expected} not in {hooks:?}");
}

fn assert_mounts(edits: &ContainerEdits, oci: &Value) {
    let last: BTreeMap<_, _> = edits.mounts.iter().map(|mount| (&mount.container_path, mount)).collect();
    for mount in last.values() {
        let mounts = oci["mounts"].as_array().unwrap();
        let found: Vec<_> = mounts.iter().filter(|found| found["destination"] == json!(mount.container_path)).collect();
        assert_eq!(found.len(), 1, "{mount:?} in {mounts:?}");
        assert_eq!(found[0]["source"], json!(mount.host_path));
        if !mount.options.is_empty() {
            assert_eq!(found[0]["options"], json!(mount.options));
        }
        if let Some(fs_type) = &mount.fs_type {
            assert_eq!(found[0]["type"], json!(fs_type));
        }
    }
}

#[track_caller]
fn assert_contains(list: &Value, item: &Value) {
    assert!(list.as_array().is_some_and(|list| list.contains(item)), "{item} not in {list}");
}

#[track_caller]
fn assert_includes(found: &Value, expected: &Value) {
    assert!(includes(found, expected), "{expected} not in {found}");
}

fn includes(found: &Value, expected: &Value) -> bool {
    expected.as_object().unwrap().iter().all(|(key, value)| found[key] == *value)
}
