//! Regions: memory of devices that is mapped into the host's address space.

use std::path::PathBuf;

use hostler_linux::{TreeReading, memory_blocks::PhysicalRange, place};
use serde::{Deserialize, Serialize};

use super::{FolderAttributes, parent};

/// A kind of memory.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RegionMode {
    /// Volatile.
    Ram,
    /// Persistent.
    Pmem,
}

impl RegionMode {
    /// Reads `ram` or `pmem`; `none` is neither.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "ram" => Some(Self::Ram),
            "pmem" => Some(Self::Pmem),
            _ => None,
        }
    }

    /// As the kernel writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ram => "ram",
            Self::Pmem => "pmem",
        }
    }
}

/// A region.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CxlRegion {
    /// The kernel's name, for now: `region0`.
    pub name: String,
    /// Folder of the region in the tree.
    pub folder: PathBuf,
    /// The kernel's name of its window.
    pub root_decoder: Option<String>,
    /// The kind of memory.
    pub mode: Option<RegionMode>,
    /// Bytes.
    pub size: Option<u64>,
    /// Start in physical addresses; `None` while the region has no place.
    pub resource: Option<u64>,
    /// True if the region's decoders translate addresses.
    pub committed: bool,
    /// Number of devices over which the region interleaves.
    pub interleave_ways: Option<u32>,
    /// Bytes of one piece of an interleaving.
    pub interleave_granularity: Option<u32>,
    /// The kernel's names of its endpoint decoders, in the order of interleaving.
    pub targets: Vec<String>,
    /// Id of a region of persistent memory.
    pub uuid: Option<String>,
    /// True if firmware has locked the region until the next reset.
    pub locked: bool,
    /// The bound driver.
    pub driver: Option<String>,
    /// Expected speed of the memory, where the kernel knows it.
    pub performance: Option<AccessCoordinates>,
}

/// Speed of memory, from the CPUs next to it; the kernel's `struct access_coordinate`. Kernels disagree about units
/// of latency: it orders the memory of one machine under one kernel, and means nothing else.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AccessCoordinates {
    /// MiB/s.
    pub read_bandwidth: Option<u64>,
    /// MiB/s.
    pub write_bandwidth: Option<u64>,
    /// Nanoseconds, or so.
    pub read_latency: Option<u64>,
    /// Nanoseconds, or so.
    pub write_latency: Option<u64>,
}

impl CxlRegion {
    pub(super) fn read(tree: &TreeReading<'_>, name: String, folder: PathBuf) -> Self {
        let read = FolderAttributes { tree, folder: &folder };
        let interleave_ways = read.small("interleave_ways");
        // The specification ends at 16 ways.
        let ways = interleave_ways.unwrap_or(1).min(16);
        Self {
            root_decoder: parent(&folder).filter(|name| name.starts_with("decoder")).map(str::to_owned),
            mode: read.text("mode").and_then(|mode| RegionMode::parse(&mode)),
            size: read.number("size"),
            resource: read.address("resource"),
            committed: read.truth("commit").unwrap_or(false),
            interleave_ways,
            interleave_granularity: read.small("interleave_granularity"),
            targets: (0..ways).filter_map(|way| read.text(&format!("target{way}"))).collect(),
            uuid: read.text("uuid"),
            locked: read.truth("locked").unwrap_or(false),
            driver: read.driver(),
            performance: AccessCoordinates::read(read, "access0").or_else(|| AccessCoordinates::read(read, "access1")),
            name,
            folder,
        }
    }

    /// Warns of mapped memory of no known kind, which no claim can get.
    pub(super) fn warn(&self, tree: &TreeReading<'_>) {
        if self.mode.is_none() && self.range().is_some() {
            let reason =
                "says neither ram nor pmem; the region's memory is offered as it is used, and its cards to nobody";
            tree.warn(place(&self.folder, "mode"), reason);
        }
    }

    /// Physical addresses of the region.
    pub fn range(&self) -> Option<PhysicalRange> {
        Some(PhysicalRange { start: self.resource?, bytes: self.size.filter(|size| *size > 0)? })
    }
}

impl AccessCoordinates {
    /// Speed of a NUMA node's memory, from the node's folder. Class 1 counts CPUs alone.
    pub(crate) fn of_node(tree: &TreeReading<'_>, folder: &str) -> Option<Self> {
        let read = FolderAttributes { tree, folder: folder.as_ref() };
        Self::read(read, "access1/initiators").or_else(|| Self::read(read, "access0/initiators"))
    }

    fn read(read: FolderAttributes<'_>, class: &str) -> Option<Self> {
        if !read.tree.exists(place(read.folder, class)) {
            return None;
        }
        // 0 means that the speed is not known.
        let value = |name: &str| read.number(&format!("{class}/{name}")).filter(|value| *value > 0);
        let found = Self {
            read_bandwidth: value("read_bandwidth"),
            write_bandwidth: value("write_bandwidth"),
            read_latency: value("read_latency"),
            write_latency: value("write_latency"),
        };
        (found != Self::default()).then_some(found)
    }
}
