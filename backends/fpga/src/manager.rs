//! Managers of the kernel's FPGA framework that are no part of a card: those of systems on a chip.

use std::path::{Path, PathBuf};

use hostler_linux::SysRoot;

/// One link for each manager, those of cards among them.
const CLASS: &str = "sys/class/fpga_manager";

/// A manager.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Manager {
    /// The folder of the device that it manages, below `/sys`: `devices/platform/axi/f8007000.devcfg`.
    pub device: String,
    /// The folder with `state` and `status`, relative to the root.
    pub folder: PathBuf,
}

/// The managers of platform devices under `root`, by device.
pub fn managers(root: &SysRoot) -> Vec<Manager> {
    let mut managers: Vec<Manager> =
        root.names(CLASS).iter().filter_map(|name| manager(root, &Path::new(CLASS).join(name))).collect();
    managers.sort_by(|a, b| a.device.cmp(&b.device));
    managers
}

/// The manager of `device` (below `/sys`), as it is now.
pub fn find(root: &SysRoot, device: &str) -> Option<Manager> {
    managers(root).into_iter().find(|manager| manager.device == device)
}

/// What lies below a PCI bus is a part of a card, and the card's drivers program it.
fn manager(root: &SysRoot, link: &Path) -> Option<Manager> {
    let folder = root.target(link)?;
    let device = folder.parent().filter(|class| class.ends_with("fpga_manager"))?.parent()?;
    let device = device.strip_prefix("sys").ok()?.to_str()?.to_owned();
    let on_card = device.split('/').any(|part| part.starts_with("pci"));
    (!on_card).then_some(Manager { device, folder })
}
