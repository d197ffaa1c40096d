//! The inventory as one line per device.

use hostler_backend::{AttributeValue, Device, Sharing};

use super::scan::{ScannedMachine, ScannedPool};
use crate::{
    cli::table::TextTable,
    units::{bytes, count},
};

const NUMA_NODE: &str = "resource.kubernetes.io/numaNode";

/// The columns that fit on every screen.
pub(super) fn devices(machine: &ScannedMachine) -> String {
    let mut table = TextTable::new(&["BACKEND", "DEVICE", "NUMA", "CAPACITY", "SHARING", "HEALTH"]);
    for (pool, device) in machine.devices() {
        table.row(columns(pool.backend, device));
    }
    format!("{}\n\n{table}", summary(machine))
}

/// The same with pools instead of backends, and all attributes.
pub(super) fn devices_with_attributes(machine: &ScannedMachine) -> String {
    let mut table = TextTable::new(&["POOL", "DEVICE", "NUMA", "CAPACITY", "SHARING", "HEALTH", "ATTRIBUTES"]);
    for (pool, device) in machine.devices() {
        table.row(columns(&pool.name, device).into_iter().chain([attributes(device)]));
    }
    format!("{}\n\n{table}", summary(machine))
}

fn columns(group: &str, device: &Device) -> [String; 6] {
    [
        group.to_owned(),
        device.name.to_string(),
        numa_node(device).map_or_else(|| "-".to_owned(), |node| node.to_string()),
        capacity(device),
        sharing(device).to_owned(),
        health(device),
    ]
}

/// The machine in one line.
pub(super) fn summary(machine: &ScannedMachine) -> String {
    let topology = &machine.topology;
    let mut parts = vec![
        count(topology.packages.len(), "package"),
        count(topology.cores.len(), "core"),
        count(topology.cpus.len(), "thread"),
        count(topology.nodes.len(), "NUMA node"),
    ];
    // The memory of GPUs is none of the system's.
    let own = topology.nodes.values().filter(|node| node.gpu.is_none());
    let memory: Option<u64> = own.map(|node| node.memory_bytes).sum();
    parts.extend(memory.map(bytes));
    format!("{}: {}", machine.node, parts.join(", "))
}

/// The NUMA node of a device, where it has one.
pub(super) fn numa_node(device: &Device) -> Option<i64> {
    let value = device.attributes.iter().find(|(name, _)| name.as_str() == NUMA_NODE).map(|(_, value)| value);
    if let Some(AttributeValue::Int(node)) = value { Some(*node) } else { None }
}

/// `cpus=32 memory=61.5 GiB`.
pub(super) fn capacity(device: &Device) -> String {
    let parts = device.capacity.iter().map(|(name, capacity)| {
        let amount = match capacity.value.as_whole() {
            // The only capacities this large are bytes; nothing counts a million of anything else.
            Some(whole) if whole >= 1 << 20 => bytes(whole),
            _ => capacity.value.to_string(),
        };
        format!("{name}={amount}")
    });
    parts.collect::<Vec<_>>().join(" ")
}

fn sharing(device: &Device) -> &'static str {
    match device.sharing {
        Sharing::Exclusive => "exclusive",
        Sharing::Shared => "shared",
    }
}

/// `Healthy`, or the state and its reason.
pub(super) fn health(device: &Device) -> String {
    let state = device.health.as_str();
    device.health.reason().map_or_else(|| state.to_owned(), |reason| format!("{state}: {reason}"))
}

fn attributes(device: &Device) -> String {
    let parts = device.attributes.iter().map(|(name, value)| format!("{name}={value}"));
    parts.collect::<Vec<_>>().join(" ")
}

/// `backend/device`, as `hostler claim create --device` takes it.
pub(super) fn device_path(pool: &ScannedPool, device: &Device) -> String {
    format!("{}/{}", pool.backend, device.name)
}
