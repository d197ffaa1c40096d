//! The part of one device that a claim has: CPUs, memory, or the device itself.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{Access, BackendName, QualifiedName, Quantity};
use hostler_backend::{Device, NodeAllocatable};

use crate::claims::{PreparedDevice, store::RecordDevice};

use super::PodUsageFacts;

/// One device of a claim, as a pod or container has it.
#[derive(Clone, Debug, PartialEq)]
pub struct UsedDevice {
    /// Backend of the device.
    pub backend: BackendName,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// Top-level request of the claim that it is for.
    pub request: String,
    /// Identity of the share, where the device is shared.
    pub share_id: Option<String>,
    /// Access to the device: use, or administration while others use it.
    pub access: Access,
    /// Qualified CDI ids; empty until the claim is ready.
    pub cdi_ids: Vec<String>,
    /// The NUMA nodes that it is on, or may be on; empty where that is not known.
    pub nodes: BTreeSet<u32>,
    /// CPUs that no other claim has.
    pub cpus: BTreeSet<u32>,
    /// Memory, by kind.
    pub memory: Vec<UsedMemory>,
    /// True if the device is nothing but CPUs or memory of the node.
    pub is_of_node: bool,
}

/// Memory of one kind.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct UsedMemory {
    /// `memory` or `hugepages-<size>`.
    pub kind: String,
    /// The NUMA nodes that it is on.
    pub nodes: BTreeSet<u32>,
    /// Amount in bytes.
    pub bytes: u64,
}

impl UsedDevice {
    /// Joins the record of a device with the inventory. A device that has gone keeps its CPUs; its kind of memory is
    /// not known any more.
    pub(super) fn of(recorded: &RecordDevice, prepared: Option<&PreparedDevice>, facts: &PodUsageFacts<'_>) -> Self {
        let grant = &recorded.grant;
        let found = facts.inventory.find(&grant.pool, grant.device.as_str()).map(|(_, device)| device);
        let pinning = &recorded.plan.pinning;
        let nodes = match found.zip(facts.backends.get(&recorded.backend)) {
            Some((device, backend)) => backend.nodes(device),
            None => BTreeSet::new(),
        };
        let bound = if pinning.mems.is_empty() { nodes.clone() } else { pinning.mems.clone() };
        let is_used = grant.access == Access::Use;
        let memory = found.filter(|_| is_used).map(|device| memory_of(device, &bound, Some(&grant.consumed)));
        Self {
            backend: recorded.backend.clone(),
            pool: grant.pool.clone(),
            device: grant.device.to_string(),
            request: grant.top_level_request().to_owned(),
            share_id: grant.share_id.as_ref().map(|share| share.0.clone()),
            access: grant.access,
            cdi_ids: prepared.map(|prepared| prepared.cdi_ids.clone()).unwrap_or_default(),
            nodes,
            cpus: pinning.cpus.clone(),
            memory: memory.unwrap_or_default(),
            is_of_node: found.map_or(pinning.binds(), is_of_node),
        }
    }

    /// Returns true if the device belongs to the request that a container uses, or if the container names no request.
    pub(super) fn is_for(&self, request: Option<&str>) -> bool {
        let top_level = |request: &str| request.split('/').next().map(str::to_owned);
        request.is_none_or(|request| top_level(request).as_deref() == Some(self.request.as_str()))
    }
}

/// Returns true if a device stands for CPUs or memory that the node itself accounts for.
pub fn is_of_node(device: &Device) -> bool {
    !device.node_allocatable.is_empty()
}

/// Returns the memory that a device stands for, by kind: the part `taken` of its capacities where that is given, else
/// all.
pub fn memory_of(
    device: &Device,
    nodes: &BTreeSet<u32>,
    taken: Option<&BTreeMap<QualifiedName, Quantity>>,
) -> Vec<UsedMemory> {
    let is_memory = |kind: &str| kind == "memory" || kind.starts_with("hugepages-");
    let kinds = device.node_allocatable.iter().filter(|(kind, _)| is_memory(kind));
    let amounts = kinds.filter_map(|(kind, amount)| {
        let bytes = bytes(device, amount, taken).filter(|bytes| *bytes > 0)?;
        Some(UsedMemory { kind: kind.clone(), nodes: nodes.clone(), bytes })
    });
    amounts.collect()
}

fn bytes(device: &Device, amount: &NodeAllocatable, taken: Option<&BTreeMap<QualifiedName, Quantity>>) -> Option<u64> {
    match amount {
        NodeAllocatable::PerDevice(amount) => amount.as_whole(),
        NodeAllocatable::PerCapacity { capacity, factor } => {
            let whole = || device.capacity.get(capacity).map(|capacity| capacity.value);
            let amount = taken.and_then(|taken| taken.get(capacity)).copied().or_else(whole)?;
            amount.as_whole()?.checked_mul(factor.as_whole()?)
        }
    }
}
