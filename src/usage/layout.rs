//! Layout of the machine: its packages, NUMA nodes, caches and cores, as drawings need them.
//!
//! The layout is a part of a [`Topology`] in a shape of its own, because the admin socket serves it.

use std::collections::BTreeMap;

use hostler_linux::{
    IdSet,
    topology::{CoreType, CpuCache, CpuGroup, NumaNode, Topology},
};
use serde::{Deserialize, Serialize};

/// The parts of a machine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct MachineLayout {
    /// True if this is the machine that answers, and not a captured one: only then does it have a load.
    pub is_here: bool,
    /// Drawers of books (s390).
    pub drawers: Vec<LayoutGroup>,
    /// Books of packages (s390).
    pub books: Vec<LayoutGroup>,
    /// Packages (sockets).
    pub packages: Vec<LayoutGroup>,
    /// Dies, where the kernel tells them apart.
    pub dies: Vec<LayoutGroup>,
    /// Clusters of cores, where the kernel tells them apart.
    pub clusters: Vec<LayoutGroup>,
    /// Caches of level 3 and up, and smaller ones that several cores share.
    pub caches: Vec<LayoutCache>,
    /// Physical cores.
    pub cores: Vec<LayoutCore>,
    /// NUMA nodes, by number.
    pub nodes: BTreeMap<u32, LayoutNode>,
    /// CPUs that are present and offline.
    pub offline: IdSet,
    /// CPUs that the scheduler leaves alone.
    pub isolated: IdSet,
    /// Online CPUs that the host's cpuset keeps from the daemon.
    pub foreign: IdSet,
}

/// A package, die, cluster, book or drawer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LayoutGroup {
    /// The kernel's id, where it has one.
    pub id: Option<u32>,
    /// Online CPUs of the group.
    pub cpus: IdSet,
}

/// A cache.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LayoutCache {
    /// 2, 3, …
    pub level: u32,
    /// Bytes.
    pub size_bytes: Option<u64>,
    /// Online CPUs that share it.
    pub cpus: IdSet,
}

/// A core.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LayoutCore {
    /// Online CPUs of the core.
    pub cpus: IdSet,
    /// Kind of the core, where a machine has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<CoreKind>,
}

/// A kind of core of a machine that has several.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CoreKind {
    /// The strongest.
    Performance,
    /// Between the two.
    Balanced,
    /// The weakest.
    Efficiency,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LayoutNode {
    /// Online CPUs of the NUMA node.
    pub cpus: IdSet,
    /// Bytes of memory, if known.
    pub memory_bytes: Option<u64>,
    /// Distance to each online node; 10 is local.
    pub distances: BTreeMap<u32, u32>,
    /// The PCI address of the GPU whose memory this is; absent for the system's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
}

impl MachineLayout {
    /// Makes the layout of a reading of the machine.
    pub fn of(topology: &Topology) -> Self {
        let cores = topology.cores.iter().map(|core| LayoutCore {
            cpus: core.cpus.clone(),
            kind: core.cpus.first().and_then(|cpu| kind(topology.cpus.get(&cpu)?.core_type)),
        });
        Self {
            is_here: false,
            drawers: groups(&topology.drawers),
            books: groups(&topology.books),
            packages: groups(&topology.packages),
            dies: groups(&topology.dies),
            clusters: groups(&topology.clusters),
            caches: caches(topology),
            cores: cores.collect(),
            nodes: topology.nodes.iter().map(|(id, node)| (*id, LayoutNode::of(node))).collect(),
            offline: topology.present.difference(&topology.online),
            isolated: topology.isolated.clone(),
            foreign: topology.online.difference(&topology.allowed_cpus),
        }
    }

    /// Every CPU that runs.
    pub fn online(&self) -> IdSet {
        self.cores.iter().flat_map(|core| core.cpus.iter()).collect()
    }

    /// Bytes of the system's memory, if they are known for all nodes.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.nodes.values().filter(|node| node.gpu.is_none()).map(|node| node.memory_bytes).sum()
    }
}

impl LayoutNode {
    fn of(node: &NumaNode) -> Self {
        Self {
            cpus: node.cpus.clone(),
            memory_bytes: node.memory_bytes,
            distances: node.distances.clone(),
            gpu: node.gpu.clone(),
        }
    }
}

fn groups(groups: &[CpuGroup]) -> Vec<LayoutGroup> {
    groups.iter().map(|group| LayoutGroup { id: group.id, cpus: group.cpus.clone() }).collect()
}

/// Returns the caches that relate cores to each other.
fn caches(topology: &Topology) -> Vec<LayoutCache> {
    let spans_cores = |cache: &CpuCache| {
        let core = cache.cpus.first().and_then(|cpu| topology.cores.get(topology.cpus.get(&cpu)?.core));
        core.is_none_or(|core| !cache.cpus.is_subset(&core.cpus))
    };
    let told = topology.caches.iter().filter(|cache| cache.cache_type != "Instruction");
    let told = told.filter(|cache| cache.level >= 3 || (cache.level == 2 && spans_cores(cache)));
    told.map(|cache| LayoutCache { level: cache.level, size_bytes: cache.size_bytes, cpus: cache.cpus.clone() })
        .collect()
}

fn kind(core_type: CoreType) -> Option<CoreKind> {
    match core_type {
        CoreType::Uniform => None,
        CoreType::Performance => Some(CoreKind::Performance),
        CoreType::Balanced => Some(CoreKind::Balanced),
        CoreType::Efficiency => Some(CoreKind::Efficiency),
    }
}
