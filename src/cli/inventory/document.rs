//! The inventory for programs. Its shape is a promise: docs/inventory-json.md describes every field.

use std::collections::BTreeMap;

use hostler_backend::BackendWarning;
use hostler_linux::{
    IdSet,
    topology::{CpuCache, HugePages, MemorySideCache, NodeAccess, NumaNode, Topology},
};
use serde::Serialize;

use super::scan::ScannedMachine;
use crate::inventory::view::DeviceView;

/// Raised when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// The whole answer.
#[derive(Debug, Serialize)]
pub(super) struct InventoryDocument<'a> {
    version: u32,
    node: &'a str,
    topology: TopologyView<'a>,
    devices: Vec<DeviceView<'a>>,
    warnings: &'a [BackendWarning],
}

#[derive(Debug, Serialize)]
struct TopologyView<'a> {
    arch: Option<&'a str>,
    cpu_model: Option<&'a str>,
    packages: usize,
    cores: usize,
    threads: usize,
    smt_active: Option<bool>,
    possible_cpus: &'a IdSet,
    present_cpus: &'a IdSet,
    online_cpus: &'a IdSet,
    isolated_cpus: &'a IdSet,
    nohz_full_cpus: &'a IdSet,
    allowed_cpus: &'a IdSet,
    allowed_numa_nodes: &'a IdSet,
    huge_page_sizes: &'a [u64],
    caches: Vec<CacheView<'a>>,
    numa_nodes: Vec<NodeView<'a>>,
}

#[derive(Debug, Serialize)]
struct CacheView<'a> {
    level: u32,
    #[serde(rename = "type")]
    cache_type: &'a str,
    size_bytes: Option<u64>,
    cpus: &'a IdSet,
}

#[derive(Debug, Serialize)]
struct NodeView<'a> {
    id: u32,
    cpus: &'a IdSet,
    memory_bytes: Option<u64>,
    free_bytes: Option<u64>,
    distances: &'a BTreeMap<u32, u32>,
    huge_pages: &'a BTreeMap<u64, HugePages>,
    tier: Option<u32>,
    access: Option<&'a NodeAccess>,
    memory_side_caches: &'a [MemorySideCache],
    gpu: Option<&'a str>,
    generic_initiator: bool,
}

impl<'a> InventoryDocument<'a> {
    /// The machine in the documented shape.
    pub(super) fn of(machine: &'a ScannedMachine) -> Self {
        let devices = machine.devices().map(|(pool, device)| {
            let view = DeviceView::of(pool.backend, &pool.name, device);
            view.with_shares(machine.shares.get(pool.backend, device).cloned())
        });
        Self {
            version: VERSION,
            node: &machine.node,
            topology: TopologyView::of(&machine.topology),
            devices: devices.collect(),
            warnings: &machine.warnings,
        }
    }
}

impl<'a> TopologyView<'a> {
    fn of(topology: &'a Topology) -> Self {
        Self {
            arch: topology.arch.as_deref(),
            cpu_model: topology.cpu_model.as_deref(),
            packages: topology.packages.len(),
            cores: topology.cores.len(),
            threads: topology.cpus.len(),
            smt_active: topology.smt_active,
            possible_cpus: &topology.possible,
            present_cpus: &topology.present,
            online_cpus: &topology.online,
            isolated_cpus: &topology.isolated,
            nohz_full_cpus: &topology.nohz_full,
            allowed_cpus: &topology.allowed_cpus,
            allowed_numa_nodes: &topology.allowed_nodes,
            huge_page_sizes: &topology.huge_page_sizes,
            caches: topology.caches.iter().map(CacheView::of).collect(),
            numa_nodes: topology.nodes.iter().map(|(id, node)| NodeView::of(*id, node)).collect(),
        }
    }
}

impl<'a> CacheView<'a> {
    fn of(cache: &'a CpuCache) -> Self {
        Self { level: cache.level, cache_type: &cache.cache_type, size_bytes: cache.size_bytes, cpus: &cache.cpus }
    }
}

impl<'a> NodeView<'a> {
    fn of(id: u32, node: &'a NumaNode) -> Self {
        Self {
            id,
            cpus: &node.cpus,
            memory_bytes: node.memory_bytes,
            free_bytes: node.free_bytes,
            distances: &node.distances,
            huge_pages: &node.huge_pages,
            tier: node.tier,
            access: node.access.as_ref(),
            memory_side_caches: &node.memory_side_caches,
            gpu: node.gpu.as_deref(),
            generic_initiator: node.generic_initiator,
        }
    }
}
