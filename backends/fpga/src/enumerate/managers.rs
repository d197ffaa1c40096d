//! Managers of systems on a chip.

use std::path::Path;

use hostler_backend::{DeviceName, NameError};
use hostler_linux::SysRoot;

use super::{Found, Look};
use crate::{
    Target,
    health::Finding,
    manager::{Manager, managers},
    offer::{Offer, text},
};

/// Longest part of a device's path in a name: a DNS label has 63 characters.
const MOST: usize = 50;

/// The devices of all managers.
pub(super) fn offer(look: &Look<'_>, found: &mut Found) -> Result<(), NameError> {
    for manager in managers(look.root) {
        let mut offer =
            Offer::new(device_name(&manager)?, "manager", &Target::Manager { device: manager.device.clone() });
        offer.set("model", look.root.attribute(manager.folder.join("name")).as_deref().and_then(text));
        offer.set("platformDevice", Path::new(&manager.device).file_name().and_then(|name| text(name.to_str()?)));
        let node = look.root.attribute(Path::new("sys").join(&manager.device).join("numa_node"));
        let node = node.and_then(|node| node.parse::<u32>().ok());
        offer.set("resource.kubernetes.io/numaNode", node.map(|node| i64::from(node).into()));
        offer.findings.extend(findings(look.root, &manager.folder));
        // Two paths may end alike.
        if found.offers.iter().all(|earlier| earlier.device.name != offer.device.name) {
            found.offers.push(offer);
        }
    }
    Ok(())
}

/// `manager-f8007000-devcfg`: the platform device's own name, which firmware or the device tree gives it.
fn device_name(manager: &Manager) -> Result<DeviceName, NameError> {
    let own = manager.device.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = own.chars().map(plain).take(MOST).collect();
    let label = label.trim_matches('-');
    DeviceName::new(if label.is_empty() { "manager".to_owned() } else { format!("manager-{label}") })
}

/// What the last programming has left: states that end in an error, and what the hardware said.
pub(super) fn findings(root: &SysRoot, folder: &Path) -> Vec<Finding> {
    let state = root.attribute(folder.join("state")).filter(|state| state.ends_with("error"));
    let status = root.attribute(folder.join("status")).unwrap_or_default();
    let lines: Vec<&str> =
        status.lines().filter(|line| line.contains("error") || line.contains("incompatible")).collect();
    let status = (!lines.is_empty()).then(|| Finding::passing("fpga_manager/status", lines.join(", ")));
    state.map(|state| Finding::passing("fpga_manager/state", state)).into_iter().chain(status).collect()
}
