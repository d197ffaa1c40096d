//! Attributes of a device that its PCI function tells.

use std::path::Path;

use hostler_linux::{
    TreeReading,
    pci::{self, PciAddress},
    place,
};

use crate::attributes::AttributeBuilder;

/// Puts the known properties of the function into a device's attributes, and returns its driver. A sleeping function
/// is not woken for it.
pub(super) fn describe(
    tree: &TreeReading<'_>,
    address: PciAddress,
    attributes: &mut AttributeBuilder,
) -> Option<String> {
    let function = pci::function(tree, address).ok()?;
    attributes.id("vendor", Some(function.vendor));
    attributes.id("device", Some(function.device));
    attributes.text("driver", function.driver.as_ref());
    attributes.number("resource.kubernetes.io/numaNode", function.numa_node);
    attributes.text("resource.kubernetes.io/pciBusID", function.pci_bus_id());
    attributes.text("resource.kubernetes.io/pcieRoot", function.pcie_root().ok());
    let folder = pci::folder(tree, function.address);
    if is_awake(tree, &folder) {
        // The kernel asks the function.
        let text = |name: &str| tree.detail(place(&folder, name)).filter(|text| !text.is_empty() && text != "Unknown");
        let width = |name: &str| {
            let width =
                tree.understood(place(&folder, name), &text(name)?, "a number", |text| text.parse::<u64>().ok());
            width.filter(|width| *width > 0)
        };
        attributes.text("linkSpeed", text("current_link_speed"));
        attributes.text("linkSpeedMax", text("max_link_speed"));
        attributes.number("linkWidth", width("current_link_width"));
        attributes.number("linkWidthMax", width("max_link_width"));
    }
    function.driver
}

/// True if reading registers does not wake the function. Kernels that tell no power state have no such states.
pub(super) fn is_awake(tree: &TreeReading<'_>, folder: &Path) -> bool {
    tree.attribute(place(folder, "power_state")).is_none_or(|state| !state.starts_with("D3"))
}
