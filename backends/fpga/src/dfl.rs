//! Cards that describe themselves by a device feature list (Intel, Altera and their like), as sysfs shows them now.
//!
//! ```text
//! <function>/fpga_region/regionN              one for each function of the card
//!   dfl-fme.N                                 the management engine, one for each card; /dev/dfl-fme.N
//!     dfl-fme-mgr.N/fpga_manager/fpgaN        writes bitstreams
//!     dfl-fme-region.N/fpga_region/regionN    one for each port, in the order of ports; compat_id is the interface
//!   dfl-port.N                                a port, with an accelerator function behind it; /dev/dfl-port.N
//! ```
//!
//! All these N are the kernel's and change between boots. A port may sit on a virtual function; the engine stays on the
//! physical one.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use hostler_linux::{TreeReading, pci::PciAddress};

mod join;
#[cfg(test)]
mod tests;

/// The driver of the functions.
pub const DRIVER: &str = "dfl-pci";

/// One link for each region, those of functions and those that can be programmed.
const REGIONS: &str = "sys/class/fpga_region";

/// A card: the functions of one slot and their virtual functions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DflCard {
    /// The function with the engine; without an engine, the physical function of the first port.
    pub address: PciAddress,
    /// Every function of the card that the kernel treats as a feature list, in order.
    pub functions: Vec<PciAddress>,
    /// Management engine of the card; absent in a guest that was given a port only.
    pub engine: Option<ManagementEngine>,
    /// The ports that this host has, by number. A port that was given to a guest is not among them.
    pub ports: Vec<DflPort>,
}

/// The management engine of a card.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ManagementEngine {
    /// The engine's function.
    pub function: PciAddress,
    /// Folder of the engine, relative to the root.
    pub folder: PathBuf,
    /// Device node of the engine, relative to the root (`dev/dfl-fme.0`).
    pub node: PathBuf,
    /// The folder with `state` and `status` of what writes bitstreams.
    pub manager: Option<PathBuf>,
    /// Regions that can be programmed, by port.
    pub regions: Vec<DflRegion>,
}

/// A part of the card that can be programmed while the rest works.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DflRegion {
    /// Number of the port behind the region.
    pub port: u32,
    /// Folder of the region, relative to the root.
    pub folder: PathBuf,
    /// Interface that a bitstream must fit to, 32 hex digits.
    pub interface_id: Option<String>,
}

/// A port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DflPort {
    /// The card's number for the port.
    pub id: u32,
    /// Function that the port sits on.
    pub function: PciAddress,
    /// Folder of the port, relative to the root.
    pub folder: PathBuf,
    /// Device node of the port, relative to the root (`dev/dfl-port.0`).
    pub node: PathBuf,
}

impl DflCard {
    /// The port with this number, if this host has it.
    pub fn port(&self, id: u32) -> Option<&DflPort> {
        self.ports.iter().find(|port| port.id == id)
    }

    /// The region in front of this port.
    pub fn region(&self, port: u32) -> Option<&DflRegion> {
        self.engine.as_ref()?.regions.iter().find(|region| region.port == port)
    }
}

/// All cards of a tree, by address.
pub fn cards(tree: &TreeReading<'_>) -> Vec<DflCard> {
    let mut cards: Vec<DflCard> =
        slots(bases(tree)).into_values().flat_map(|bases| join::cards(tree, &bases)).collect();
    cards.sort_by_key(|card| card.address);
    cards
}

/// The card at `address`, as it is now.
pub fn find(tree: &TreeReading<'_>, address: PciAddress) -> Option<DflCard> {
    let bases = slots(bases(tree)).into_values().find(|bases| bases.iter().any(|base| base.function == address))?;
    join::cards(tree, &bases).into_iter().find(|card| card.address == address)
}

/// 32 hex digits, lower case; `None` for anything else, and for zeros, which no tool makes.
pub fn read_id(text: &str) -> Option<String> {
    let digits = text.trim().replace('-', "").to_ascii_lowercase();
    let hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (hex && digits.bytes().any(|byte| byte != b'0')).then_some(digits)
}

/// The region of a whole function.
#[derive(Clone, Debug)]
struct BaseRegion {
    function: PciAddress,
    /// The physical function, which is the function itself unless it is virtual.
    physical: PciAddress,
    folder: PathBuf,
}

fn bases(tree: &TreeReading<'_>) -> Vec<BaseRegion> {
    let mut bases: Vec<BaseRegion> =
        tree.names(REGIONS).iter().filter_map(|name| base(tree, &Path::new(REGIONS).join(name))).collect();
    bases.sort_by(|a, b| (a.function, &a.folder).cmp(&(b.function, &b.folder)));
    bases
}

/// Regions that can be programmed lie below an engine, those of a function right below the function.
fn base(tree: &TreeReading<'_>, link: &Path) -> Option<BaseRegion> {
    let folder = tree.target(link).filter(|folder| folder.parent().is_some_and(|class| class.ends_with("fpga_region")));
    let Some(folder) = folder else {
        tree.warn(link, "does not lead to a region; the function behind it is not shown as part of a card");
        return None;
    };
    let device = folder.parent()?.parent()?;
    let function: PciAddress = device.file_name()?.to_str()?.parse().ok()?;
    let physical = tree.link_name(device.join("physfn")).and_then(|name| name.parse().ok());
    Some(BaseRegion { function, physical: physical.unwrap_or(function), folder })
}

/// The bases of each slot: a card can be many functions. Virtual functions may lie in another slot than their card.
fn slots(bases: Vec<BaseRegion>) -> BTreeMap<(u32, u8, u8), Vec<BaseRegion>> {
    let mut slots: BTreeMap<_, Vec<BaseRegion>> = BTreeMap::new();
    for base in bases {
        slots.entry(base.physical.slot()).or_default().push(base);
    }
    slots
}
