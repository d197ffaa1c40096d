//! Windows at the root, and endpoints with their decoders.

use std::path::{Path, PathBuf};

use hostler_linux::{TreeReading, place};

use super::{FolderAttributes, RegionMode, numbered};

/// A window of physical addresses that firmware has set aside for CXL behind some host bridges. Nothing can be mapped
/// outside of one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RootDecoder {
    /// The kernel's name, for now: `decoder0.0`.
    pub name: String,
    /// Folder of the window in the tree.
    pub folder: PathBuf,
    /// Start of the window; hidden from the unprivileged.
    pub start: Option<u64>,
    /// Bytes.
    pub size: Option<u64>,
    /// Number of host bridges over which the window interleaves.
    pub interleave_ways: Option<u32>,
    /// Bytes of one piece of an interleaving.
    pub interleave_granularity: Option<u32>,
    /// True if volatile memory can be mapped in the window.
    pub cap_ram: bool,
    /// True if persistent memory can be mapped in the window.
    pub cap_pmem: bool,
    /// Quality of service class of the memory that should be mapped in the window.
    pub qos_class: Option<u32>,
    /// The host bridges behind it, in the order of interleaving: `pci0000:40`.
    pub host_bridges: Vec<String>,
}

impl RootDecoder {
    pub(super) fn read(tree: &TreeReading<'_>, name: String, folder: PathBuf) -> Self {
        let read = FolderAttributes { tree, folder: &folder };
        let targets = read.text("target_list").unwrap_or_default();
        let port = folder.parent().map(Path::to_path_buf).unwrap_or_default();
        Self {
            start: read.hidden_address("start"),
            size: read.number("size"),
            interleave_ways: read.small("interleave_ways"),
            interleave_granularity: read.small("interleave_granularity"),
            cap_ram: read.truth("cap_ram").unwrap_or(false),
            cap_pmem: read.truth("cap_pmem").unwrap_or(false),
            qos_class: read.small("qos_class"),
            host_bridges: targets.split(',').filter_map(|id| tree.link_name(port.join(format!("dport{id}")))).collect(),
            name,
            folder,
        }
    }

    /// True if memory of a kind can be mapped in the window.
    pub fn takes(&self, mode: RegionMode) -> bool {
        match mode {
            RegionMode::Ram => self.cap_ram,
            RegionMode::Pmem => self.cap_pmem,
        }
    }
}

/// The CXL side of a memory device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EndpointPort {
    /// The kernel's name, for now: `endpoint3`.
    pub name: String,
    /// Folder of the endpoint in the tree.
    pub folder: PathBuf,
    /// The kernel's name of its memory device.
    pub memdev: Option<String>,
    /// The bound driver.
    pub driver: Option<String>,
    /// Number of decoders that translate addresses now.
    pub decoders_committed: Option<u32>,
    /// Decoders of the endpoint, by number.
    pub decoders: Vec<EndpointDecoder>,
}

impl EndpointPort {
    pub(super) fn read(tree: &TreeReading<'_>, name: String, folder: PathBuf) -> Self {
        let read = FolderAttributes { tree, folder: &folder };
        let mut decoders: Vec<EndpointDecoder> = tree
            .names(&folder)
            .into_iter()
            .filter(|name| name.strip_prefix("decoder").and_then(|id| id.split_once('.')).is_some())
            .map(|name| EndpointDecoder::read(tree, place(&folder, &name), name))
            .collect();
        decoders.sort_by_key(EndpointDecoder::number);
        Self {
            memdev: tree.link_name(place(&folder, "uport")).filter(|name| numbered(name, "mem")),
            driver: read.driver(),
            decoders_committed: read.small("decoders_committed"),
            decoders,
            name,
            folder,
        }
    }
}

/// A decoder of an endpoint: maps a part of the device's own addresses into a region.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EndpointDecoder {
    /// The kernel's name, for now: `decoder3.0`.
    pub name: String,
    /// Folder of the decoder in the tree.
    pub folder: PathBuf,
    /// The kind of memory that it takes; `None` while it takes none.
    pub mode: Option<RegionMode>,
    /// Start of the decoder's part in the device's own addresses.
    pub dpa_resource: Option<u64>,
    /// Bytes of the decoder's part; 0 when free.
    pub dpa_size: u64,
    /// The kernel's name of its region.
    pub region: Option<String>,
    /// True if firmware has locked the decoder until the next reset.
    pub locked: bool,
}

impl EndpointDecoder {
    fn read(tree: &TreeReading<'_>, folder: PathBuf, name: String) -> Self {
        let read = FolderAttributes { tree, folder: &folder };
        let dpa_size = read.number("dpa_size").unwrap_or(0);
        Self {
            mode: read.text("mode").and_then(|mode| RegionMode::parse(&mode)),
            dpa_resource: if dpa_size > 0 { read.address("dpa_resource") } else { None },
            dpa_size,
            region: read.text("region"),
            locked: read.truth("locked").unwrap_or(false),
            name,
            folder,
        }
    }

    /// Number of the decoder in the endpoint: regions must use decoders in this order.
    fn number(&self) -> u32 {
        self.name.rsplit_once('.').and_then(|(_, number)| number.parse().ok()).unwrap_or(u32::MAX)
    }

    /// True if the decoder can be taken for a new region.
    pub fn is_free(&self) -> bool {
        self.dpa_size == 0 && self.region.is_none() && !self.locked
    }
}
