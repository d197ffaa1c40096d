//! Memory devices.

use std::path::PathBuf;

use hostler_linux::{TreeReading, pci::PciAddress};

use super::{FolderAttributes, RegionMode, parent};

/// A memory device. Those of type-2 accelerators have hardly any attributes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Memdev {
    /// The kernel's name, for now: `mem0`.
    pub name: String,
    /// Folder of the device in the tree, in that of its PCI function.
    pub folder: PathBuf,
    /// The PCI function.
    pub address: Option<PciAddress>,
    /// The serial number; 0 where the maker gave none.
    pub serial: Option<u64>,
    /// Firmware version, up to 16 characters.
    pub firmware_version: Option<String>,
    /// Volatile capacity, bytes. Dynamic capacity is not part of it.
    pub ram_bytes: Option<u64>,
    /// Persistent capacity, bytes.
    pub pmem_bytes: Option<u64>,
    /// Quality of service class of the volatile part.
    pub ram_qos_class: Option<u32>,
    /// Quality of service class of the persistent part.
    pub pmem_qos_class: Option<u32>,
    /// The NUMA node that the card is attached to, not the one that its memory becomes.
    pub numa_node: Option<u32>,
    /// The bound driver; without one the device is disabled.
    pub driver: Option<String>,
    /// `disabled`, `unlocked`, `locked`, `frozen` or `sanitize`.
    pub security_state: Option<String>,
}

impl Memdev {
    pub(super) fn read(tree: &TreeReading<'_>, name: String, folder: PathBuf) -> Self {
        tree.enter(&folder);
        let read = FolderAttributes { tree, folder: &folder };
        Self {
            address: parent(&folder).and_then(|name| name.parse().ok()),
            serial: read.number("serial"),
            firmware_version: read.detail("firmware_version"),
            ram_bytes: read.number("ram/size"),
            pmem_bytes: read.number("pmem/size"),
            ram_qos_class: read.small("ram/qos_class"),
            pmem_qos_class: read.small("pmem/qos_class"),
            numa_node: read.small("numa_node"),
            driver: read.driver(),
            security_state: read.detail("security/state"),
            name,
            folder,
        }
    }

    /// Device node below the root: `dev/cxl/mem0`.
    pub fn device_node(&self) -> PathBuf {
        PathBuf::from("dev/cxl").join(&self.name)
    }

    /// The host bridge above it: `pci0000:40`.
    pub fn host_bridge(&self) -> Option<&str> {
        let below = self.folder.strip_prefix("sys/devices").ok()?;
        below.iter().find_map(|name| name.to_str().filter(|name| name.starts_with("pci")))
    }

    /// The capacity of a kind, bytes; 0 where it has none or does not say.
    pub fn bytes(&self, mode: RegionMode) -> u64 {
        let bytes = match mode {
            RegionMode::Ram => self.ram_bytes,
            RegionMode::Pmem => self.pmem_bytes,
        };
        bytes.unwrap_or(0)
    }

    /// The quality of service class of a kind of capacity.
    pub fn qos_class(&self, mode: RegionMode) -> Option<u32> {
        match mode {
            RegionMode::Ram => self.ram_qos_class,
            RegionMode::Pmem => self.pmem_qos_class,
        }
    }
}
