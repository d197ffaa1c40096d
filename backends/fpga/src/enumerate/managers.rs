//! Managers that are no part of a card.

use std::path::Path;

use hostler_api::{DeviceName, NameError};
use hostler_linux::{TreeReading, place};

use super::{EnumeratedDevices, FpgaScan};
use crate::{
    FpgaDevice,
    health::HealthFinding,
    manager::FpgaManager,
    offer::{OfferedDevice, text},
};

/// Longest part of a device's own name in ours: a DNS label has 63 characters, and an address takes up to 16.
const MOST: usize = 36;

/// The devices of all managers.
pub(super) fn offer(scan: &FpgaScan<'_>, found: &mut EnumeratedDevices) -> Result<(), NameError> {
    for manager in &scan.managers {
        let mut offer = OfferedDevice::new(
            device_name(manager)?,
            "manager",
            &FpgaDevice::Manager { device: manager.device.clone() },
        );
        if let Some(function) = manager.function.and_then(|function| scan.functions.get(&function)) {
            offer.set_function(function);
        } else {
            let node = scan.tree.attribute(Path::new("sys").join(&manager.device).join("numa_node"));
            let node = node.and_then(|node| node.parse::<u32>().ok());
            offer.set("resource.kubernetes.io/numaNode", node.map(|node| i64::from(node).into()));
        }
        offer.set("model", scan.tree.attribute(place(&manager.folder, "name")).as_deref().and_then(text));
        offer.set("platformDevice", text(manager.name()).filter(|_| !manager.is_function()));
        offer.findings.extend(findings(scan.tree, &manager.folder));
        // Two paths may end alike.
        if found.offers.iter().all(|earlier| earlier.device.name != offer.device.name) {
            found.offers.push(offer);
        }
    }
    Ok(())
}

/// `manager-f8007000-devcfg`: the device's own name, which firmware or the device tree gives it;
/// `manager-0000-01-00-0` for a PCI function, and both for what lies behind one.
fn device_name(manager: &FpgaManager) -> Result<DeviceName, NameError> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let own: String = stable(manager).chars().map(plain).take(MOST).collect();
    let place = manager.function.map(|function| function.to_string().replace([':', '.'], "-"));
    let parts = ["manager"].into_iter().chain(place.as_deref()).chain([own.trim_matches('-')]);
    DeviceName::new(parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-"))
}

/// The part of the device's own name that outlives a reboot: behind a PCI function, buses are numbered as they come
/// (`spi3.0`).
fn stable(manager: &FpgaManager) -> String {
    match (manager.function, manager.name().split_once('.')) {
        _ if manager.is_function() => String::new(),
        (Some(_), Some((bus, place))) => format!("{}.{place}", bus.trim_end_matches(|c: char| c.is_ascii_digit())),
        _ => manager.name().to_owned(),
    }
}

/// Findings that the last programming has left: states that end in an error, and messages of the hardware.
pub(super) fn findings(tree: &TreeReading<'_>, folder: &Path) -> Vec<HealthFinding> {
    let state = tree.attribute(place(folder, "state")).filter(|state| state.ends_with("error"));
    let status = tree.attribute(place(folder, "status")).unwrap_or_default();
    let lines: Vec<&str> =
        status.lines().filter(|line| line.contains("error") || line.contains("incompatible")).collect();
    let status = (!lines.is_empty()).then(|| HealthFinding::passing("fpga_manager/status", lines.join(", ")));
    state.map(|state| HealthFinding::passing("fpga_manager/state", state)).into_iter().chain(status).collect()
}
