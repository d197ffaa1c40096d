//! CPUs, caches, packages, NUMA nodes, memory and huge pages.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use read::TopologyPart;

use crate::{IdSet, ReadFailure, SysRoot, TreeWarning};

/// A path in the heap's room for one: `format!` asks it four times where a text begins with a value, and a scan names
/// thousands.
macro_rules! path {
    ($($text:tt)*) => { $crate::topology::path(format_args!($($text)*)) };
}

mod allowed;
mod caches;
mod core_types;
mod cpus;
mod identity;
mod memory;
mod node_memory;
mod nodes;
mod read;
mod reader;

/// The processing and memory side of a machine, as read at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Topology {
    /// CPU architecture as far as the tree tells: `x86_64`, `x86`, `aarch64`, `arm`, `riscv64`, `riscv32`, `ppc64`,
    /// `ppc`, `s390x` or `loongarch64`.
    pub arch: Option<String>,
    /// The CPU's name as `/proc/cpuinfo` gives it; current arm64 kernels give none.
    pub cpu_model: Option<String>,
    /// CPUs that could ever be there.
    pub possible: IdSet,
    /// CPUs that are plugged in.
    pub present: IdSet,
    /// CPUs that run.
    pub online: IdSet,
    /// Online CPUs that the boot command line or a root cpuset partition keeps from the scheduler.
    pub isolated: IdSet,
    /// Online CPUs without the periodic tick.
    pub nohz_full: IdSet,
    /// True if simultaneous multithreading is on; `None` if the kernel does not say.
    pub smt_active: Option<bool>,
    /// Every online CPU, by number.
    pub cpus: BTreeMap<u32, LogicalCpu>,
    /// Physical cores, by lowest online CPU.
    pub cores: Vec<CpuCore>,
    /// Packages (sockets), by lowest online CPU.
    pub packages: Vec<CpuGroup>,
    /// Dies, where the kernel tells them apart.
    pub dies: Vec<CpuGroup>,
    /// Clusters of cores, where the kernel tells them apart and one has more than one core.
    pub clusters: Vec<CpuGroup>,
    /// Books of packages (s390), where the kernel tells them apart.
    pub books: Vec<CpuGroup>,
    /// Drawers of books (s390), where the kernel tells them apart.
    pub drawers: Vec<CpuGroup>,
    /// Caches, by level, type and lowest online CPU.
    pub caches: Vec<CpuCache>,
    /// Every online NUMA node, by number.
    pub nodes: BTreeMap<u32, NumaNode>,
    /// NUMA nodes that could ever be there.
    pub possible_nodes: IdSet,
    /// Sizes of huge pages, bytes, ascending.
    pub huge_page_sizes: Vec<u64>,
    /// Memory blocks, where the kernel shows them.
    pub memory_blocks: Option<MemoryBlockCounts>,
    /// CPUs that the host's cpuset lets us hand out; equals `online` where nothing narrows it.
    pub allowed_cpus: IdSet,
    /// NUMA nodes whose memory the host's cpuset lets us hand out; on cgroup v2 it never names a node without memory.
    pub allowed_nodes: IdSet,
    /// Parts of the tree that could not be understood.
    pub warnings: Vec<TreeWarning>,
}

/// A logical CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LogicalCpu {
    /// Index into [`Topology::cores`].
    pub core: usize,
    /// Index into [`Topology::packages`].
    pub package: usize,
    /// Index into [`Topology::dies`].
    pub die: Option<usize>,
    /// Index into [`Topology::clusters`].
    pub cluster: Option<usize>,
    /// Index into [`Topology::caches`] of the last-level (level 3, unified) cache.
    pub l3: Option<usize>,
    /// The NUMA node it belongs to. A tree may place an online CPU in an offline node: [`Topology::nodes`] then lacks
    /// it, and a warning says so.
    pub node: u32,
    /// The kernel's `core_id`; repeats across packages, may be −1 (then `None`).
    pub core_id: Option<u32>,
    /// Kind of core on hybrid machines.
    pub core_type: CoreType,
    /// Relative capacity, at most 1024.
    pub capacity: Option<u32>,
    /// Highest frequency, kHz.
    pub max_frequency_khz: Option<u64>,
}

/// Kind of core.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoreType {
    /// All cores of the machine are alike.
    #[default]
    Uniform,
    /// The strongest kind of a hybrid machine.
    Performance,
    /// A kind between the strongest and the weakest.
    Balanced,
    /// The weakest kind of a hybrid machine.
    Efficiency,
}

/// A physical core: logical CPUs that share execution units.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CpuCore {
    /// Online CPUs of the core.
    pub cpus: IdSet,
}

/// A package, die or cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CpuGroup {
    /// The kernel's id: opaque, sparse; `None` where it is −1 or absent.
    pub id: Option<u32>,
    /// Online CPUs of the group.
    pub cpus: IdSet,
}

/// A cache. Keyed by level, type and the CPUs that share it: ids are missing on arm64 and old kernels.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CpuCache {
    /// 1, 2, 3, …
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub cache_type: String,
    /// Bytes.
    pub size_bytes: Option<u64>,
    /// The kernel's id, of caches from level 3 on.
    pub id: Option<u32>,
    /// Online CPUs that share it.
    pub cpus: IdSet,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NumaNode {
    /// Online CPUs of the node; empty for a CPU-less one.
    pub cpus: IdSet,
    /// Bytes of memory (`MemTotal`; the machine's where there can be one node only); 0 for a memory-less node, `None`
    /// if unknown.
    pub memory_bytes: Option<u64>,
    /// Bytes of free memory (`MemFree`).
    pub free_bytes: Option<u64>,
    /// Distance to each online node, by node number; 10 is local.
    pub distances: BTreeMap<u32, u32>,
    /// Huge page pools, by page size in bytes.
    pub huge_pages: BTreeMap<u64, HugePages>,
    /// Performance from the best initiator, HMAT access class 1 before 0.
    pub access: Option<NodeAccess>,
    /// Memory-side caches in front of this node, by index.
    pub memory_side_caches: Vec<MemorySideCache>,
    /// Memory tier; lower is faster. Not stable over kernels.
    pub tier: Option<u32>,
    /// The PCI address of the GPU whose memory this is, as a driver says, or may be, as a warning says; such memory is
    /// not system memory.
    pub gpu: Option<String>,
    /// True if the node has a generic initiator (a device that starts memory traffic).
    pub generic_initiator: bool,
}

/// A pool of huge pages of a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct HugePages {
    /// Pages in the pool.
    pub total: u64,
    /// Pages that are unused.
    pub free: u64,
    /// Pages above the configured number.
    pub surplus: u64,
}

/// Performance of a node's memory. Latency is ordinal only: its unit differs between kernels.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct NodeAccess {
    /// HMAT access class that was read.
    pub class: u32,
    /// Nodes of the initiators.
    pub initiators: IdSet,
    /// MiB/s; `None` where the firmware says 0.
    pub read_bandwidth: Option<u64>,
    /// MiB/s.
    pub write_bandwidth: Option<u64>,
    /// Nanoseconds where the kernel is right; compare only within one machine and kernel.
    pub read_latency: Option<u64>,
    /// See `read_latency`.
    pub write_latency: Option<u64>,
}

/// A cache between a node's memory and everything else.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct MemorySideCache {
    /// Level of the cache.
    pub level: u32,
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes of a line.
    pub line_bytes: Option<u64>,
}

/// The blocks in which memory goes online and offline.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct MemoryBlockCounts {
    /// Bytes of one block.
    pub block_bytes: u64,
    /// Number of blocks that are online.
    pub online: usize,
    /// Number of blocks that are not.
    pub offline: usize,
    /// Number of blocks, by node.
    pub by_node: BTreeMap<u32, usize>,
}

impl Topology {
    /// Reads the machine under `root`. An attribute that makes no sense is absent, and a warning says why.
    ///
    /// # Errors
    /// When a file or folder that is there, or may be, could not be read: nothing is known then, since that file could
    /// say anything.
    pub fn read(root: &SysRoot) -> Result<Self, ReadFailure> {
        read::stable(root, TopologyPart::Whole)
    }

    /// Reads as [`read`](Self::read) does, without memory blocks, of which a large machine has thousands, and without
    /// `arch` and `cpu_model`, which are only told to people.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_processors(root: &SysRoot) -> Result<Self, ReadFailure> {
        read::stable(root, TopologyPart::Processors)
    }

    /// Reads as [`read_processors`](Self::read_processors) does, without the folders of single CPUs: no `cpus`,
    /// `caches` or any group of CPUs but nodes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_nodes(root: &SysRoot) -> Result<Self, ReadFailure> {
        read::stable(root, TopologyPart::Nodes)
    }
}
/// See the macro of that name.
fn path(text: fmt::Arguments<'_>) -> String {
    const ROOM: usize = 96;
    let mut path = String::with_capacity(ROOM);
    // Writing to a string does not fail.
    let _ = fmt::Write::write_fmt(&mut path, text);
    path
}
