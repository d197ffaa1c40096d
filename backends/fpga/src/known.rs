//! PCI functions that are FPGAs, by their ids alone, and the names of their cards.

use std::collections::BTreeMap;

use hostler_linux::pci::{PciAddress, PciFunction, PciIdentity};

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

/// Ids of the cards of AWS F1 and F2 instances, whose class is that of a memory controller: the shell's own id, and
/// that of examples. Designs may bring others, which `backends.fpga.vfio` names.
const AMAZON_SHELLS: [u16; 3] = [0xf000, 0xf001, 0xf010];

/// Drivers of designs with AMD's PCIe cores for DMA (XDMA, QDMA). Their nodes are memory windows of the design, which
/// hostler does not know.
const DMA_DRIVERS: [&str; 4] = ["xdma", "qdma", "qdma-pf", "qdma-vf"];

/// Drivers of functions that look after a card. Such a function programs the card for every user of it.
const MANAGEMENT_DRIVERS: [&str; 2] = ["xclmgmt", crate::ami::DRIVER];

/// XRT's driver of functions for users.
const USER_DRIVER: &str = "xocl";

/// Intel's driver from before feature lists were part of the kernel; it shows cards in `/sys/class/fpga`.
const OUT_OF_TREE: &str = "intel-fpga-pci";

/// The base class of processing accelerators.
const ACCELERATOR: u8 = 0x12;

/// True if the function describes itself by a device feature list.
pub(crate) fn is_dfl(vendor: u16, device: u16) -> bool {
    DFL.iter().any(|(maker, devices)| *maker == vendor && devices.contains(&device))
}

/// True if the function is an FPGA without any doubt.
pub(crate) fn is_fpga(vendor: u16, device: u16, base_class: Option<u8>) -> bool {
    is_dfl(vendor, device)
        || (base_class == Some(ACCELERATOR) && MAKERS.contains(&vendor))
        || (vendor == AMAZON && AMAZON_SHELLS.contains(&device))
        || (vendor == XILINX && is_dma_core(device))
}

/// True for the ids that AMD's PCIe cores have unless a design sets its own: a family (7, 8, 9, or b for Versal), the
/// number of the function, the generation of the link and its lanes, as in 903f and 9038. Virtual functions (a, c)
/// are known by their card.
fn is_dma_core(device: u16) -> bool {
    let [family, function, generation, lanes] = [12, 8, 4, 0].map(|shift| device >> shift & 0xf);
    matches!(family, 7 | 8 | 9 | 0xb)
        && function < 4
        && (1..=4).contains(&generation)
        && matches!(lanes, 1 | 2 | 4 | 8 | 0xf)
}

/// True for a function that looks after its card. A driver that serves neither management nor users, as those that
/// only keep a function for later use (`vfio-pci`, `pci-stub`, `uio_pci_generic`), decides nothing: the function is
/// then judged as one without a driver.
pub(crate) fn is_management(function: &PciFunction, others: &BTreeMap<PciAddress, PciFunction>) -> bool {
    match function.driver.as_deref() {
        Some(driver) if MANAGEMENT_DRIVERS.contains(&driver) => true,
        Some(driver) if driver == USER_DRIVER || DMA_DRIVERS.contains(&driver) => false,
        _ => has_place_of_management(function, others),
    }
}

/// True for the place that management has on AMD's cards: the first function of a slot. The function for users is the
/// second, with the next number as its id. Where a virtual machine or another host has the second, the id decides.
fn has_place_of_management(function: &PciFunction, others: &BTreeMap<PciAddress, PciFunction>) -> bool {
    let user = PciAddress { function: 1, ..function.address };
    let is_user = |user: &PciFunction| user.vendor == XILINX && function.device.checked_add(1) == Some(user.device);
    function.vendor == XILINX
        && function.base_class() == Some(ACCELERATOR)
        && function.address.function == 0
        && (has_id_of_management(function.device) || others.get(&user).is_some_and(is_user))
}

/// True for the ids that AMD's own designs give to management, as XRT's drivers list them. Since the Alveo cards ids
/// are multiples of four (5000, 513c, 50b4; d000 for a card as it leaves the factory); before, ids ended in 7 or f
/// (6a8f).
fn has_id_of_management(device: u16) -> bool {
    match device {
        0x504e | 0x6098 | 0xe098 | 0xeb10 | 0xa883 | 0xa983 | 0xe987 | 0xf987 => true,
        0x5000..=0x5fff | 0xd000..=0xdfff => device.is_multiple_of(4),
        0x4000..=0x8fff => matches!(device & 0xf, 7 | 0xf) && !is_dma_core(device),
        _ => false,
    }
}

/// True if a closer look is worthwhile: the cards of some makers have any class.
pub(crate) fn may_be_fpga(function: &PciIdentity) -> bool {
    is_fpga(function.vendor, function.device, function.base_class())
        || matches!(function.vendor, XILINX | 0x13fe | 0x3475)
        || (function.vendor == AMAZON && function.device >= 0xf000)
}

/// Common name of the card; `None` for a card without a name of its own.
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

/// Tells the operator how to have a function handed over that no supported driver is bound to.
pub(crate) fn way_out(function: &PciFunction) -> String {
    let PciFunction { vendor, device, .. } = function;
    let driver = match *vendor {
        _ if function.driver.as_deref() == Some(OUT_OF_TREE) => {
            ", or unload this driver from outside the kernel and load dfl-pci (CONFIG_FPGA_DFL_PCI)"
        }
        _ if function.driver.as_deref().is_some_and(|driver| DMA_DRIVERS.contains(&driver)) => {
            ": the nodes of this driver are windows into the design and are not handed over"
        }
        _ if function.driver.is_some() => "",
        _ if is_dfl(*vendor, *device) => ", or load dfl-pci (CONFIG_FPGA_DFL_PCI)",
        XILINX | 0x13fe | 0x3475 | AMAZON => ", or install the driver of the card (XRT or AMI)",
        _ => "",
    };
    format!("name {vendor:04x}:{device:04x} in backends.fpga.vfio{driver}")
}
