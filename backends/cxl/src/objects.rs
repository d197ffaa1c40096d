//! CXL objects of the kernel (memory devices, endpoints, decoders, regions, dax devices), read once and joined.
//!
//! Kernel names (`mem0`, `region2`) change between boots and are given to others when they are free: they hold for
//! one reading. For identities that outlive a reading, see [`crate::device`].

mod dax;
mod decoders;
mod memdev;
mod region;

use std::path::{Path, PathBuf};

use hostler_linux::{
    ReadFailure, SysRoot, TreeReading,
    memory_blocks::{self, PhysicalRange},
    pci::PciAddress,
    place,
};

pub use dax::DaxDevice;
pub use decoders::{EndpointDecoder, EndpointPort, RootDecoder};
pub use memdev::Memdev;
pub use region::{AccessCoordinates, CxlRegion, RegionMode};

/// One link per object, to its folder under `/sys/devices`.
const CXL: &str = "sys/bus/cxl/devices";
/// The same for dax devices.
const DAX: &str = "sys/bus/dax/devices";

/// All CXL objects of a machine at one moment, each kind in the order of kernel names.
#[derive(Clone, Debug, Default)]
pub struct CxlObjects {
    /// Memory devices: cards, and type-2 accelerators whose memory the kernel manages.
    pub memdevs: Vec<Memdev>,
    /// The CXL side of memory devices. One without is not reachable from a host bridge.
    pub endpoints: Vec<EndpointPort>,
    /// Windows of physical addresses that firmware has set aside.
    pub root_decoders: Vec<RootDecoder>,
    /// Memory that is mapped, or about to be.
    pub regions: Vec<CxlRegion>,
    /// Dax devices of regions, and of memory that firmware has set aside without CXL objects.
    pub daxes: Vec<DaxDevice>,
}

impl CxlObjects {
    /// Reads the objects for an act on them. An object that makes no sense is left out.
    ///
    /// # Errors
    /// When one of them could not be read: an act that relies on the rest may be wrong.
    pub fn read(root: &SysRoot) -> Result<Self, ReadFailure> {
        root.look_warned(Self::of).map(|(objects, _)| objects)
    }

    /// The objects of a tree. A machine without CXL has none.
    pub fn of(tree: &TreeReading<'_>) -> Self {
        let mut objects = Self::default();
        let names = tree.names(CXL);
        let roots: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("root")).collect();
        for name in &names {
            // Decoders of endpoints are found with them; those of switches tell nothing that is needed.
            let is_window = name
                .strip_prefix("decoder")
                .and_then(|id| id.split_once('.'))
                .is_some_and(|(port, _)| roots.contains(&port));
            if !is_window && !["mem", "endpoint", "region"].iter().any(|word| numbered(name, word)) {
                continue;
            }
            let Some(folder) = existing(tree, CXL, name) else { continue };
            let name = name.clone();
            if is_window {
                objects.root_decoders.push(RootDecoder::read(tree, name, folder));
            } else if numbered(&name, "mem") {
                objects.memdevs.push(Memdev::read(tree, name, folder));
            } else if numbered(&name, "endpoint") {
                objects.endpoints.push(EndpointPort::read(tree, name, folder));
            } else {
                let region = CxlRegion::read(tree, name, folder);
                region.warn(tree);
                objects.regions.push(region);
            }
        }
        for name in tree.names(DAX) {
            if let Some(folder) = existing(tree, DAX, &name) {
                objects.daxes.push(DaxDevice::of(tree, name, folder));
            }
        }
        objects
    }

    /// The memory device with a kernel name.
    pub fn memdev(&self, name: &str) -> Option<&Memdev> {
        self.memdevs.iter().find(|memdev| memdev.name == name)
    }

    /// The region with a kernel name.
    pub fn region(&self, name: &str) -> Option<&CxlRegion> {
        self.regions.iter().find(|region| region.name == name)
    }

    /// The memory devices of a PCI function.
    pub fn memdevs_at(&self, address: PciAddress) -> impl Iterator<Item = &Memdev> {
        self.memdevs.iter().filter(move |memdev| memdev.address == Some(address))
    }

    /// The endpoint of a memory device. There is none while its driver is not bound.
    pub fn endpoint_of(&self, memdev: &Memdev) -> Option<&EndpointPort> {
        self.endpoints.iter().find(|endpoint| endpoint.memdev.as_deref() == Some(memdev.name.as_str()))
    }

    /// The endpoint decoder with a kernel name, with its endpoint.
    pub fn decoder(&self, name: &str) -> Option<(&EndpointPort, &EndpointDecoder)> {
        self.endpoints.iter().find_map(|endpoint| {
            endpoint.decoders.iter().find(|decoder| decoder.name == name).map(|decoder| (endpoint, decoder))
        })
    }

    /// The regions that a memory device has a part in, as its decoders or the regions' targets say.
    pub fn regions_of(&self, memdev: &Memdev) -> Vec<&CxlRegion> {
        let Some(endpoint) = self.endpoint_of(memdev) else { return Vec::new() };
        let mine = |region: &&CxlRegion| {
            endpoint.decoders.iter().any(|decoder| {
                decoder.region.as_deref() == Some(region.name.as_str()) || region.targets.contains(&decoder.name)
            })
        };
        self.regions.iter().filter(mine).collect()
    }

    /// The decoders of a region in the order of interleaving, each with its memory device.
    pub fn members_of(&self, region: &CxlRegion) -> Vec<(&Memdev, &EndpointDecoder)> {
        let member = |target: &String| {
            let (endpoint, decoder) = self.decoder(target)?;
            Some((self.memdev(endpoint.memdev.as_deref()?)?, decoder))
        };
        region.targets.iter().filter_map(member).collect()
    }

    /// The memory devices of a region in the order of interleaving. Losing one loses the region.
    pub fn memdevs_of(&self, region: &CxlRegion) -> Vec<&Memdev> {
        self.members_of(region).into_iter().map(|(memdev, _)| memdev).collect()
    }

    /// The dax devices of a region; mostly one.
    pub fn daxes_of(&self, region: &CxlRegion) -> impl Iterator<Item = &DaxDevice> {
        self.daxes.iter().filter(move |dax| dax.region.as_deref() == Some(region.name.as_str()))
    }

    /// The region of a dax device.
    pub fn region_of(&self, dax: &DaxDevice) -> Option<&CxlRegion> {
        self.region(dax.region.as_deref()?)
    }

    /// The dax devices of memory that firmware has set aside, without the kernel's CXL objects.
    pub fn hmem_daxes(&self) -> impl Iterator<Item = &DaxDevice> {
        self.daxes.iter().filter(|dax| dax.hmem.is_some())
    }

    /// The window that a region is in.
    pub fn root_decoder_of(&self, region: &CxlRegion) -> Option<&RootDecoder> {
        self.root_decoders.iter().find(|decoder| Some(decoder.name.as_str()) == region.root_decoder.as_deref())
    }

    /// The windows that memory of this kind of a memory device can be mapped into, best first: of the same quality of
    /// service class, then those with most room.
    pub fn windows_for(&self, memdev: &Memdev, mode: RegionMode) -> Vec<&RootDecoder> {
        let Some(bridge) = memdev.host_bridge() else { return Vec::new() };
        let wanted = memdev.qos_class(mode);
        let fits = |window: &&RootDecoder| window.takes(mode) && window.host_bridges.iter().any(|name| name == bridge);
        let mut windows: Vec<&RootDecoder> = self.root_decoders.iter().filter(fits).collect();
        windows.sort_by_key(|window| {
            let other_class = wanted.is_none() || wanted != window.qos_class;
            (other_class, std::cmp::Reverse(self.free_bytes(window)), window.name.clone())
        });
        windows
    }

    /// The largest piece that can still be mapped in a window: a region is one range of addresses. Where addresses
    /// are hidden (they need privileges), all bytes that no region takes.
    pub fn free_bytes(&self, window: &RootDecoder) -> u64 {
        let size = window.size.unwrap_or(0);
        let regions =
            || self.regions.iter().filter(|region| region.root_decoder.as_deref() == Some(window.name.as_str()));
        let taken = regions().filter_map(|region| region.size).fold(0, u64::saturating_add);
        let Some(start) = window.start else { return size.saturating_sub(taken) };
        let mut ranges: Vec<PhysicalRange> = regions().filter_map(CxlRegion::range).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut free, mut at) = (0, start);
        for range in ranges {
            free = free.max(range.start.saturating_sub(at));
            at = at.max(range.end());
        }
        free.max(start.saturating_add(size).saturating_sub(at))
    }

    /// The NUMA node that a region's memory is, or will be when it is online; `None` where that is not known yet.
    pub fn node_of(&self, tree: &TreeReading<'_>, region: &CxlRegion) -> Option<u32> {
        let dax = self.daxes_of(region).find_map(|dax| dax.target_node);
        // Memory that firmware gave to the system has no dax device: its blocks know their node.
        dax.or_else(|| {
            let blocks = memory_blocks::known(tree, memory_blocks::in_range(tree.root(), region.range()?))?;
            blocks.iter().find_map(|block| node_of_block(tree, block.number))
        })
    }
}

/// The folder of an object, if it has one: a link may outlive its target.
fn existing(tree: &TreeReading<'_>, bus: &str, name: &str) -> Option<PathBuf> {
    let folder = tree.target(place(bus, name)).filter(|folder| tree.exists(folder));
    if folder.is_none() {
        tree.warn(place(bus, name), "it leads nowhere; the object is left out");
    }
    folder
}

/// The NUMA node of a memory block.
fn node_of_block(tree: &TreeReading<'_>, number: u64) -> Option<u32> {
    let names = tree.names(format!("sys/devices/system/memory/memory{number}"));
    names.iter().find(|name| numbered(name, "node"))?.strip_prefix("node")?.parse().ok()
}

/// True if a name is a word and a number: `mem0`, and not `memory_pmu`.
fn numbered(name: &str, word: &str) -> bool {
    let number = name.strip_prefix(word);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The name of the folder that holds a folder.
fn parent(folder: &Path) -> Option<&str> {
    folder.parent()?.file_name()?.to_str()
}

/// A number as sysfs prints it: `0x20000000` or `512`.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Reads attributes of one folder. An attribute that is absent, or whose value does not fit, is `None`, the latter
/// with a warning.
#[derive(Clone, Copy)]
struct FolderAttributes<'a> {
    tree: &'a TreeReading<'a>,
    folder: &'a Path,
}

impl FolderAttributes<'_> {
    fn text(self, name: &str) -> Option<String> {
        self.tree.attribute(place(self.folder, name)).filter(|text| !text.is_empty())
    }

    /// A text that is shown to people and decides nothing.
    fn detail(self, name: &str) -> Option<String> {
        self.tree.detail(place(self.folder, name)).filter(|text| !text.is_empty())
    }

    fn number(self, name: &str) -> Option<u64> {
        self.understood(name, &self.text(name)?, number)
    }

    /// Nodes and classes read as negative where there is none.
    fn small(self, name: &str) -> Option<u32> {
        let text = self.text(name).filter(|text| !text.parse::<i32>().is_ok_and(|number| number < 0))?;
        self.understood(name, &text, |text| u32::try_from(number(text)?).ok())
    }

    /// Physical addresses read as all ones where there is none.
    fn address(self, name: &str) -> Option<u64> {
        self.number(name).filter(|address| *address != u64::MAX)
    }

    /// A physical address that only root may read.
    fn hidden_address(self, name: &str) -> Option<u64> {
        self.understood(name, &self.detail(name)?, number).filter(|address| *address != u64::MAX)
    }

    fn truth(self, name: &str) -> Option<bool> {
        self.number(name).map(|value| value != 0)
    }

    fn driver(self) -> Option<String> {
        self.tree.link_name(place(self.folder, "driver"))
    }

    fn understood<T>(self, name: &str, text: &str, parse: fn(&str) -> Option<T>) -> Option<T> {
        self.tree.understood(place(self.folder, name), text, "a number", parse)
    }
}
