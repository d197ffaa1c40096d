//! AMD cards with the AMI driver, as sysfs shows them now. The driver has the function that looks after the card; its node was
//! handed over by releases up to 0.1.0, and is looked up for claims that have it from those.

use std::path::PathBuf;

use hostler_linux::{TreeReading, pci::PciAddress};

/// The name of the driver.
pub const DRIVER: &str = "ami";

/// The driver's own list: a line with the count, then one for each card with bus, device and function, the number of its
/// device node, and the number of its sensors.
const DEVICES: &str = "sys/bus/pci/drivers/ami/devices";

/// The device node of the card at `function`, relative to the root (`dev/ami0`).
pub fn node(tree: &TreeReading<'_>, function: PciAddress) -> Option<PathBuf> {
    let PciAddress { bus, device, function, domain } = function;
    // The list has no domains, so it tells nothing about functions of any but the first.
    let place = format!("{bus:02x}:{device:02x}.{function:x}");
    let list = tree.attribute(DEVICES).filter(|_| domain == 0)?;
    let mut lines = list.lines().map(str::split_whitespace);
    let mut fields = lines.find_map(|mut fields| (fields.next() == Some(place.as_str())).then_some(fields))?;
    let number: u32 = fields.next()?.parse().ok()?;
    Some(format!("dev/ami{number}").into())
}
