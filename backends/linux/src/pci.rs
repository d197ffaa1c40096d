//! PCI functions as `/sys/bus/pci/devices` describes them, without waking or touching any.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{IdSet, ReadFailure, SysRoot, TreeReading, TreeWarning, place};

mod address;
mod attributes;
mod capabilities;
mod config;
mod leave;
mod pick;
mod standard;

pub use address::{ParsePciAddressError, PciAddress};
pub use capabilities::{Dvsec, ExtendedCapability, capabilities_by, extended_capabilities, serial_number};
pub use config::ConfigFile;
pub use leave::{PciLeaveError, expect_removed, expect_unused, remove};
pub use pick::{ParsePciPickError, PciPick};
pub use standard::PcieRootError;

use attributes::{FunctionAttributes, hex};

/// Folder with one link per function, to its folder under `/sys/devices`.
const DEVICES: &str = "sys/bus/pci/devices";

/// The size of a function's whole configuration space.
const CONFIG_BYTES: u64 = 4096;

/// One PCI function. Ids come from the attribute files: the configuration space of a virtual function reads as ffff.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PciFunction {
    /// Address of the function.
    pub address: PciAddress,
    /// Maker of the function.
    pub vendor: u16,
    /// The maker's number for the model.
    pub device: u16,
    /// The board's maker.
    pub subsystem_vendor: Option<u16>,
    /// The board maker's number for the board.
    pub subsystem_device: Option<u16>,
    /// Base class, subclass and programming interface, 24 bits.
    pub class: Option<u32>,
    /// The silicon's revision.
    pub revision: Option<u8>,
    /// The NUMA node of the function; where the function does not say, its nearest ancestor's. `None` where one says
    /// garbage.
    pub numa_node: Option<u32>,
    /// The CPUs that the kernel takes for near; all of them where it does not know.
    pub local_cpus: Option<IdSet>,
    /// The bound driver.
    pub driver: Option<String>,
    /// The unit of isolation for passing the function on.
    pub iommu_group: Option<u32>,
    /// The physical function, if this one is virtual.
    pub physical_function: Option<PciAddress>,
    /// The virtual functions of this one that exist, by index.
    pub virtual_functions: Vec<PciAddress>,
    /// Abilities of the function as the parent of virtual functions.
    pub sriov: Option<Sriov>,
    /// The ways to reset the function, best first; empty if there is none.
    pub reset_methods: Vec<String>,
    /// Folder of the function as a path of the machine (`/sys/devices/pci0000:00/0000:00:02.0`), where the tree links
    /// to it.
    pub path: Option<PathBuf>,
}

/// Virtual functions of a physical one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Sriov {
    /// Most virtual functions that there can be.
    pub total: u32,
    /// Number of virtual functions that there are.
    pub enabled: u32,
    /// True if the kernel binds a driver to new virtual functions; `None` where it does not say.
    pub autoprobe: Option<bool>,
}

impl PciFunction {
    /// True if this is an SR-IOV virtual function.
    pub fn is_virtual(&self) -> bool {
        self.physical_function.is_some()
    }

    /// The base class: the upper 8 of the 24 bits.
    pub fn base_class(&self) -> Option<u8> {
        self.class.and_then(|class| u8::try_from(class >> 16).ok())
    }
}

/// Kind of a function, from three short files, for scans of machines with hundreds of functions.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct PciIdentity {
    /// Address of the function.
    pub address: PciAddress,
    /// Maker of the function.
    pub vendor: u16,
    /// The maker's number for the model.
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

/// Identities of all PCI functions under `root`, by address. A function without readable ids is left out with a
/// warning.
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

/// The PCI functions under `root` that `pick` wants, by address: only three files are read of the others. A function
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
    let link = place(DEVICES, address.to_string());
    tree.target(&link).unwrap_or(link)
}

/// The serial number of the card that a function is on, by the function's own word. A function without power is not woken for
/// it; in every other state the kernel reads its configuration space as it is.
pub fn card_serial(tree: &TreeReading<'_>, address: PciAddress) -> SerialNumber {
    let folder = place(DEVICES, address.to_string());
    if tree.attribute(place(&folder, "power_state")).is_some_and(|state| state == "D3cold") {
        return SerialNumber::WithoutPower;
    }
    let serial = tree.serial(&place(&folder, "config"), |root| {
        ConfigFile::open(root, address)?.decode(|dword| {
            let capabilities = capabilities_by(&mut *dword);
            serial_number(&capabilities, dword)
        })
    });
    serial.map_or(SerialNumber::None, SerialNumber::Known)
}

/// Serial number of a card, as one of its functions tells it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SerialNumber {
    /// The number.
    Known(u64),
    /// The function tells none, or none to those who may read 64 bytes of its configuration space only.
    None,
    /// The function has no power, and would have to be woken.
    WithoutPower,
}

impl SerialNumber {
    /// Returns the number, where it is known.
    pub fn known(self) -> Option<u64> {
        match self {
            Self::Known(serial) => Some(serial),
            Self::None | Self::WithoutPower => None,
        }
    }
}

/// The configuration space as far as the kernel shows it: 64 bytes, or with CAP_SYS_ADMIN in the first user namespace
/// 256 or 4096. Reading it wakes a sleeping device.
///
/// # Errors
/// When there is no such space, or it cannot be read.
pub fn read_config(root: &SysRoot, address: PciAddress) -> Result<Vec<u8>, ReadFailure> {
    root.required_bytes(format!("{DEVICES}/{address}/config"), CONFIG_BYTES)
}

fn warning(name: &str, reason: String) -> TreeWarning {
    TreeWarning { path: format!("/{DEVICES}/{name}"), reason }
}

fn identity(tree: &TreeReading<'_>, name: &str) -> Result<PciIdentity, String> {
    let address: PciAddress = name.parse().map_err(|error| format!("{error}; it is left out"))?;
    let folder = place(DEVICES, name);
    let read = FunctionAttributes { tree, folder: &folder };
    let required = |attribute: &str| {
        let id = read.text(attribute).and_then(|text| hex(&text));
        id.ok_or_else(|| format!("`{attribute}` is absent or no number; it is left out"))
    };
    Ok(PciIdentity { address, vendor: required("vendor")?, device: required("device")?, class: read.id("class") })
}

fn details(tree: &TreeReading<'_>, identity: PciIdentity) -> PciFunction {
    let PciIdentity { address, vendor, device, class } = identity;
    let link = place(DEVICES, address.to_string());
    let target = tree.target(&link);
    let folder = target.clone().unwrap_or(link);
    let read = FunctionAttributes { tree, folder: &folder };
    // First: most functions lack most of what follows.
    let virtual_functions = read.virtual_functions();
    PciFunction {
        address,
        vendor,
        device,
        subsystem_vendor: read.id("subsystem_vendor"),
        subsystem_device: read.id("subsystem_device"),
        class,
        revision: read.id("revision"),
        numa_node: read.numa_node(),
        local_cpus: read.local_cpus(),
        driver: tree.link_name(place(&folder, "driver")),
        iommu_group: read.iommu_group(),
        physical_function: read.linked_function("physfn"),
        virtual_functions,
        sriov: read.sriov(),
        reset_methods: read.text("reset_method").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
        path: target.map(|target| Path::new("/").join(target)),
    }
}
