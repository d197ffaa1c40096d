//! The resources of each NUMA node, and what of them is free: from the machine, the inventory and the claims to the
//! object that a topology-aware scheduler reads. Pure.
//!
//! A zone is a NUMA node. Its resources are those that the node itself accounts for (`cpu`, `memory`, `hugepages-2Mi`),
//! as far as devices stand for them, and whole devices under the name by which a pod asks for one of their class. What
//! belongs to no single NUMA node is in no zone.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{Access, BackendName, DeviceName, Grant, Quantity};
use hostler_backend::{AttributeValue, Device, Health, NodeAllocatable, Sharing};
use hostler_linux::topology::NumaNode;
use serde::Serialize;

use crate::{
    claims::ClaimTable,
    config::TopologyExportConfig,
    inventory::{Inventory, Pool},
};

const NUMA_NODE: &str = "resource.kubernetes.io/numaNode";
/// By this name and that of a class a pod asks for a device of the class without a claim of its own.
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io";

/// The fields of a NodeResourceTopology that are written.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct TopologyContent {
    /// One for each NUMA node.
    pub zones: Vec<TopologyZone>,
    /// Configured settings of the kubelet; nothing is guessed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<TopologyAttribute>,
}

/// A NUMA node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct TopologyZone {
    /// `node-0`.
    pub name: String,
    /// `Node`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Distances to all nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<TopologyCost>,
    /// Resources of the zone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<TopologyResource>,
}

/// How far a node is from a zone.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct TopologyCost {
    /// Name of the other zone.
    pub name: String,
    /// As the firmware says it; 10 is local.
    pub value: u32,
}

/// Amounts of a resource in a zone.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct TopologyResource {
    /// `cpu`, `memory`, `hugepages-2Mi`, or a class of devices.
    pub name: String,
    /// All that there is.
    pub capacity: String,
    /// The amount that can be handed out: without what is reserved, drained or broken.
    pub allocatable: String,
    /// The amount of that which no claim holds.
    pub available: String,
}

/// A fact about the node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct TopologyAttribute {
    /// `topologyManagerPolicy`.
    pub name: &'static str,
    /// `single-numa-node`.
    pub value: &'static str,
}

/// Makes the content of this node's object.
pub fn topology_content(
    nodes: &BTreeMap<u32, NumaNode>,
    inventory: &Inventory,
    claims: &ClaimTable,
    driver: &str,
    settings: &TopologyExportConfig,
) -> TopologyContent {
    let amounts = amounts(inventory, claims, driver);
    let none = BTreeMap::new();
    // Memory of a GPU is not system memory, though it has a node of its own.
    let nodes: BTreeMap<u32, &NumaNode> =
        nodes.iter().filter(|(_, node)| node.gpu.is_none()).map(|(number, node)| (*number, node)).collect();
    let numbers: BTreeSet<u32> = nodes.keys().copied().collect();
    let zone = |(number, node): (u32, &NumaNode)| TopologyZone {
        name: zone_name(number),
        kind: "Node",
        costs: costs(node, &numbers),
        resources: resources(node, amounts.get(&number).unwrap_or(&none)),
    };
    TopologyContent { zones: nodes.into_iter().map(zone).collect(), attributes: attributes(settings) }
}

fn zone_name(node: u32) -> String {
    format!("node-{node}")
}

fn attributes(settings: &TopologyExportConfig) -> Vec<TopologyAttribute> {
    let policy = settings.topology_manager_policy.map(|policy| ("topologyManagerPolicy", policy.as_str()));
    let scope = settings.topology_manager_scope.map(|scope| ("topologyManagerScope", scope.as_str()));
    policy.into_iter().chain(scope).map(|(name, value)| TopologyAttribute { name, value }).collect()
}

fn costs(node: &NumaNode, zones: &BTreeSet<u32>) -> Vec<TopologyCost> {
    let known = node.distances.iter().filter(|(other, _)| zones.contains(other));
    known.map(|(other, value)| TopologyCost { name: zone_name(*other), value: *value }).collect()
}

/// Amounts of a resource in a zone.
#[derive(Clone, Copy, Debug, Default)]
struct ZoneAmount {
    /// Of all devices.
    devices: Quantity,
    allocatable: Quantity,
    available: Quantity,
}

type ZoneAmounts = BTreeMap<String, ZoneAmount>;

fn resources(node: &NumaNode, amounts: &ZoneAmounts) -> Vec<TopologyResource> {
    let resource = |(name, amount): (&String, &ZoneAmount)| TopologyResource {
        name: name.clone(),
        // Devices may stand for less than there is: CPUs that are reserved, memory that the kernel keeps.
        capacity: machine_has(node, name).unwrap_or_default().max(amount.devices).to_string(),
        allocatable: amount.allocatable.to_string(),
        available: amount.available.to_string(),
    };
    amounts.iter().map(resource).collect()
}

/// The amount of a resource that a node accounts for itself.
fn machine_has(node: &NumaNode, resource: &str) -> Option<Quantity> {
    let size = |bytes: u64| format!("hugepages-{}", Quantity::whole(bytes).human());
    match resource {
        "cpu" => Some(Quantity::whole(node.cpus.len() as u64)),
        "memory" => node.memory_bytes.map(Quantity::whole),
        _ => {
            let (bytes, pool) = node.huge_pages.iter().find(|(bytes, _)| size(**bytes) == resource)?;
            Some(Quantity::whole(bytes.saturating_mul(pool.total)))
        }
    }
}

fn amounts(inventory: &Inventory, claims: &ClaimTable, driver: &str) -> BTreeMap<u32, ZoneAmounts> {
    let held = held(claims);
    let mut zones: BTreeMap<u32, ZoneAmounts> = BTreeMap::new();
    for (backend, pool) in &inventory.pools {
        for device in &pool.devices {
            let Some(node) = only_node(device) else { continue };
            let holders = held.get(&(backend, &device.name)).map(Vec::as_slice).unwrap_or_default();
            let is_usable = is_usable(inventory, backend, pool, device);
            for (resource, all, taken) in shares(backend, device, holders, driver) {
                let amount = zones.entry(node).or_default().entry(resource).or_default();
                amount.devices = amount.devices.plus(all);
                if is_usable {
                    amount.allocatable = amount.allocatable.plus(all);
                    amount.available = amount.available.plus(all.minus(taken));
                }
            }
        }
    }
    zones
}

/// True if a new claim can get the device.
fn is_usable(inventory: &Inventory, backend: &BackendName, pool: &Pool, device: &Device) -> bool {
    device.health == Health::Healthy && pool.stale.is_none() && inventory.drain(backend, &device.name).is_none()
}

/// Grants that take something, by backend and device.
fn held(claims: &ClaimTable) -> BTreeMap<(&BackendName, &DeviceName), Vec<&Grant>> {
    let mut held: BTreeMap<(&BackendName, &DeviceName), Vec<&Grant>> = BTreeMap::new();
    let devices = claims.claims.values().flat_map(|view| view.devices());
    for device in devices.filter(|device| device.grant.access == Access::Use) {
        held.entry((&device.backend, device.local_name())).or_default().push(&device.grant);
    }
    held
}

fn only_node(device: &Device) -> Option<u32> {
    match device.attributes.get(NUMA_NODE)? {
        AttributeValue::Int(node) => u32::try_from(*node).ok(),
        AttributeValue::Ints(nodes) => match **nodes {
            [node] => u32::try_from(node).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Shares of a device in resources: name, whole amount, and the amount that is held.
fn shares(
    backend: &BackendName,
    device: &Device,
    holders: &[&Grant],
    driver: &str,
) -> Vec<(String, Quantity, Quantity)> {
    if device.node_allocatable.is_empty() {
        // Parts of a shared device are counted in its own measures, which no scheduler of whole devices knows.
        let is_whole = device.sharing == Sharing::Exclusive;
        let held = Quantity::whole(u64::from(!holders.is_empty()));
        let name = format!("{DEVICE_CLASS}/{backend}.{driver}");
        return is_whole.then(|| (name, Quantity::whole(1), held)).into_iter().collect();
    }
    let share = |(resource, measure): (&String, &NodeAllocatable)| {
        let all = stands_for(measure, device, None);
        let taken =
            holders.iter().fold(Quantity::default(), |sum, grant| sum.plus(stands_for(measure, device, Some(grant))));
        (resource.clone(), all, taken)
    };
    device.node_allocatable.iter().map(share).collect()
}

/// How much of a resource a device stands for, or the part of it that a grant takes; what that does not mention is
/// whole.
fn stands_for(measure: &NodeAllocatable, device: &Device, grant: Option<&Grant>) -> Quantity {
    match measure {
        NodeAllocatable::PerDevice(amount) => *amount,
        NodeAllocatable::PerCapacity { capacity, factor } => {
            let all = device.capacity.get(capacity).map(|capacity| capacity.value).unwrap_or_default();
            grant.and_then(|grant| grant.consumed.get(capacity).copied()).unwrap_or(all).times(*factor)
        }
    }
}

#[cfg(test)]
mod tests;
