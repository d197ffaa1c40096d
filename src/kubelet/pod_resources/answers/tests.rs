//! What there is to hand out, of made-up devices.

use std::sync::Arc;

use hostler_api::{DeviceName, QualifiedName, Quantity};
use hostler_backend::{AttributeValue, Backend, Capacity, Device, NodeAllocatable};
use hostler_fake::FakeBackend;

use super::*;
use crate::inventory::Pool;

fn device(name: &str, node: Option<i64>) -> Device {
    let mut device = Device::new(DeviceName::new(name).unwrap());
    let numa = QualifiedName::new("resource.kubernetes.io/numaNode").unwrap();
    if let Some(node) = node {
        device.attributes.insert(numa, AttributeValue::Int(node));
    }
    device
}

fn memory(name: &str, node: i64, kind: &str, bytes: u64) -> Device {
    let mut device = device(name, Some(node));
    let capacity = QualifiedName::new("memory").unwrap();
    device.capacity.insert(capacity.clone(), Capacity { value: Quantity::whole(bytes), policy: None });
    let per_byte = NodeAllocatable::PerCapacity { capacity, factor: Quantity::whole(1) };
    device.node_allocatable.insert(kind.to_owned(), per_byte);
    device
}

fn unwell(name: &str, health: Health) -> Device {
    Device { health, ..device(name, Some(0)) }
}

fn told(devices: Vec<Device>) -> v1::AllocatableResourcesResponse {
    let pool = Pool { name: "n1/fake".to_owned(), devices, ..Pool::default() };
    let inventory =
        Inventory { pools: [(BackendName::new("fake").unwrap(), Arc::new(pool))].into(), ..Inventory::default() };
    let backend: Arc<dyn Backend> = Arc::new(FakeBackend::new(Default::default()));
    allocatable(&inventory, &BackendRegistry::new([backend]), "hostler.dev")
}

#[test]
fn a_device_whose_topology_is_unknown_has_none_and_never_an_empty_one() {
    let told = told(vec![device("b", None), device("a", Some(3))]);
    let entry = |id: &str, topology| v1::ContainerDevices {
        resource_name: "hostler.dev/fake".to_owned(),
        device_ids: vec![id.to_owned()],
        topology,
    };
    let node = v1::TopologyInfo { nodes: vec![v1::NumaNode { id: 3 }] };
    assert_eq!(told.devices, [entry("a", Some(node)), entry("b", None)]);
}

#[test]
fn only_healthy_devices_can_be_handed_out() {
    let reason = || "tests say so".to_owned();
    let told = told(vec![
        unwell("sick", Health::Unhealthy { reason: reason() }),
        unwell("odd", Health::Unknown { reason: reason() }),
        device("well", None),
    ]);
    let ids: Vec<&String> = told.devices.iter().flat_map(|device| &device.device_ids).collect();
    assert_eq!(ids, ["well"]);
}

#[test]
fn memory_is_told_by_kind_and_node_and_is_no_device() {
    let told = told(vec![
        memory("node1", 1, "memory", 100),
        memory("node0", 0, "memory", 50),
        memory("node0-huge", 0, "hugepages-2Mi", 8),
        memory("more", 0, "memory", 1),
    ]);
    assert!(told.devices.is_empty());
    let memory: Vec<(&str, u64, i64)> = told
        .memory
        .iter()
        .map(|memory| (&*memory.memory_type, memory.size, memory.topology.as_ref().unwrap().nodes[0].id))
        .collect();
    assert_eq!(memory, [("hugepages-2Mi", 8, 0), ("memory", 51, 0), ("memory", 100, 1)]);
}
