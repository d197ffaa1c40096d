//! What a node's memory is like: performance, side caches, tier, and whether it is a GPU's.

use std::collections::BTreeMap;

use super::{MemorySideCache, NodeAccess, NumaNode, reader::TreeReader};

/// Performance as the best initiators see it. Class 1 counts CPUs alone; class 0 also takes network cards and GPUs as
/// initiators, which says little to a process.
pub(super) fn access(reader: &mut TreeReader<'_>, folder: &str, names: &[String]) -> Option<NodeAccess> {
    let classes = [1, 0].into_iter();
    let mut classes = classes.filter(|class| names.iter().any(|name| *name == format!("access{class}")));
    classes.find_map(|class| access_of_class(reader, folder, class))
}

fn access_of_class(reader: &mut TreeReader<'_>, folder: &str, class: u32) -> Option<NodeAccess> {
    let folder = format!("{folder}/access{class}/initiators");
    // Kernels print 0 for what the firmware does not say.
    let mut value = |name| reader.number::<u64>(&format!("{folder}/{name}")).filter(|value| *value > 0);
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
    let folder = format!("{folder}/memory_side_cache");
    let levels = reader.numbered(&folder, "index");
    let cache = |level| {
        let size_bytes = reader.number(&format!("{folder}/index{level}/size"))?;
        let line_bytes = reader.number(&format!("{folder}/index{level}/line_size")).filter(|bytes| *bytes > 0);
        Some(MemorySideCache { level, size_bytes, line_bytes })
    };
    levels.into_iter().filter_map(cache).collect()
}

/// Sets the tier of each node that is in one.
pub(super) fn tiers(reader: &mut TreeReader<'_>, nodes: &mut BTreeMap<u32, NumaNode>) {
    const TIERS: &str = "sys/devices/virtual/memory_tiering";
    for tier in reader.numbered(TIERS, "memory_tier") {
        let members = reader.list(&format!("{TIERS}/memory_tier{tier}/nodelist")).unwrap_or_default();
        for (_, node) in nodes.iter_mut().filter(|(id, _)| members.contains(**id)) {
            node.tier = Some(tier);
        }
    }
}

/// Marks the nodes whose memory is on a GPU: they look like CPU-less system memory.
pub(super) fn gpus(reader: &mut TreeReader<'_>, nodes: &mut BTreeMap<u32, NumaNode>) {
    const GPUS: &str = "proc/driver/nvidia/gpus";
    for address in reader.names(GPUS) {
        let status = reader.tree().text(format!("{GPUS}/{address}/numa_status")).unwrap_or_default();
        let id = status.lines().find_map(|line| line.trim().strip_prefix("Node:")?.trim().parse().ok());
        if let Some(node) = id.and_then(|id: u32| nodes.get_mut(&id)) {
            node.gpu = Some(address);
        }
    }
}
