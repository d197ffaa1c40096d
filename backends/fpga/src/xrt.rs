//! AMD cards with the XRT drivers, as sysfs shows them now: two functions of one slot, one for programs and one for
//! management.

use std::path::{Path, PathBuf};

use hostler_linux::{
    TreeReading,
    pci::{self, PciAddress},
    place,
};

/// Only the function for users has this attribute.
const USER: &str = "user_pf";
/// Only the function for management has this attribute.
const MANAGEMENT: &str = "mgmt_pf";

/// A card.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct XrtCard {
    /// The function that programs use.
    pub user: XrtFunction,
    /// Node through which programs open the card, relative to the root (`dev/dri/renderD128`).
    pub render_node: Option<PathBuf>,
    /// The function for management, where this host has it and its driver.
    pub management: Option<XrtFunction>,
    /// Node through which management opens the card, relative to the root (`dev/xclmgmt45312`).
    pub management_node: Option<PathBuf>,
}

impl XrtCard {
    /// The functions of the card that this host has.
    pub fn functions(&self) -> impl Iterator<Item = PciAddress> {
        let management = self.management.as_ref().map(|function| function.address);
        [self.user.address].into_iter().chain(management)
    }
}

/// A function with a driver of XRT. Its parts are folders whose names end in a number that is the function's own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct XrtFunction {
    /// Address of the function.
    pub address: PciAddress,
    /// Folder of the function, relative to the root.
    pub folder: PathBuf,
    /// Names of the entries in the folder.
    names: Vec<String>,
}

impl XrtFunction {
    fn read(tree: &TreeReading<'_>, address: PciAddress) -> Self {
        let folder = pci::folder(tree, address);
        let names = tree.names(&folder);
        Self { address, folder, names }
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// The folder of a part (`rom` of `rom.u.45313`).
    pub fn part(&self, name: &str) -> Option<PathBuf> {
        let found = self.names.iter().find(|known| known.split('.').next() == Some(name) && known.contains('.'));
        found.map(|found| place(&self.folder, found))
    }

    /// An attribute of the function itself, or of the first of these parts that has it: a detail, for the drivers ask
    /// the card.
    pub fn text(&self, tree: &TreeReading<'_>, parts: &[&str], attribute: &str) -> Option<String> {
        let folders = parts.iter().filter_map(|part| self.part(part));
        let files = [self.folder.clone()].into_iter().chain(folders).map(|folder| place(&folder, attribute));
        files.filter_map(|file| tree.detail(file)).find(|text| !text.is_empty())
    }
}

/// True if XRT's driver says that the function looks after its card.
pub fn is_management(tree: &TreeReading<'_>, function: PciAddress) -> bool {
    tree.exists(pci::folder(tree, function).join(MANAGEMENT))
}

/// The cards whose functions are among `candidates`, by address.
pub fn cards(tree: &TreeReading<'_>, candidates: impl Iterator<Item = PciAddress>) -> Vec<XrtCard> {
    let functions: Vec<XrtFunction> = candidates.map(|address| XrtFunction::read(tree, address)).collect();
    let management = |user: PciAddress| {
        functions.iter().find(|function| function.has(MANAGEMENT) && function.address.slot() == user.slot()).cloned()
    };
    let users = functions.iter().filter(|function| function.has(USER));
    users.map(|user| join(tree, user.clone(), management(user.address))).collect()
}

/// The card whose function for users is at `user`, as it is now.
pub fn find(tree: &TreeReading<'_>, user: PciAddress, management: Option<PciAddress>) -> Option<XrtCard> {
    cards(tree, [user].into_iter().chain(management)).into_iter().find(|card| card.user.address == user)
}

fn join(tree: &TreeReading<'_>, user: XrtFunction, management: Option<XrtFunction>) -> XrtCard {
    let nodes = tree.names(place(&user.folder, "drm"));
    let render = nodes.iter().find(|name| name.starts_with("renderD"));
    let render_node = render.map(|name| Path::new("dev/dri").join(name));
    let management_node = management.as_ref().map(|function| {
        let told = function.text(tree, &[], "instance").and_then(|text| text.parse::<u32>().ok());
        format!("dev/xclmgmt{}", told.unwrap_or_else(|| instance(function.address))).into()
    });
    XrtCard { user, render_node, management, management_node }
}

/// Number that XRT's drivers make of an address.
fn instance(address: PciAddress) -> u32 {
    let PciAddress { domain, bus, device, function } = address;
    domain << 16 | u32::from(bus) << 8 | u32::from(device) << 3 | u32::from(function)
}
