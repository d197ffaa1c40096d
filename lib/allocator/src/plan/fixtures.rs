//! Small clusters for tests.

use hostler_api::{
    core::{Node, Pod},
    resource::{DeviceClass, ResourceClaim, ResourceClaimSpec, ResourceSlice},
};
use serde::de::DeserializeOwned;

use super::{ClusterFacts, PodSet};

pub(super) const DRIVER: &str = "gpu.example";

pub(super) fn read<T: DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// A node with 8 CPUs, 64 GiB and a spec as given, in JSON.
pub(super) fn node(name: &str, spec: &str) -> Node {
    read(&format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"kubernetes.io/hostname":"{name}"}}}},"spec":{{{spec}}},
            "status":{{"allocatable":{{"cpu":"8","memory":"64Gi","pods":"110"}}}}}}"#
    ))
}

/// The devices `gpu-0`, `gpu-1`, … of a node.
pub(super) fn slice(node: &str, devices: usize) -> ResourceSlice {
    let device = |at: usize| format!(r#"{{"name":"gpu-{at}","attributes":{{"uuid":{{"string":"{node}-{at}"}}}}}}"#);
    let devices: Vec<String> = (0..devices).map(device).collect();
    read(&format!(
        r#"{{"metadata":{{"name":"{node}-gpus"}},"spec":{{"driver":"{DRIVER}","nodeName":"{node}",
            "pool":{{"name":"{node}","generation":1,"resourceSliceCount":1}},"devices":[{}]}}}}"#,
        devices.join(",")
    ))
}

/// The class `gpu`: every device of the driver.
pub(super) fn class() -> DeviceClass {
    read(&format!(
        r#"{{"metadata":{{"name":"gpu"}},"spec":{{"selectors":[{{"cel":{{"expression":"device.driver == \"{DRIVER}\""}}}}]}}}}"#
    ))
}

/// A claim's spec that asks for `count` devices of the class.
pub(super) fn asks(count: usize) -> ResourceClaimSpec {
    read(&format!(
        r#"{{"devices":{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"gpu","count":{count},"allocationMode":"ExactCount"}}}}]}}}}"#
    ))
}

/// A claim for one device that was given these devices (`pool/device`), used by these pods.
pub(super) fn claim(name: &str, devices: &[&str], pods: &[&str]) -> ResourceClaim {
    let result = |device: &&str| {
        let (pool, device) = device.split_once('/').unwrap();
        format!(r#"{{"request":"r","driver":"{DRIVER}","pool":"{pool}","device":"{device}"}}"#)
    };
    let results: Vec<String> = devices.iter().map(result).collect();
    let pods: Vec<String> =
        pods.iter().map(|pod| format!(r#"{{"resource":"pods","name":"{pod}","uid":"{pod}"}}"#)).collect();
    let given = format!(r#""allocation":{{"devices":{{"results":[{}]}}}},"#, results.join(","));
    read(&format!(
        r#"{{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{{"name":"{name}","namespace":"default"}},
            "spec":{{"devices":{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"gpu"}}}}]}}}},
            "status":{{{}"reservedFor":[{}]}}}}"#,
        if devices.is_empty() { "" } else { &given },
        pods.join(",")
    ))
}

/// A pod with one CPU on a node; `metadata` is more of that, in JSON.
pub(super) fn pod(name: &str, node: &str, metadata: &str) -> Pod {
    read(&format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default"{metadata}}},"spec":{{"nodeName":"{node}",
            "containers":[{{"name":"c","resources":{{"requests":{{"cpu":"1"}}}}}}]}}}}"#
    ))
}

/// Pods whose specification is this, in JSON.
pub(super) fn pods(name: &str, count: u32, spec: &str) -> PodSet {
    let spec = read(&format!("{{{spec}}}"));
    PodSet { name: name.to_owned(), namespace: "default".to_owned(), count, spec, ..PodSet::default() }
}

/// Part of the spec of a pod that gets a claim from this template, in JSON.
pub(super) fn with_template(template: &str) -> String {
    format!(r#""resourceClaims":[{{"name":"gpu","resourceClaimTemplateName":"{template}"}}]"#)
}

/// Nodes `n0`, `n1`, … with these numbers of devices, the class, and templates `one`, `two`, `four`.
pub(super) fn cluster(devices: &[usize]) -> ClusterFacts {
    let mut facts = ClusterFacts::default();
    facts.add_class(class());
    for (name, count) in [("one", 1), ("two", 2), ("four", 4)] {
        facts.add_template(hostler_api::ObjectKey::new("", name), asks(count));
    }
    for (at, devices) in devices.iter().enumerate() {
        let name = format!("n{at}");
        facts.add_node(node(&name, ""));
        if *devices > 0 {
            facts.add_slice(slice(&name, *devices));
        }
    }
    facts
}
