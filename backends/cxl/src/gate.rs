//! The hard gate: the only way to a write that destroys the machine while memory of its range is in use.
//!
//! The kernel takes a region, a memory device or a PCI function away under online memory, reports success, and dies
//! of it. So [`MemoryGate::pass`] reads every memory block of the range again, each time, and only then writes.
//! Nothing else in this crate names the files that are written here; a test reads the source for that.

use std::{
    io,
    path::{Path, PathBuf},
};

use hostler_linux::{
    ReadFailure, SysRoot,
    memory_blocks::{self, BlockState, MemoryBlock, MemoryBlockError, PhysicalRange},
    pci::PciAddress,
};

use crate::{
    dvsec::{CxlFunction, DvsecRange},
    objects::{CxlObjects, CxlRegion, DaxDevice, Memdev},
};

/// A write that the kernel does not refuse and the machine may not survive.
#[derive(Clone, Debug)]
pub(crate) enum DangerousWrite {
    /// Memory of the system loses its driver. Blocks that are online then stay until the next boot.
    Release {
        /// Kernel's name of the dax device.
        dax: String,
    },
    /// The region loses its driver, and its memory with it.
    Unbind {
        /// Kernel's name.
        region: String,
    },
    /// The addresses of the region lead nowhere any more.
    Uncommit {
        /// Folder of the region.
        folder: PathBuf,
    },
    /// The region is deleted.
    Delete {
        /// Folder of the window that it is in.
        window: PathBuf,
        /// Kernel's name.
        region: String,
    },
    /// The memory device loses its driver and its decoders.
    Disable {
        /// Kernel's name.
        memdev: String,
    },
    /// The PCI function leaves the system.
    Remove {
        /// The function.
        address: PciAddress,
    },
    /// The PCI function is reset, and its memory with it.
    Reset {
        /// The function.
        address: PciAddress,
    },
}

impl DangerousWrite {
    fn write(&self, root: &SysRoot) -> Result<(), GateError> {
        let (path, text) = match self {
            Self::Release { dax } => (PathBuf::from("sys/bus/dax/drivers/kmem/unbind"), dax.as_str()),
            Self::Unbind { region } => (PathBuf::from("sys/bus/cxl/drivers/cxl_region/unbind"), region.as_str()),
            Self::Uncommit { folder } => (folder.join("commit"), "0"),
            Self::Delete { window, region } => (window.join("delete_region"), region.as_str()),
            Self::Disable { memdev } => (PathBuf::from("sys/bus/cxl/drivers/cxl_mem/unbind"), memdev.as_str()),
            Self::Remove { address } => (PathBuf::from(format!("sys/bus/pci/devices/{address}/remove")), "1"),
            Self::Reset { address } => (PathBuf::from(format!("sys/bus/pci/devices/{address}/reset")), "1"),
        };
        root.write(&path, text).map_err(|source| GateError::Write { path, text: text.to_owned(), source })
    }

    /// True if blocks may still be there, as long as they are offline: their driver has to go first, and takes them
    /// along.
    fn tolerates_offline(&self) -> bool {
        matches!(self, Self::Release { .. })
    }
}

/// Reason why the gate stays shut, or an error of the kernel behind it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GateError {
    /// Memory is in use, or can be at any moment.
    #[error("{} of {range} {state}", memory_blocks::listed(blocks))]
    InUse {
        /// The range.
        range: PhysicalRange,
        /// The blocks.
        blocks: Vec<MemoryBlock>,
        /// State of the blocks.
        state: &'static str,
    },
    /// The use of the memory is not known.
    #[error("it cannot be told whether memory of {range} is in use")]
    Unknown {
        /// The range.
        range: PhysicalRange,
        /// Read that failed.
        #[source]
        source: MemoryBlockError,
    },
    /// The identity of the object could not be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// The place of the memory is not known.
    #[error("the addresses of {region} are not known: its memory may be in use")]
    NoRange {
        /// Kernel's name.
        region: String,
    },
    /// The object has changed: kernel names are given anew.
    #[error("{name} is not what it was a moment ago: somebody else changes CXL devices, too")]
    Changed {
        /// Kernel's name.
        name: String,
    },
    /// The memory device still translates addresses.
    #[error("{endpoint} has {committed} committed decoders: memory of {memdev} is mapped")]
    Mapped {
        /// Kernel's name of the memory device.
        memdev: String,
        /// Kernel's name of its endpoint.
        endpoint: String,
        /// Text of `decoders_committed`.
        committed: String,
    },
    /// The kernel refused.
    #[error("failed to write {text} to /{}", path.display())]
    Write {
        /// File of the write.
        path: PathBuf,
        /// Text that was to be written.
        text: String,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
}

/// Guards the objects above some physical memory.
#[derive(Debug)]
pub(crate) struct MemoryGate<'a> {
    root: &'a SysRoot,
    ranges: Vec<PhysicalRange>,
    /// Attributes that must still read as they did: kernel names are given to others when they are free.
    identity: Vec<(PathBuf, String)>,
    name: String,
    /// The memory device's endpoint, where the whole device is to go.
    endpoint: Option<(String, PathBuf)>,
}

impl<'a> MemoryGate<'a> {
    /// A gate in front of a region.
    ///
    /// # Errors
    /// When its addresses are not known.
    pub(crate) fn of_region(root: &'a SysRoot, region: &CxlRegion) -> Result<Self, GateError> {
        let unmapped = region.size == Some(0) && !region.committed && region.driver.is_none();
        let ranges = match region.range() {
            Some(range) => vec![range],
            None if unmapped => Vec::new(),
            None => return Err(GateError::NoRange { region: region.name.clone() }),
        };
        let identity = read_all(root, &region.folder, &["resource", "size", "target0"])?;
        Ok(Self { root, ranges, identity, name: region.name.clone(), endpoint: None })
    }

    /// A gate in front of a dax device.
    ///
    /// # Errors
    /// When its addresses are not known.
    pub(crate) fn of_dax(root: &'a SysRoot, dax: &DaxDevice) -> Result<Self, GateError> {
        let range = dax.range().ok_or_else(|| GateError::NoRange { region: dax.name.clone() })?;
        let identity = read_all(root, &dax.folder, &["resource", "size"])?;
        Ok(Self { root, ranges: vec![range], identity, name: dax.name.clone(), endpoint: None })
    }

    /// A gate in front of a whole memory device. `former` are the ranges that it had regions in until now.
    ///
    /// # Errors
    /// When a region is left and its addresses are not known.
    pub(crate) fn of_memdev(
        root: &'a SysRoot,
        objects: &CxlObjects,
        memdev: &Memdev,
        former: &[PhysicalRange],
    ) -> Result<Self, GateError> {
        let mut ranges = former.to_vec();
        for region in objects.regions_of(memdev) {
            ranges.extend(Self::of_region(root, region)?.ranges);
        }
        let endpoint = objects.endpoint_of(memdev).map(|endpoint| (endpoint.name.clone(), endpoint.folder.clone()));
        let identity = read_all(root, &memdev.folder, &["serial"])?;
        Ok(Self { root, ranges, identity, name: memdev.name.clone(), endpoint })
    }

    /// A gate in front of an accelerator: of the memory that it tells of itself, and of its memory device, where the
    /// kernel shows one.
    ///
    /// # Errors
    /// When a region is left and its addresses are not known.
    pub(crate) fn of_function(
        root: &'a SysRoot,
        objects: &CxlObjects,
        address: PciAddress,
        function: &CxlFunction,
    ) -> Result<Self, GateError> {
        let folder = PathBuf::from(format!("sys/bus/pci/devices/{address}"));
        let mut identity = read_all(root, &folder, &["vendor", "device"])?;
        let mut ranges: Vec<PhysicalRange> = function.ranges.iter().filter_map(DvsecRange::mapped).collect();
        let mut endpoint = None;
        for memdev in objects.memdevs_at(address) {
            let of_memdev = Self::of_memdev(root, objects, memdev, &[])?;
            identity.extend(of_memdev.identity);
            ranges.extend(of_memdev.ranges);
            endpoint = of_memdev.endpoint.or(endpoint);
        }
        Ok(Self { root, ranges, identity, name: address.to_string(), endpoint })
    }

    /// Ranges that the gate guards.
    pub(crate) fn ranges(&self) -> &[PhysicalRange] {
        &self.ranges
    }

    /// Checks, by reading, that no memory of the range can be in use, and writes at once.
    ///
    /// # Errors
    /// When memory is or may be in use, in which case nothing was written; or when the kernel refuses.
    pub(crate) fn pass(&self, danger: &DangerousWrite) -> Result<(), GateError> {
        for (path, before) in &self.identity {
            let now = self.root.attribute(path)?;
            if now.as_ref() != Some(before) {
                return Err(GateError::Changed { name: self.name.clone() });
            }
        }
        if let Some((name, folder)) = &self.endpoint {
            self.is_unmapped(name, folder)?;
        }
        // The blocks come last: nothing may lie between this and the write.
        for range in &self.ranges {
            self.is_unused(*range, danger)?;
        }
        danger.write(self.root)
    }

    /// Checks that no block of a range is in use.
    fn is_unused(&self, range: PhysicalRange, danger: &DangerousWrite) -> Result<(), GateError> {
        let blocks = memory_blocks::in_range(self.root, range);
        let blocks = blocks.map_err(|source| GateError::Unknown { range, source })?;
        let (offline, in_use): (Vec<MemoryBlock>, Vec<MemoryBlock>) =
            blocks.into_iter().partition(|block| block.state == BlockState::Offline);
        if !in_use.is_empty() {
            return Err(GateError::InUse { range, blocks: in_use, state: "are online" });
        }
        if !offline.is_empty() && !danger.tolerates_offline() {
            // A program that brings one online later would use memory that is not there.
            return Err(GateError::InUse { range, blocks: offline, state: "are offline, but still there" });
        }
        Ok(())
    }

    fn is_unmapped(&self, endpoint: &str, folder: &Path) -> Result<(), GateError> {
        let committed = self.root.required_attribute(folder.join("decoders_committed"))?;
        if committed == "0" {
            return Ok(());
        }
        Err(GateError::Mapped { memdev: self.name.clone(), endpoint: endpoint.to_owned(), committed })
    }
}

/// Attributes of a folder, as far as it has them.
fn read_all(root: &SysRoot, folder: &Path, names: &[&str]) -> Result<Vec<(PathBuf, String)>, ReadFailure> {
    let mut texts = Vec::new();
    for path in names.iter().map(|name| folder.join(name)) {
        texts.extend(root.attribute(&path)?.map(|text| (path, text)));
    }
    Ok(texts)
}
