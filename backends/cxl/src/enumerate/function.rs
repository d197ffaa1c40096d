//! What a device's PCI function says of it.

use std::path::Path;

use hostler_linux::{
    SysRoot,
    pci::{self, PciAddress},
};

use crate::attributes::Facts;

/// Puts what is known of the function into a device's attributes, and gives its driver. A sleeping function is not woken
/// for it.
pub(super) fn describe(root: &SysRoot, address: PciAddress, facts: &mut Facts) -> Option<String> {
    let function = pci::function(root, address).ok()?;
    facts.id("vendor", Some(function.vendor));
    facts.id("device", Some(function.device));
    facts.text("driver", function.driver.as_ref());
    facts.number("resource.kubernetes.io/numaNode", function.numa_node);
    facts.text("resource.kubernetes.io/pciBusID", function.pci_bus_id());
    facts.text("resource.kubernetes.io/pcieRoot", function.pcie_root().ok());
    let folder = pci::folder(root, function.address);
    if is_awake(root, &folder) {
        let text = |name: &str| root.attribute(folder.join(name)).filter(|text| text != "Unknown");
        let number = |name: &str| text(name)?.parse::<u64>().ok().filter(|width| *width > 0);
        facts.text("linkSpeed", text("current_link_speed"));
        facts.text("linkSpeedMax", text("max_link_speed"));
        facts.number("linkWidth", number("current_link_width"));
        facts.number("linkWidthMax", number("max_link_width"));
    }
    function.driver
}

/// Whether reading registers wakes nothing. Kernels that do not tell have no such states.
pub(super) fn is_awake(root: &SysRoot, folder: &Path) -> bool {
    root.attribute(folder.join("power_state")).is_none_or(|state| !state.starts_with("D3"))
}
