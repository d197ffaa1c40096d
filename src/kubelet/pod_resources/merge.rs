//! Merges the kubelet's answers with hostler's, without doubles. Pure.
//!
//! Corrections of the kubelet's answer: an entry for each device *and* NUMA node becomes one for each device; the CDI
//! ids of a claim's second device, which begin with those of its first, lose them; everything is sorted; pods that have
//! ended, and that kubelets before 1.34 still list, are left out if hostler's own watch knows of their end. One defect
//! cannot be corrected: the kubelet itself leaves out a device whose topology has no node, and no other source has it.

use std::collections::{BTreeMap, BTreeSet};

use hostler_proto::pod_resources_v1::{
    AllocatableResourcesResponse, CdiDevice, ClaimResource, ContainerDevices, ContainerMemory, ContainerResources,
    DynamicResource, ListPodResourcesResponse, PodResources, TopologyInfo,
};

use super::answers::{DeviceNodes, MemoryBytes, container_devices, container_memory};
use crate::{
    pods::PodName,
    usage::pods::{ClaimUse, NodePodUsage, PodEvidence},
};

/// Corrects a kubelet's pods.
pub(super) fn mended(answer: ListPodResourcesResponse) -> Vec<PodResources> {
    let mut pods = answer.pod_resources;
    for pod in &mut pods {
        pod.cpu_ids = sorted(std::mem::take(&mut pod.cpu_ids));
        pod.memory = container_memory(memory(std::mem::take(&mut pod.memory)));
        pod.containers.iter_mut().for_each(mend_container);
    }
    pods.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    pods
}

/// Corrects a kubelet's resources that can be handed out.
pub(super) fn mended_allocatable(answer: AllocatableResourcesResponse) -> AllocatableResourcesResponse {
    AllocatableResourcesResponse {
        devices: container_devices(devices(answer.devices)),
        cpu_ids: sorted(answer.cpu_ids),
        memory: container_memory(memory(answer.memory)),
    }
}

fn mend_container(container: &mut ContainerResources) {
    container.devices = container_devices(devices(std::mem::take(&mut container.devices)));
    container.cpu_ids = sorted(std::mem::take(&mut container.cpu_ids));
    container.memory = container_memory(memory(std::mem::take(&mut container.memory)));
    for claim in &mut container.dynamic_resources {
        mend_claim(&mut claim.claim_resources);
    }
    container.dynamic_resources.sort_by(|one, other| claim_key(one).cmp(&claim_key(other)));
}

/// Removes CDI ids that pile up. Each entry for a driver's devices in one claim begins with all ids of the one before
/// it; only if that is so of every entry of a driver, it is that defect.
fn mend_claim(resources: &mut [ClaimResource]) {
    let drivers: BTreeSet<String> = resources.iter().map(|resource| resource.driver_name.clone()).collect();
    for driver in drivers {
        let mut of_driver: Vec<&mut ClaimResource> =
            resources.iter_mut().filter(|resource| resource.driver_name == driver).collect();
        let lengths: Vec<usize> = of_driver.iter().map(|resource| resource.cdi_devices.len()).collect();
        let piled = of_driver.windows(2).all(|pair| {
            pair[1].cdi_devices.len() > pair[0].cdi_devices.len()
                && pair[1].cdi_devices.starts_with(&pair[0].cdi_devices)
        });
        if piled {
            for (resource, before) in of_driver.iter_mut().skip(1).zip(lengths) {
                resource.cdi_devices.drain(..before);
            }
        }
    }
    resources.sort_by(|one, other| resource_key(one).cmp(&resource_key(other)));
}

fn claim_key(claim: &DynamicResource) -> (&str, &str) {
    (&claim.claim_namespace, &claim.claim_name)
}

fn resource_key(resource: &ClaimResource) -> (&str, &str, &str, Option<&str>) {
    (&resource.driver_name, &resource.pool_name, &resource.device_name, resource.share_id.as_deref())
}

fn sorted(numbers: Vec<i64>) -> Vec<i64> {
    BTreeSet::from_iter(numbers).into_iter().collect()
}

/// Nodes by resource and id. Older kubelets put several ids in one entry.
fn devices(entries: Vec<ContainerDevices>) -> DeviceNodes {
    let mut all = DeviceNodes::new();
    for ContainerDevices { resource_name, device_ids, topology } in entries {
        let nodes = nodes(topology.as_ref());
        for id in device_ids {
            all.entry((resource_name.clone(), id)).or_default().extend(&nodes);
        }
    }
    all
}

fn memory(entries: Vec<ContainerMemory>) -> MemoryBytes {
    let mut all = MemoryBytes::new();
    for ContainerMemory { memory_type, size, topology } in entries {
        let size_of = all.entry((memory_type, nodes(topology.as_ref()))).or_default();
        *size_of = size_of.saturating_add(size);
    }
    all
}

fn nodes(topology: Option<&TopologyInfo>) -> BTreeSet<i64> {
    topology.into_iter().flat_map(|topology| topology.nodes.iter().map(|node| node.id)).collect()
}

/// hostler's claims with the containers that the kubelet names for them, where no other source has named one.
pub(super) fn placed(usage: &NodePodUsage, kubelet: &[PodResources]) -> NodePodUsage {
    let mut placed = usage.clone();
    for pod in kubelet {
        let name = PodName { namespace: pod.namespace.clone(), name: pod.name.clone() };
        for container in &pod.containers {
            for claim in &container.dynamic_resources {
                place(&mut placed, &name, &container.name, claim);
            }
        }
    }
    // A claim of several containers was given to each of them.
    let has_place = |claims: &mut Vec<ClaimUse>, taken: &BTreeSet<(String, String)>| {
        claims.retain(|used| !taken.contains(&(used.claim.namespace.clone(), used.claim.name.clone())));
    };
    let taken = claims_in_containers(&placed);
    placed.pods.iter_mut().for_each(|pod| has_place(&mut pod.claims, &taken));
    has_place(&mut placed.unused, &taken);
    placed
}

fn claims_in_containers(usage: &NodePodUsage) -> BTreeSet<(String, String)> {
    let containers = usage.pods.iter().flat_map(|pod| &pod.containers);
    let claims = containers.flat_map(|container| &container.claims);
    claims.map(|used| (used.claim.namespace.clone(), used.claim.name.clone())).collect()
}

/// Gives a container of the kubelet's answer the claim, if no container of the claim is known.
fn place(usage: &mut NodePodUsage, pod: &PodName, container: &str, claim: &DynamicResource) {
    if usage.ended.contains(pod) {
        return;
    }
    let is_it = |used: &&ClaimUse| (&*used.claim.namespace, &*used.claim.name) == claim_key(claim);
    let own = usage.pods.iter().filter(|known| known.name == *pod).flat_map(|known| &known.claims);
    let Some(found) = own.chain(&usage.unused).find(is_it).cloned() else { return };
    usage.pod(pod, PodEvidence::Kubelet).container(container).add(found);
}

/// Every pod that the kubelet or hostler knows. For hostler's devices hostler's answer counts, for all others the
/// kubelet's.
pub(super) fn pods(
    ours: Vec<PodResources>,
    kubelet: &[PodResources],
    ended: &BTreeSet<PodName>,
    driver: &str,
) -> Vec<PodResources> {
    let key = |pod: &PodResources| PodName { namespace: pod.namespace.clone(), name: pod.name.clone() };
    let mut all: BTreeMap<PodName, PodResources> =
        kubelet.iter().map(|pod| (key(pod), pod.clone())).filter(|(name, _)| !ended.contains(name)).collect();
    for pod in ours {
        match all.get_mut(&key(&pod)) {
            Some(known) => merge_pod(known, pod, driver),
            None => drop(all.insert(key(&pod), pod)),
        }
    }
    all.into_values().collect()
}

fn merge_pod(kubelet: &mut PodResources, ours: PodResources, driver: &str) {
    for container in ours.containers {
        match kubelet.containers.iter_mut().find(|known| known.name == container.name) {
            Some(known) => merge_container(known, container, driver),
            None => kubelet.containers.push(container),
        }
    }
}

fn merge_container(kubelet: &mut ContainerResources, ours: ContainerResources, driver: &str) {
    let both = [std::mem::take(&mut kubelet.devices), ours.devices].concat();
    kubelet.devices = container_devices(devices(both));
    kubelet.cpu_ids = sorted([std::mem::take(&mut kubelet.cpu_ids), ours.cpu_ids].concat());
    // Memory of claims is not the kubelet's to give, and the kubelet's memory is not hostler's: these are different
    // bytes.
    kubelet.memory = container_memory(memory([std::mem::take(&mut kubelet.memory), ours.memory].concat()));
    for claim in ours.dynamic_resources {
        match kubelet.dynamic_resources.iter_mut().find(|known| claim_key(known) == claim_key(&claim)) {
            Some(known) => merge_claim(known, claim, driver),
            None => kubelet.dynamic_resources.push(claim),
        }
    }
    kubelet.dynamic_resources.sort_by(|one, other| claim_key(one).cmp(&claim_key(other)));
}

/// Merges a claim. Kubelets before 1.31 name no driver: their entries for hostler's devices are known by their CDI ids.
fn merge_claim(kubelet: &mut DynamicResource, ours: DynamicResource, driver: &str) {
    let own: BTreeSet<String> = ours
        .claim_resources
        .iter()
        .flat_map(|resource| resource.cdi_devices.iter().map(|device| device.name.clone()))
        .collect();
    kubelet.claim_resources.retain_mut(|resource| {
        if resource.driver_name.is_empty() {
            resource.cdi_devices.retain(|device: &CdiDevice| !own.contains(&device.name));
            return !resource.cdi_devices.is_empty();
        }
        resource.driver_name != driver
    });
    kubelet.claim_resources.extend(ours.claim_resources);
}

/// Resources that the kubelet and hostler can hand out. Both see the same memory: the larger amount of each kind and
/// node is all there is.
pub(super) fn allocatable(
    ours: AllocatableResourcesResponse,
    kubelet: &AllocatableResourcesResponse,
) -> AllocatableResourcesResponse {
    let kubelet = kubelet.clone();
    let mut all = memory(kubelet.memory);
    for (key, bytes) in memory(ours.memory) {
        let known = all.entry(key).or_default();
        *known = bytes.max(*known);
    }
    AllocatableResourcesResponse {
        devices: container_devices(devices([kubelet.devices, ours.devices].concat())),
        cpu_ids: sorted([kubelet.cpu_ids, ours.cpu_ids].concat()),
        memory: container_memory(all),
    }
}

#[cfg(test)]
mod tests;
