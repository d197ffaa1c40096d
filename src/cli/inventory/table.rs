//! The inventory as one line per device.

use hostler_backend::{Device, Sharing};

use super::{
    scan::{ScannedMachine, ScannedPool},
    shares::{capacity, holders},
};
use crate::{
    cli::table::TextTable,
    units::{bytes, count},
    usage::holders::numa_node,
};

/// The columns that fit on every screen.
pub(super) fn devices(machine: &ScannedMachine) -> String {
    let mut table = TextTable::new(&["BACKEND", "DEVICE", "NUMA", "CAPACITY", "SHARING", "HEALTH"]);
    for (pool, device) in machine.devices() {
        table.row(columns(machine, pool, pool.backend, device));
    }
    format!("{}\n\n{table}", summary(machine))
}

/// The same with pools instead of backends, and all attributes.
pub(super) fn devices_with_attributes(machine: &ScannedMachine) -> String {
    let mut headings = vec!["POOL", "DEVICE", "NUMA", "CAPACITY", "SHARING", "HEALTH", "ATTRIBUTES"];
    let is_known = machine.devices().any(|(pool, device)| machine.shares.get(pool.backend, device).is_some());
    if is_known {
        headings.insert(6, "HOLDERS");
    }
    let mut table = TextTable::new(&headings);
    for (pool, device) in machine.devices() {
        let held = is_known.then(|| holders(machine.shares.get(pool.backend, device)));
        table.row(columns(machine, pool, &pool.name, device).into_iter().chain(held).chain([attributes(device)]));
    }
    format!("{}\n\n{table}", summary(machine))
}

fn columns(machine: &ScannedMachine, pool: &ScannedPool, group: &str, device: &Device) -> [String; 6] {
    [
        group.to_owned(),
        device.name.to_string(),
        numa_node(device).map_or_else(|| "-".to_owned(), |node| node.to_string()),
        capacity(device, machine.shares.get(pool.backend, device)),
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
