//! Which PCI functions are FPGAs, by their ids alone, and what they are called.

use hostler_linux::pci::{PciFunction, PciIdentity};

const INTEL: u16 = 0x8086;
const XILINX: u16 = 0x10ee;
const AMAZON: u16 = 0x1d0f;

/// Makers whose processing accelerators (class 12) are FPGAs. Others make AI chips of that class.
const MAKERS: [u16; 8] = [INTEL, XILINX, AMAZON, 0x1172, 0x13fe, 0x1c2c, 0x1ded, 0x3475];

/// Functions with a device feature list: what the kernel's `dfl-pci` binds to, and older shells of the same cards.
const DFL: [(u16, &[u16]); 3] = [
    (
        INTEL,
        &[
            0xbcbd, 0xbcbf, 0xbcc0, 0xbcc1, 0x09c4, 0x09c5, 0x0b30, 0x0b31, 0x0b2b, 0x0b2c, 0xbcce, 0xbccf, 0xaf00,
            0xaf01, 0x0ddb,
        ],
    ),
    (0x1c2c, &[0x1000, 0x1001, 0x1002, 0x1003]),
    (0x1ded, &[0x8103]),
];

/// The base class of processing accelerators.
const ACCELERATOR: u8 = 0x12;

/// Whether the function describes itself by a device feature list.
pub(crate) fn is_dfl(vendor: u16, device: u16) -> bool {
    DFL.iter().any(|(maker, devices)| *maker == vendor && devices.contains(&device))
}

/// Whether the function is an FPGA without any doubt.
pub(crate) fn is_fpga(vendor: u16, device: u16, base_class: Option<u8>) -> bool {
    is_dfl(vendor, device) || (base_class == Some(ACCELERATOR) && MAKERS.contains(&vendor))
}

/// Whether a closer look is worth while: the cards of some makers have any class.
pub(crate) fn may_be_fpga(function: &PciIdentity) -> bool {
    is_fpga(function.vendor, function.device, function.base_class())
        || matches!(function.vendor, XILINX | 0x13fe | 0x3475)
        || (function.vendor == AMAZON && function.device >= 0xf000)
}

/// What people call the card; `None` for those without a name of their own.
pub(crate) fn model(function: &PciFunction) -> Option<&'static str> {
    match (function.vendor, function.device, function.subsystem_device.unwrap_or(0)) {
        (INTEL, 0xbcce | 0xbccf, 0x138d) | (INTEL, 0x0b2b | 0x0b2c, _) => Some("D5005"),
        (INTEL, 0xbcce | 0xbccf, 0x1770) => Some("N6000"),
        (INTEL, 0xbcce | 0xbccf, 0x1771) => Some("N6001"),
        (INTEL, 0xbcce | 0xbccf, 0x17d4) => Some("C6100"),
        (INTEL, 0x09c4 | 0x09c5, _) => Some("PAC-A10"),
        (INTEL, 0x0b30 | 0x0b31, _) => Some("N3000"),
        _ => None,
    }
}

/// What has to be done so that a function that no driver of ours has can be handed over.
pub(crate) fn way_out(function: &PciFunction) -> String {
    let PciFunction { vendor, device, .. } = function;
    let driver = match *vendor {
        _ if function.driver.is_some() => "",
        _ if is_dfl(*vendor, *device) => ", or load dfl-pci (CONFIG_FPGA_DFL_PCI)",
        XILINX | 0x13fe | 0x3475 | AMAZON => ", or install the driver of the card (XRT or AMI)",
        _ => "",
    };
    format!("name {vendor:04x}:{device:04x} in backends.fpga.vfio{driver}")
}
