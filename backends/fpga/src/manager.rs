//! Managers of the kernel's FPGA framework that no card's own drivers look after: those of systems on a chip, of
//! FPGAs on a serial bus, and of PCI functions that are programmed as a whole.

use std::path::{Path, PathBuf};

use hostler_linux::{TreeReading, pci::PciAddress, place};

/// One link for each manager, those of cards among them.
const CLASS: &str = "sys/class/fpga_manager";

/// Devices that the drivers of DFL and XRT cards make for managers of their own.
const OF_CARDS: [&str; 2] = ["dfl-fme-mgr.", "fmgr."];

/// A manager.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FpgaManager {
    /// The folder of the device that it manages, below `/sys`: `devices/platform/axi/f8007000.devcfg`.
    pub device: String,
    /// The folder with `state` and `status`, relative to the root.
    pub folder: PathBuf,
    /// The PCI function that the device is, or that it lies behind.
    pub function: Option<PciAddress>,
}

impl FpgaManager {
    /// The device's own name: the last part of its folder.
    pub fn name(&self) -> &str {
        self.device.rsplit('/').next().unwrap_or_default()
    }

    /// True if the device is a PCI function itself, and does not only lie behind one.
    pub fn is_function(&self) -> bool {
        self.function.is_some_and(|function| self.name() == function.to_string())
    }
}

/// The managers under `root`, by device.
pub fn managers(tree: &TreeReading<'_>) -> Vec<FpgaManager> {
    let mut managers: Vec<FpgaManager> =
        tree.names(CLASS).iter().filter_map(|name| manager(tree, &place(CLASS, name))).collect();
    managers.sort_by(|a, b| a.device.cmp(&b.device));
    managers
}

/// The manager of `device` (below `/sys`), as it is now.
pub fn find(tree: &TreeReading<'_>, device: &str) -> Option<FpgaManager> {
    managers(tree).into_iter().find(|manager| manager.device == device)
}

fn manager(tree: &TreeReading<'_>, link: &Path) -> Option<FpgaManager> {
    let folder = tree.target(link)?;
    let device = folder.parent().filter(|class| class.ends_with("fpga_manager"))?.parent()?;
    let device = device.strip_prefix("sys").ok()?.to_str()?.to_owned();
    let function = device.split('/').rev().find_map(|part| part.parse().ok());
    let of_card = device.split('/').any(|part| OF_CARDS.iter().any(|prefix| part.starts_with(prefix)));
    // An older driver of DFL cards hangs the manager into the management engine itself.
    let of_card = of_card || device.contains("/dfl-fme.");
    (!of_card).then_some(FpgaManager { device, folder, function })
}
