//! PCI functions: what `/sys/bus/pci/devices` says about each, without waking or touching any.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::Serialize;

use crate::{IdSet, ReadFailure, SysRoot, TreeReading, TreeWarning};

mod address;
mod capabilities;
mod config;
mod pick;
mod standard;

pub use address::{ParsePciAddressError, PciAddress};
pub use capabilities::{Dvsec, ExtendedCapability, capabilities_by, extended_capabilities};
pub use config::ConfigFile;
pub use pick::{ParsePciPickError, PciPick};
pub use standard::PcieRootError;

/// One link per function, to its folder under `/sys/devices`.
const DEVICES: &str = "sys/bus/pci/devices";

/// The size of a function's whole configuration space.
const CONFIG_BYTES: u64 = 4096;

/// One PCI function. Ids come from the attribute files: the configuration space of a virtual function reads as ffff.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PciFunction {
    /// Where it is.
    pub address: PciAddress,
    /// Its maker.
    pub vendor: u16,
    /// The maker's number for it.
    pub device: u16,
    /// The board's maker.
    pub subsystem_vendor: Option<u16>,
    /// The board maker's number for it.
    pub subsystem_device: Option<u16>,
    /// Base class, subclass and programming interface, 24 bits.
    pub class: Option<u32>,
    /// The silicon's revision.
    pub revision: Option<u8>,
    /// The NUMA node it is attached to; where the function does not say, its nearest ancestor's.
    pub numa_node: Option<u32>,
    /// The CPUs that the kernel holds for near; all of them where it does not know.
    pub local_cpus: Option<IdSet>,
    /// The bound driver.
    pub driver: Option<String>,
    /// The unit of isolation for passing it on.
    pub iommu_group: Option<u32>,
    /// The physical function, if this one is virtual.
    pub physical_function: Option<PciAddress>,
    /// The virtual functions of this one that exist, by index.
    pub virtual_functions: Vec<PciAddress>,
    /// What it can do as the parent of virtual functions.
    pub sriov: Option<Sriov>,
    /// The ways to reset it, best first; empty if there is none.
    pub reset_methods: Vec<String>,
    /// Its folder as a path of the machine (`/sys/devices/pci0000:00/0000:00:02.0`), where the tree links to it.
    pub path: Option<PathBuf>,
}

/// Virtual functions of a physical one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Sriov {
    /// How many there can be.
    pub total: u32,
    /// How many there are.
    pub enabled: u32,
    /// Whether the kernel binds a driver to new ones; `None` where it does not say.
    pub autoprobe: Option<bool>,
}

impl PciFunction {
    /// Whether this is an SR-IOV virtual function.
    pub fn is_virtual(&self) -> bool {
        self.physical_function.is_some()
    }

    /// The base class: the upper 8 of the 24 bits.
    pub fn base_class(&self) -> Option<u8> {
        self.class.and_then(|class| u8::try_from(class >> 16).ok())
    }
}

/// What tells one kind of function from another: three short files, for scans of machines with hundreds of functions.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct PciIdentity {
    /// Where it is.
    pub address: PciAddress,
    /// Its maker.
    pub vendor: u16,
    /// The maker's number for it.
    pub device: u16,
    /// Base class, subclass and programming interface, 24 bits.
    pub class: Option<u32>,
}

impl PciIdentity {
    /// The base class: the upper 8 of the 24 bits.
    pub fn base_class(&self) -> Option<u8> {
        self.class.and_then(|class| u8::try_from(class >> 16).ok())
    }
}

/// What every PCI function under `root` is, by address. A function without readable ids is left out with a warning.
pub fn identities(tree: &TreeReading<'_>) -> (Vec<PciIdentity>, Vec<TreeWarning>) {
    let (mut identities, mut warnings) = (Vec::new(), Vec::new());
    for name in tree.names(DEVICES) {
        match identity(tree, &name) {
            Ok(identity) => identities.push(identity),
            Err(reason) => warnings.push(warning(&name, reason)),
        }
    }
    identities.sort_by_key(|identity| identity.address);
    (identities, warnings)
}

/// Every PCI function under `root`, by address. A function without readable ids is left out with a warning.
pub fn functions(tree: &TreeReading<'_>) -> (Vec<PciFunction>, Vec<TreeWarning>) {
    functions_where(tree, |_| true)
}

/// The PCI functions under `root` that `pick` wants, by address: of the others only three files are read. A function
/// without readable ids is left out with a warning.
pub fn functions_where(
    tree: &TreeReading<'_>,
    mut pick: impl FnMut(&PciIdentity) -> bool,
) -> (Vec<PciFunction>, Vec<TreeWarning>) {
    let (identities, warnings) = identities(tree);
    let picked = identities.into_iter().filter(|identity| pick(identity));
    (picked.map(|identity| details(tree, identity)).collect(), warnings)
}

/// The function at `address`, if there is one.
///
/// # Errors
/// When its ids cannot be read.
pub fn function(tree: &TreeReading<'_>, address: PciAddress) -> Result<PciFunction, TreeWarning> {
    let name = address.to_string();
    identity(tree, &name).map(|identity| details(tree, identity)).map_err(|reason| warning(&name, reason))
}

/// The folder of the function at `address`, relative to the root, by whichever way the tree has.
pub fn folder(tree: &TreeReading<'_>, address: PciAddress) -> PathBuf {
    let link = Path::new(DEVICES).join(address.to_string());
    tree.target(&link).unwrap_or(link)
}

/// The configuration space as far as the kernel shows it: 64 bytes, or with CAP_SYS_ADMIN in the first user namespace
/// 256 or 4096. Reading it wakes a sleeping device.
///
/// # Errors
/// When there is none, or it cannot be read.
pub fn read_config(root: &SysRoot, address: PciAddress) -> Result<Vec<u8>, ReadFailure> {
    root.required_bytes(format!("{DEVICES}/{address}/config"), CONFIG_BYTES)
}

fn warning(name: &str, reason: String) -> TreeWarning {
    TreeWarning { path: format!("/{DEVICES}/{name}"), reason }
}

fn identity(tree: &TreeReading<'_>, name: &str) -> Result<PciIdentity, String> {
    let address: PciAddress = name.parse().map_err(|error| format!("{error}; it is left out"))?;
    let folder = Path::new(DEVICES).join(name);
    let number = |attribute: &str| tree.attribute(folder.join(attribute)).and_then(|text| hex(&text));
    let id = |attribute: &str| number(attribute).and_then(|id| u16::try_from(id).ok());
    let required =
        |attribute| id(attribute).ok_or_else(|| format!("`{attribute}` is absent or no number; it is left out"));
    Ok(PciIdentity { address, vendor: required("vendor")?, device: required("device")?, class: number("class") })
}

fn details(tree: &TreeReading<'_>, identity: PciIdentity) -> PciFunction {
    let PciIdentity { address, vendor, device, class } = identity;
    let link = Path::new(DEVICES).join(address.to_string());
    let target = tree.target(&link);
    let folder = target.clone().unwrap_or(link);
    let text = |attribute: &str| tree.attribute(folder.join(attribute));
    let id = |attribute: &str| text(attribute).and_then(|text| hex(&text)).and_then(|id| u16::try_from(id).ok());
    PciFunction {
        address,
        vendor,
        device,
        subsystem_vendor: id("subsystem_vendor"),
        subsystem_device: id("subsystem_device"),
        class,
        revision: text("revision").and_then(|text| hex(&text)).and_then(|id| u8::try_from(id).ok()),
        numa_node: numa_node(tree, &folder),
        local_cpus: local_cpus(tree, &folder),
        driver: tree.link_name(folder.join("driver")),
        iommu_group: tree.link_name(folder.join("iommu_group")).and_then(|group| group.parse().ok()),
        physical_function: linked_function(tree, &folder.join("physfn")),
        virtual_functions: virtual_functions(tree, &folder),
        sriov: sriov(tree, &folder),
        reset_methods: text("reset_method").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
        path: target.map(|target| Path::new("/").join(target)),
    }
}

/// The node of the function or of its nearest ancestor that has one: firmware often tells it for the host bridge only.
fn numa_node(tree: &TreeReading<'_>, folder: &Path) -> Option<u32> {
    let above = |folder: &&Path| folder.starts_with("sys/devices") && *folder != Path::new("sys/devices");
    let own = std::iter::once(folder);
    own.chain(folder.ancestors().skip(1).take_while(above))
        .find_map(|folder| tree.attribute(folder.join("numa_node"))?.parse::<u32>().ok())
}

/// Old kernels have the mask and not the list.
fn local_cpus(tree: &TreeReading<'_>, folder: &Path) -> Option<IdSet> {
    let list = tree.attribute(folder.join("local_cpulist")).and_then(|text| IdSet::from_str(&text).ok());
    list.or_else(|| IdSet::from_mask(&tree.attribute(folder.join("local_cpus"))?).ok())
}

fn sriov(tree: &TreeReading<'_>, folder: &Path) -> Option<Sriov> {
    let number = |attribute: &str| tree.attribute(folder.join(attribute))?.parse::<u32>().ok();
    Some(Sriov {
        total: number("sriov_totalvfs")?,
        enabled: number("sriov_numvfs").unwrap_or(0),
        autoprobe: number("sriov_drivers_autoprobe").map(|value| value != 0),
    })
}

fn virtual_functions(tree: &TreeReading<'_>, folder: &Path) -> Vec<PciAddress> {
    let names = tree.names(folder);
    let mut links: Vec<(u32, &String)> =
        names.iter().filter_map(|name| Some((name.strip_prefix("virtfn")?.parse().ok()?, name))).collect();
    links.sort_unstable();
    links.iter().filter_map(|(_, name)| linked_function(tree, &folder.join(name))).collect()
}

fn linked_function(tree: &TreeReading<'_>, link: &Path) -> Option<PciAddress> {
    tree.link_name(link)?.parse().ok()
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}
