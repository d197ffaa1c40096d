//! The shapes, against those that the API itself has.

use k8s_openapi::api::resource::v1::ResourceSlice as OfficialSlice;
use serde_json::json;

use super::*;

fn full() -> serde_json::Value {
    json!({
        "name": "a",
        "attributes": {
            "b": {"bool": true}, "i": {"int": 7}, "l": {"ints": [1, 2]}, "resource.kubernetes.io/pcieRoot":
            {"string": "pci0000:00"}, "s": {"strings": ["x", "y"]}, "v": {"version": "1.2.3"},
        },
        "capacity": {"memory": {"value": "1073741824", "requestPolicy": {
            "default": "1048576", "validRange": {"min": "1048576", "max": "1073741824", "step": "1048576"},
        }}, "whole": {"value": "2", "requestPolicy": {"default": "2", "validValues": ["2"]}}},
        "consumesCounters": [{"counterSet": "card", "counters": {"slots": {"value": "1"}}}],
        "taints": [{"key": "d/unhealthy", "value": "failed", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
        "bindsToNode": true,
        "bindingConditions": ["ready"],
        "bindingFailureConditions": ["failed"],
        "allowMultipleAllocations": true,
        "nodeAllocatableResources": {"memory": {"mapping": {"capacityKey": "memory", "capacityMultiplier": "1"}}},
    })
}

#[test]
fn a_device_survives_reading_and_writing_in_the_shape_of_the_api() {
    let device: SliceDevice = serde_json::from_value(full()).unwrap();
    assert_eq!(serde_json::to_value(&device).unwrap(), full());
    let spec = json!({"driver": "d", "nodeName": "n", "devices": [full()],
        "pool": {"name": "n/x", "generation": 3, "resourceSliceCount": 1}});
    let official: OfficialSlice =
        serde_json::from_value(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {},
            "spec": spec}))
        .unwrap();
    let written = serde_json::to_value(&official).unwrap()["spec"].take();
    assert_eq!(serde_json::to_value(serde_json::from_value::<ResourceSliceSpec>(written).unwrap()).unwrap(), spec);
}

#[test]
fn v1beta1_wraps_everything_but_the_name_and_back() {
    let device: SliceDevice = serde_json::from_value(full()).unwrap();
    let wrapped = serde_json::to_value(device.wrapped()).unwrap();
    let mut inner = full();
    inner.as_object_mut().unwrap().remove("name");
    assert_eq!(wrapped, json!({"name": "a", "basic": inner}));
    assert_eq!(serde_json::from_value::<SliceDevice>(wrapped).unwrap().unwrapped(), device);
    assert_eq!(device.clone().unwrapped(), device);
}

#[test]
fn quantities_are_compared_by_value_and_nonsense_is_equal_to_nothing_that_is_published() {
    let amount = |text: &str| serde_json::from_value::<SliceQuantity>(json!(text)).unwrap();
    assert_eq!(amount("1Gi"), amount("1073741824"));
    assert_ne!(amount("1Gi"), amount("1G"));
    assert_ne!(amount("much"), SliceQuantity::from(Quantity::default()));
}

#[test]
fn a_slice_says_which_nodes_can_use_its_devices() {
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]});
    let device = |node: serde_json::Value| {
        let mut device = json!({"name": "a"});
        device.as_object_mut().unwrap().extend(node.as_object().unwrap().clone());
        device
    };
    for (spec, device) in [
        (json!({"nodeSelector": selector}), json!({})),
        (json!({"allNodes": true}), json!({})),
        (json!({"perDeviceNodeSelection": true}), json!({"nodeSelector": selector})),
        (json!({"perDeviceNodeSelection": true}), json!({"allNodes": true})),
        (json!({"perDeviceNodeSelection": true}), json!({"nodeName": "n"})),
    ]
    .map(|(spec, node)| (spec, device(node)))
    {
        let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
        let mut written = json!({"driver": "d", "pool": pool, "devices": [device]});
        written.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let slice = json!({"metadata": {"name": "s"}, "spec": written});
        let slice: ResourceSlice = serde_json::from_value(slice).unwrap();
        assert_eq!(serde_json::to_value(slice.spec).unwrap(), written);
    }
}

#[test]
fn a_slice_of_v1beta1_is_read_as_one_of_v1() {
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "d", "pool": pool, "devices": [{"name": "a", "basic": {"bindsToNode": true}}]});
    let slice: ResourceSlice = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
    let device = SliceDevice { name: "a".into(), binds_to_node: true, ..SliceDevice::default() };
    assert_eq!(slice.unwrapped().spec.devices, [device]);
}

#[test]
fn an_attribute_of_a_later_kind_is_let_through() {
    for attribute in [json!({"later": [1]}), json!({})] {
        let device = json!({"name": "a", "attributes": {"x": attribute}});
        let read: SliceDevice = serde_json::from_value(device.clone()).unwrap();
        assert!(matches!(read.attributes.get("x"), Some(DeviceAttribute::Unknown(_))));
        assert_eq!(serde_json::to_value(read).unwrap(), device);
    }
}

#[test]
fn quantities_may_be_numbers() {
    for (written, expected) in [(json!(4), "4"), (json!(0.5), "500m"), (json!("1Ki"), "1Ki")] {
        let quantity: SliceQuantity = serde_json::from_value(written).unwrap();
        assert_eq!(quantity.get().unwrap().to_string(), expected);
    }
}

#[test]
fn what_go_writes_as_null_is_empty() {
    let device: SliceDevice = serde_json::from_value(json!({"name": "a", "attributes": null, "taints": null})).unwrap();
    assert_eq!(device, SliceDevice { name: "a".into(), ..SliceDevice::default() });
}
