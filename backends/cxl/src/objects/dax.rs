//! Dax devices: memory that is a device, until it becomes memory of the system.

use std::path::{Path, PathBuf};

use hostler_linux::{TreeReading, memory_blocks::PhysicalRange};

use super::{FolderAttributes, numbered};

/// A dax device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DaxDevice {
    /// The kernel's name, for now: `dax0.0`.
    pub name: String,
    /// Folder of the device in the tree.
    pub folder: PathBuf,
    /// Bytes.
    pub size: Option<u64>,
    /// The NUMA node that its memory is, or becomes.
    pub target_node: Option<u32>,
    /// Bytes that mappings are aligned to.
    pub align: Option<u64>,
    /// Start in physical addresses; hidden from the unprivileged.
    pub resource: Option<u64>,
    /// `device_dax`, `kmem`, or none.
    pub driver: Option<String>,
    /// `unplugged`, `offline`, `online`, `online_kernel`, `online_movable`; older kernels do not say.
    pub state: Option<String>,
    /// The kernel's name of its region.
    pub region: Option<String>,
    /// The platform device that stands for memory set aside by firmware: `hmem.0`.
    pub hmem: Option<String>,
}

impl DaxDevice {
    pub(crate) fn of(tree: &TreeReading<'_>, name: String, folder: PathBuf) -> Self {
        let read = FolderAttributes { tree, folder: &folder };
        let above = |fits: fn(&str) -> bool| {
            folder.iter().filter_map(|name| name.to_str()).find(|name| fits(name)).map(str::to_owned)
        };
        Self {
            size: read.number("size"),
            target_node: read.small("target_node"),
            align: read.number("align"),
            resource: read.hidden_address("resource"),
            driver: read.driver(),
            state: read.text("state"),
            region: above(|name| numbered(name, "region")),
            hmem: above(|name| numbered(name, "hmem.")),
            name,
            folder,
        }
    }

    /// Device node below the root: `dev/dax0.0`.
    pub fn device_node(&self) -> PathBuf {
        Path::new("dev").join(&self.name)
    }

    /// Physical addresses of the device.
    pub fn range(&self) -> Option<PhysicalRange> {
        Some(PhysicalRange { start: self.resource?, bytes: self.size.filter(|size| *size > 0)? })
    }

    /// True if the device's memory is, or is to be, memory of the system.
    pub fn is_system_ram(&self) -> bool {
        self.driver.as_deref() == Some("kmem")
    }
}
