//! 5,000 nodes, or as many as the program's argument says, with 100 devices each: on each one slice of a driver for cards and one of another for network or of hostler's
//! own, 50 devices in each.

use std::{env, sync::LazyLock, time::Instant};

use hostler_allocator::plan::{ClusterFacts, PodSet};
use hostler_api::ObjectKey;
use hostler_api::resource::{DeviceClass, ResourceClaim, ResourceSlice};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::reports::NodeReports;

/// Number of nodes.
pub(crate) static NODES: LazyLock<usize> =
    LazyLock::new(|| env::args().nth(1).map_or(5_000, |nodes| nodes.parse().unwrap()));
const DEVICES: usize = 50;
const PODS: usize = 20;
/// Whose the slices of a node are: the first one's, and one of the others.
pub(crate) const DRIVERS: [&str; 3] = ["gpu.example", "nic.example", "hostler.dev"];

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn name(node: usize) -> String {
    format!("worker-{node:05}.example.org")
}

fn driver(node: usize, slice: usize) -> &'static str {
    if slice == 0 { DRIVERS[0] } else { DRIVERS[1 + node % 2] }
}

fn pool(node: usize, slice: usize) -> String {
    if driver(node, slice) == "hostler.dev" { format!("{}/cpu", name(node)) } else { name(node) }
}

pub(crate) fn fill(facts: &mut ClusterFacts, reports: &mut NodeReports) {
    for driver in DRIVERS {
        facts.add_class(class(driver, &format!("device.driver == \"{driver}\"")));
    }
    for model in 0..4 {
        let model =
            format!("device.driver == \"gpu.example\" && device.attributes[\"gpu.example\"].model == \"m{model}\"");
        facts.add_class(class(&format!("model-{}", &model[model.len() - 2..model.len() - 1]), &model));
    }
    facts.add_template(
        ObjectKey::new("default", "two"),
        read(json!({"devices": {"requests": [{"name": "r", "exactly":
            {"deviceClassName": "model-1", "allocationMode": "ExactCount", "count": 2}}]}})),
    );
    for node in 0..*NODES {
        add_node(facts, reports, node);
    }
}

fn add_node(facts: &mut ClusterFacts, reports: &mut NodeReports, node: usize) {
    facts.add_node(read(node_object(node)));
    facts.add_slice(slice(node, 0, false));
    facts.add_slice(slice(node, 1, false));
    for claim_number in 0..DEVICES / 5 {
        facts.add_claim(&claim(node, claim_number * 2 + node % 2));
    }
    for pod in 0..PODS {
        facts.add_pod(&read(json!({"metadata": {"name": format!("app-{}-7f9c6d5b8-{node:05}{pod}", pod % 7), "namespace": format!("team-{}", pod % 5)},
            "spec": {"nodeName": name(node), "volumes": [{"name": format!("kube-api-access-{node}{pod}")}],
                "containers": [{"name": "main", "resources": {"requests": {"cpu": format!("{}", 1 + pod % 4), "memory": "1Gi"}}}]}})));
    }
    if driver(node, 1) == "hostler.dev" {
        reports.see(Instant::now(), &read(report_object(node)));
    }
}

pub(crate) fn node_object(node: usize) -> Value {
    let labels: serde_json::Map<String, Value> =
        (0..20).map(|at| (format!("label.example.org/number-{at}"), format!("{}", node % (at + 2)).into())).collect();
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name(node), "uid": format!("uid-{node}"), "labels": labels},
        "status": {"allocatable": {"cpu": "256", "memory": "2Ti", "pods": "110", "ephemeral-storage": "1Ti"},
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// What hostler says of a node.
pub(crate) fn report_object(node: usize) -> Value {
    let zone = |numa: usize| json!({"numaNode": numa, "capacity": 25, "allocatable": 25, "allocated": 1});
    json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware",
        "metadata": {"name": name(node)}, "spec": {"nodeName": name(node)}, "status": {
        "driver": "hostler.dev", "hostlerVersion": "0.1.0", "lastReportTime": "2026-11-22T00:00:00Z",
        "kernelVersion": "6.12.0-31-amd64", "bootID": format!("3b5ad29e-6c4f-4f0c-9d33-{node:012x}"),
        "devices": {"capacity": 50, "allocatable": 50, "allocated": 2, "held": 0, "unhealthy": 0, "drained": 0, "unknown": 0,
            "blocked": 0, "free": 48},
        "backends": [{"name": "cpu", "knowledge": "Known", "classes": [{"name": "hostler.dev", "zones": [zone(0), zone(1)]}]}]}})
}

pub(crate) fn class(name: &str, expression: &str) -> DeviceClass {
    read(class_object(name, expression))
}

pub(crate) fn class_object(name: &str, expression: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]}})
}

/// A slice of a node, of which the first device can be said not to work.
pub(crate) fn slice(node: usize, slice: usize, is_ill: bool) -> ResourceSlice {
    read(slice_object(node, slice, is_ill))
}

pub(crate) fn slice_object(node: usize, slice: usize, is_ill: bool) -> Value {
    slice_of(node, slice, node, is_ill)
}

/// The same with devices that nobody has seen before.
pub(crate) fn other_devices(node: usize, round: usize) -> ResourceSlice {
    read(slice_of(node, 0, 1_000_000 + round, false))
}

fn slice_of(node: usize, slice: usize, serial: usize, is_ill: bool) -> Value {
    let driver = driver(node, slice);
    let mut devices: Vec<Value> = (0..DEVICES).map(|at| device(serial, slice, at)).collect();
    if is_ill {
        devices[0]["taints"] = json!([{"key": format!("{driver}/unhealthy"), "effect": "NoSchedule", "timeAdded": "2026-11-22T00:00:00Z"}]);
    }
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": format!("{}-{driver}-x7k2p", name(node))}, "spec": {"driver": driver, "nodeName": name(node),
        "pool": {"name": pool(node, slice), "generation": 1, "resourceSliceCount": 1}, "devices": devices}})
}

/// Eight attributes, two of them unlike those of any other device, and two capacities.
fn device(serial: usize, slice: usize, at: usize) -> Value {
    json!({"name": format!("device-{at}"), "attributes": {
        "uuid": {"string": format!("GPU-{serial:08x}-{at:04x}-4000-8000-0015{slice:02}{serial:06x}")},
        "resource.kubernetes.io/pciBusID": {"string": format!("{:04x}:{at:02x}:{slice:02x}.0", serial % 65_536)},
        "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:{:02x}", at / 4)},
        "resource.kubernetes.io/numaNode": {"int": at / 25},
        "model": {"string": format!("m{}", serial % 4)},
        "driverVersion": {"version": "570.86.10"},
        "cores": {"int": 132},
        "ecc": {"bool": true}},
        "capacity": {"memory": {"value": "80Gi"}, "bandwidth": {"value": "3350G"}}})
}

/// A claim that has a card of a node.
pub(crate) fn claim(node: usize, device: usize) -> ResourceClaim {
    read(claim_object(node, device))
}

pub(crate) fn claim_object(node: usize, device: usize) -> Value {
    let name = format!("train-{node}-gpus-{device}");
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": format!("team-{}", node % 5), "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example"}}]}},
        "status": {"reservedFor": [{"resource": "pods", "name": format!("train-{node}-{device}"), "uid": name}], "allocation": {
            "devices": {"results": [{"request": "r", "driver": DRIVERS[0], "pool": pool(node, 0), "device": format!("device-{device}")}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields":
                [{"key": "metadata.name", "operator": "In", "values": [self::name(node)]}]}]}}}})
}

/// Pods that get two cards each.
pub(crate) fn pods(count: u32) -> PodSet {
    let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "two"}],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "4Gi"}}}]});
    let (name, namespace) = ("set".to_owned(), "default".to_owned());
    PodSet { name, namespace, count, spec: read(spec), ..PodSet::default() }
}
