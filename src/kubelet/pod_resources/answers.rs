//! Devices of pods, and resources that can be handed out, as messages of the API. Pure; everything is sorted, so that
//! equal answers have equal bytes.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{Access, BackendName};
use hostler_backend::Health;
use hostler_proto::{pod_resources_v1 as v1, pod_resources_v1alpha1 as v1alpha1};

use crate::{
    inventory::Inventory,
    pods::PodContainerKind,
    registry::BackendRegistry,
    usage::pods::{ClaimUse, ContainerUsage, NodePodUsage, PodUsage, UsedDevice, UsedMemory, is_of_node, memory_of},
};

/// NUMA nodes of each device, by resource and id.
pub(super) type DeviceNodes = BTreeMap<(String, String), BTreeSet<i64>>;
/// Bytes of memory, by kind and NUMA nodes.
pub(super) type MemoryBytes = BTreeMap<(String, BTreeSet<i64>), u64>;

/// Every pod. Devices that only the record of a claim names, for no known container, stand in a container without a
/// name.
pub(super) fn pods(usage: &NodePodUsage, driver: &str) -> Vec<v1::PodResources> {
    usage.pods.iter().map(|pod| pod_resources(pod, driver)).collect()
}

fn pod_resources(pod: &PodUsage, driver: &str) -> v1::PodResources {
    let runs = |container: &&ContainerUsage| container.kind != Some(PodContainerKind::Init);
    let mut containers: Vec<v1::ContainerResources> = pod
        .containers
        .iter()
        .filter(runs)
        .map(|container| container_resources(&container.name, &container.claims, driver))
        .collect();
    if !pod.claims.is_empty() {
        containers.push(container_resources("", &pod.claims, driver));
    }
    let (name, namespace) = (pod.name.name.clone(), pod.name.namespace.clone());
    v1::PodResources { name, namespace, containers, ..v1::PodResources::default() }
}

fn container_resources(name: &str, claims: &[ClaimUse], driver: &str) -> v1::ContainerResources {
    let used = || claims.iter().flat_map(|used| &used.devices).filter(|device| device.access == Access::Use);
    let mut devices = DeviceNodes::new();
    for device in used().filter(|device| !device.is_of_node) {
        devices.entry(device_key(driver, &device.backend, &device.device)).or_default().extend(ids(&device.nodes));
    }
    let mut memory = MemoryBytes::new();
    for UsedMemory { kind, nodes, bytes } in used().flat_map(|device| &device.memory) {
        *memory.entry((kind.clone(), ids(nodes))).or_default() += bytes;
    }
    let cpus: BTreeSet<u32> = used().flat_map(|device| device.cpus.iter().copied()).collect();
    let mut claims: Vec<&ClaimUse> = claims.iter().collect();
    claims.sort_by(|one, other| one.claim.cmp(&other.claim));
    v1::ContainerResources {
        name: name.to_owned(),
        devices: container_devices(devices),
        cpu_ids: cpus.into_iter().map(i64::from).collect(),
        memory: container_memory(memory),
        dynamic_resources: claims.into_iter().map(|used| dynamic_resource(used, driver)).collect(),
    }
}

/// Resource name and id of a device. A backend's devices are one resource of the node.
fn device_key(driver: &str, backend: &BackendName, device: &str) -> (String, String) {
    (format!("{driver}/{backend}"), device.to_owned())
}

fn ids(nodes: &BTreeSet<u32>) -> BTreeSet<i64> {
    nodes.iter().copied().map(i64::from).collect()
}

fn dynamic_resource(used: &ClaimUse, driver: &str) -> v1::DynamicResource {
    v1::DynamicResource {
        claim_name: used.claim.name.clone(),
        claim_namespace: used.claim.namespace.clone(),
        claim_resources: used.devices.iter().map(|device| claim_resource(device, driver)).collect(),
    }
}

fn claim_resource(device: &UsedDevice, driver: &str) -> v1::ClaimResource {
    v1::ClaimResource {
        cdi_devices: device.cdi_ids.iter().map(|name| v1::CdiDevice { name: name.clone() }).collect(),
        driver_name: driver.to_owned(),
        pool_name: device.pool.clone(),
        device_name: device.device.clone(),
        share_id: device.share_id.clone(),
    }
}

/// Resources that can be handed out, held or not: healthy devices, the CPUs that they offer, and memory.
pub(super) fn allocatable(
    inventory: &Inventory,
    backends: &BackendRegistry,
    driver: &str,
) -> v1::AllocatableResourcesResponse {
    let (mut devices, mut cpus, mut memory) = (DeviceNodes::new(), BTreeSet::new(), MemoryBytes::new());
    for (name, pool) in &inventory.pools {
        let backend = backends.get(name);
        for device in pool.devices.iter().filter(|device| device.health == Health::Healthy) {
            let nodes = backend.map(|backend| backend.nodes(device)).unwrap_or_default();
            if !is_of_node(device) {
                devices.insert(device_key(driver, name, device.name.as_str()), ids(&nodes));
            }
            cpus.extend(backend.map(|backend| backend.cpus(device)).unwrap_or_default());
            for UsedMemory { kind, nodes, bytes } in memory_of(device, &nodes, None) {
                *memory.entry((kind, ids(&nodes))).or_default() += bytes;
            }
        }
    }
    v1::AllocatableResourcesResponse {
        devices: container_devices(devices),
        cpu_ids: cpus.into_iter().map(i64::from).collect(),
        memory: container_memory(memory),
    }
}

/// Makes one entry for each device, with all its nodes.
pub(super) fn container_devices(devices: DeviceNodes) -> Vec<v1::ContainerDevices> {
    let entry = |((resource_name, id), nodes)| v1::ContainerDevices {
        resource_name,
        device_ids: vec![id],
        topology: topology(nodes),
    };
    devices.into_iter().map(entry).collect()
}

/// Makes one entry for each kind and each set of nodes.
pub(super) fn container_memory(memory: MemoryBytes) -> Vec<v1::ContainerMemory> {
    let entry = |((memory_type, nodes), size)| v1::ContainerMemory { memory_type, size, topology: topology(nodes) };
    memory.into_iter().map(entry).collect()
}

/// Topology of some nodes; absent if no node is known: an empty one would say that there is none.
fn topology(nodes: BTreeSet<i64>) -> Option<v1::TopologyInfo> {
    let nodes: Vec<v1::NumaNode> = nodes.into_iter().map(|id| v1::NumaNode { id }).collect();
    (!nodes.is_empty()).then_some(v1::TopologyInfo { nodes })
}

/// Converts pods for readers of the first version, which knows devices alone.
pub(super) fn to_v1alpha1(pods: Vec<v1::PodResources>) -> v1alpha1::ListPodResourcesResponse {
    let pod = |pod: v1::PodResources| v1alpha1::PodResources {
        name: pod.name,
        namespace: pod.namespace,
        containers: pod.containers.into_iter().map(container_to_v1alpha1).collect(),
    };
    v1alpha1::ListPodResourcesResponse { pod_resources: pods.into_iter().map(pod).collect() }
}

fn container_to_v1alpha1(container: v1::ContainerResources) -> v1alpha1::ContainerResources {
    let mut devices: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for device in container.devices {
        devices.entry(device.resource_name).or_default().extend(device.device_ids);
    }
    let entry = |(resource_name, device_ids)| v1alpha1::ContainerDevices { resource_name, device_ids };
    v1alpha1::ContainerResources { name: container.name, devices: devices.into_iter().map(entry).collect() }
}

#[cfg(test)]
mod tests;
