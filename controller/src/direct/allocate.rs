//! The allocation of a claim whose devices are kept for its pod: the same as kube-scheduler would write.

use std::collections::BTreeMap;

use hostler_api::{
    core::NodeSelector,
    reservation::ReservedDevice,
    resource::{
        AllocationConfigSource, AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult,
        DeviceClassConfiguration, DeviceRequestAllocationResult, DeviceToleration, OpaqueDeviceConfiguration,
        ResourceClaimSpec,
    },
};

/// Returns the allocation with the devices of a claim, all on one node. The allocation has its time: without it the
/// scheduler of 1.36 would add the time, and the API server would refuse that again and again.
pub(super) fn allocation(
    spec: &ResourceClaimSpec,
    devices: &[&ReservedDevice],
    classes: &BTreeMap<String, Vec<DeviceClassConfiguration>>,
    now: &str,
) -> Option<AllocationResult> {
    let node = &devices.first()?.node_name;
    if node.is_empty() || devices.iter().any(|device| device.node_name != *node) {
        return None;
    }
    let results = devices.iter().map(|device| DeviceRequestAllocationResult {
        request: device.request.clone(),
        driver: device.driver.clone(),
        pool: device.pool.clone(),
        device: device.device.clone(),
        tolerations: tolerations(spec, &device.request),
        ..DeviceRequestAllocationResult::default()
    });
    let results = results.collect();
    let config = config(spec, devices, classes);
    Some(AllocationResult {
        devices: DeviceAllocationResult { results, config },
        node_selector: Some(NodeSelector::of_node(node)),
        allocation_timestamp: Some(now.to_owned()),
    })
}

fn tolerations(spec: &ResourceClaimSpec, request: &str) -> Vec<DeviceToleration> {
    let (name, alternative) = request.split_once('/').unwrap_or((request, ""));
    let Some(found) = spec.devices.requests.iter().find(|it| it.name == name) else { return Vec::new() };
    let exactly = found.exactly.as_ref().map(|it| it.tolerations.clone());
    let alternative = found.first_available.iter().find(|it| it.name == alternative);
    exactly.or_else(|| alternative.map(|it| it.tolerations.clone())).unwrap_or_default()
}

/// Returns the configuration: the classes' first, since the claim's wins.
fn config(
    spec: &ResourceClaimSpec,
    devices: &[&ReservedDevice],
    classes: &BTreeMap<String, Vec<DeviceClassConfiguration>>,
) -> Vec<DeviceAllocationConfiguration> {
    let mut requests: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for device in devices {
        let of_class = requests.entry(&device.device_class_name).or_default();
        if !of_class.contains(&device.request) {
            of_class.push(device.request.clone());
        }
    }
    let entry = |source, requests: &[String], opaque: &Option<OpaqueDeviceConfiguration>| {
        DeviceAllocationConfiguration { source, requests: requests.to_vec(), opaque: opaque.clone() }
    };
    let mut all = Vec::new();
    for (class, requests) in requests {
        let own = classes.get(class).into_iter().flatten();
        all.extend(own.map(|own| entry(AllocationConfigSource::FromClass, &requests, &own.opaque)));
    }
    let own = spec.devices.config.iter();
    all.extend(own.map(|own| entry(AllocationConfigSource::FromClaim, &own.requests, &own.opaque)));
    all
}
