//! The shapes, against those that the API itself has.

use k8s_openapi::api::resource::v1::{DeviceClass as OfficialClass, ResourceClaim as OfficialClaim};
use serde_json::{Value, json};

use super::*;

fn full() -> Value {
    json!({"devices": {
        "requests": [
            {"name": "gpu", "exactly": {
                "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2, "adminAccess": true,
                "selectors": [{"cel": {"expression": "true"}}],
                "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}],
                "capacity": {"requests": {"memory": "1073741824"}},
            }},
            {"name": "nic", "firstAvailable": [
                {"name": "fast", "deviceClassName": "nic", "allocationMode": "All"},
                {"name": "any", "deviceClassName": "nic", "allocationMode": "ExactCount", "count": 1,
                 "selectors": [{"cel": {"expression": "false"}}], "tolerations": [{"operator": "Exists"}],
                 "capacity": {"requests": {"lanes": "2"}}},
            ]},
        ],
        "constraints": [
            {"requests": ["gpu"], "matchAttribute": "d/numa"},
            {"distinctAttribute": "d/serial"},
        ],
        "config": [{"requests": ["gpu"], "opaque": {"driver": "d", "parameters": {"a": 1}}}],
    }})
}

#[test]
fn an_amount_is_that_of_the_request_or_alternative_by_its_name_in_an_allocation() {
    let spec: ResourceClaimSpec = serde_json::from_value(full()).unwrap();
    let asked = |request, capacity| spec.devices.asked(request, capacity);
    assert_eq!(asked("gpu", "memory"), Some(Quantity::whole(1 << 30)));
    assert_eq!(asked("nic/any", "lanes"), Some(Quantity::whole(2)));
    for (request, capacity) in
        [("gpu", "lanes"), ("nic", "lanes"), ("nic/fast", "lanes"), ("gpu/any", "memory"), ("x", "memory")]
    {
        assert_eq!(asked(request, capacity), None, "{request} {capacity}");
    }
    let part = json!({"devices": {"requests": [{"name": "r", "exactly": {
        "deviceClassName": "c", "capacity": {"requests": {"memory": "1500m", "less": "-1"}},
    }}]}});
    let spec: ResourceClaimSpec = serde_json::from_value(part).unwrap();
    assert_eq!((spec.devices.asked("r", "memory"), spec.devices.asked("r", "less")), (Some(Quantity::whole(2)), None));
}

#[test]
fn a_spec_survives_reading_and_writing_in_the_shape_of_the_api() {
    let spec: ResourceClaimSpec = serde_json::from_value(full()).unwrap();
    assert_eq!(serde_json::to_value(&spec).unwrap(), full());
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {}, "spec": full()});
    let official: OfficialClaim = serde_json::from_value(claim).unwrap();
    let written = serde_json::to_value(&official).unwrap()["spec"].take();
    assert_eq!(serde_json::from_value::<ResourceClaimSpec>(written).unwrap(), spec);
}

#[test]
fn v1beta1_has_the_fields_of_a_request_one_level_higher() {
    let mut flat = full();
    let request = &mut flat["devices"]["requests"][0];
    let exactly = request["exactly"].take();
    request.as_object_mut().unwrap().remove("exactly");
    request.as_object_mut().unwrap().extend(exactly.as_object().unwrap().clone());
    let spec: ResourceClaimSpec = serde_json::from_value(flat).unwrap();
    assert_eq!(serde_json::to_value(spec).unwrap(), full());
}

#[test]
fn what_is_absent_is_one_device() {
    let request: DeviceRequest =
        serde_json::from_value(json!({"name": "a", "exactly": {"deviceClassName": "c"}})).unwrap();
    let exactly = request.exactly.unwrap();
    assert_eq!((exactly.allocation_mode, exactly.count), (DeviceAllocationMode::ExactCount, None));
    let later: ExactDeviceRequest = serde_json::from_value(json!({"allocationMode": "Half"})).unwrap();
    assert_eq!(later.allocation_mode, DeviceAllocationMode::Other("Half".to_owned()));
}

#[test]
fn a_class_survives_reading_and_writing_in_the_shape_of_the_api() {
    let spec = json!({"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "d/gpu",
        "config": [{"opaque": {"driver": "d", "parameters": {"a": 1}}}]});
    let class =
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": spec});
    let official: OfficialClass = serde_json::from_value(class).unwrap();
    let class: DeviceClass = serde_json::from_value(serde_json::to_value(&official).unwrap()).unwrap();
    assert_eq!(class.metadata.name, "c");
    assert_eq!(serde_json::to_value(class.spec).unwrap(), spec);
}
