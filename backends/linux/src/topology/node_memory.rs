//! Properties of a node's memory: performance, side caches, tier, and whether it is a GPU's.

use std::collections::BTreeMap;

use super::{MemorySideCache, NodeAccess, NumaNode, identity, reader::TreeReader};
use crate::{IdSet, memory_tiers};

/// Performance as the best initiators see it. Class 1 counts CPUs alone; class 0 also takes network cards and GPUs as
/// initiators, which says little to a process.
pub(super) fn access(reader: &mut TreeReader<'_>, folder: &str, names: &[String]) -> Option<NodeAccess> {
    let classes = [1, 0].into_iter();
    let mut classes = classes.filter(|class| names.iter().any(|name| *name == format!("access{class}")));
    classes.find_map(|class| access_of_class(reader, folder, class))
}

fn access_of_class(reader: &mut TreeReader<'_>, folder: &str, class: u32) -> Option<NodeAccess> {
    let folder = path!("{folder}/access{class}/initiators");
    // Kernels print 0 for what the firmware does not say.
    let mut value = |name| reader.number::<u64>(&path!("{folder}/{name}")).filter(|value| *value > 0);
    let access = NodeAccess {
        class,
        read_bandwidth: value("read_bandwidth"),
        write_bandwidth: value("write_bandwidth"),
        read_latency: value("read_latency"),
        write_latency: value("write_latency"),
        initiators: reader.numbered(&folder, "node").into_iter().collect(),
    };
    (access != NodeAccess { class, ..NodeAccess::default() }).then_some(access)
}

/// The caches in front of a node's memory, by index, which is their level.
pub(super) fn side_caches(reader: &mut TreeReader<'_>, folder: &str) -> Vec<MemorySideCache> {
    let folder = path!("{folder}/memory_side_cache");
    let levels = reader.numbered(&folder, "index");
    let cache = |level| {
        let size_bytes = reader.number(&path!("{folder}/index{level}/size"))?;
        let line_bytes = reader.number(&path!("{folder}/index{level}/line_size")).filter(|bytes| *bytes > 0);
        Some(MemorySideCache { level, size_bytes, line_bytes })
    };
    levels.into_iter().filter_map(cache).collect()
}

/// Sets the tier of each node that is in one. One that several tiers name stays in the first of them.
pub(super) fn tiers(reader: &mut TreeReader<'_>, nodes: &mut BTreeMap<u32, NumaNode>) {
    const TIERS: &str = "sys/devices/virtual/memory_tiering";
    let _memory_stays = memory_tiers::reading();
    let mut without: IdSet = nodes.keys().copied().collect();
    for tier in reader.numbered(TIERS, "memory_tier") {
        let members = reader.list(&format!("{TIERS}/memory_tier{tier}/nodelist")).unwrap_or_default();
        for id in members.intersection(&without).iter() {
            nodes.entry(id).and_modify(|node| node.tier = Some(tier));
        }
        without = without.difference(&members);
    }
}

/// The driver's answer about the node that a GPU's memory is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum GpuNode {
    Known(u32),
    /// The GPU's memory is no node, or not at this time.
    None,
    Unknown,
}

/// Marks the nodes whose memory is on a GPU: they look like CPU-less system memory. Where the driver does not say
/// which node that is, any node without CPUs can be, and none of these is system memory for sure.
pub(super) fn gpus(reader: &mut TreeReader<'_>, nodes: &mut BTreeMap<u32, NumaNode>) {
    const GPUS: &str = "proc/driver/nvidia/gpus";
    let mut unknown = None;
    for address in reader.names(GPUS) {
        let path = format!("{GPUS}/{address}/numa_status");
        match gpu_node(reader, &path) {
            GpuNode::Known(id) if nodes.get(&id).is_none_or(|node| node.cpus.is_empty()) => {
                nodes.entry(id).and_modify(|node| node.gpu = Some(address));
            }
            GpuNode::None => {}
            GpuNode::Known(_) | GpuNode::Unknown => unknown = unknown.or(Some((path, address))),
        }
    }
    let Some((path, address)) = unknown else { return };
    let dax = dax_nodes(reader);
    let doubtful = |id: u32, node: &NumaNode| {
        node.gpu.is_none() && node.cpus.is_empty() && node.memory_bytes != Some(0) && !dax.contains(id)
    };
    let mut ids = IdSet::new();
    for (id, node) in nodes.iter_mut().filter(|(id, node)| doubtful(**id, node)) {
        node.gpu = Some(address.clone());
        ids.insert(*id);
    }
    if !ids.is_empty() {
        let reason = format!("does not say which node is the GPU's memory; nodes {ids} may be, and are not offered");
        reader.warn(&path, reason);
    }
}

fn gpu_node(reader: &TreeReader<'_>, path: &str) -> GpuNode {
    match reader.tree().text(path) {
        Some(status) => {
            let id = status.lines().find_map(|line| line.trim().strip_prefix("Node:")?.trim().parse::<i64>().ok());
            id.map_or(GpuNode::Unknown, |id| u32::try_from(id).map_or(GpuNode::None, GpuNode::Known))
        }
        // No x86 reaches a GPU's memory as its own, and the driver has no such file there.
        None if identity::read(reader).arch.is_some_and(|arch| arch.starts_with("x86")) => GpuNode::None,
        None => GpuNode::Unknown,
    }
}

/// The nodes of memory that is known to be something else: CXL and persistent memory.
fn dax_nodes(reader: &mut TreeReader<'_>) -> IdSet {
    const DAX: &str = "sys/bus/dax/devices";
    let names = reader.names(DAX);
    names
        .iter()
        .filter_map(|name| reader.number::<i64>(&format!("{DAX}/{name}/target_node")))
        .filter_map(|id| u32::try_from(id).ok())
        .collect()
}
