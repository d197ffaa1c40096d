//! Hands PCI functions to `vfio-pci` and gives them back to the driver that they had.
//!
//! ```text
//!   former driver ── driver_override=vfio-pci, unbind, drivers_probe ──► vfio-pci
//!   vfio-pci ── override as before, unbind, probe ──► former driver
//! ```
//!
//! The kernel accepts a probe that binds nothing, so every step is read back. The unit of isolation is the IOMMU
//! group: as long as a driver of the host works with one member, no other can be handed over.

mod nodes;
#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
};

use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

use crate::{DeviceUser, ReadFailure, SysRoot, pci::PciAddress, users};

pub use nodes::{NODE_PATTERNS, VfioNodes, nodes};

/// The driver that hands functions over.
pub const DRIVER: &str = "vfio-pci";

const DEVICES: &str = "sys/bus/pci/devices";
const DRIVERS: &str = "sys/bus/pci/drivers";
const GROUPS: &str = "sys/kernel/iommu_groups";
/// Content of an override that is not set, as the kernel prints it.
const NO_OVERRIDE: &str = "(null)";
/// Text that clears an override.
const CLEAR: &str = "\n";

/// Binding of a function before it was handed over, to be restored by giving it back.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct DriverBinding {
    /// Driver of the function, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The function's `driver_override`, if it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_override: Option<String>,
}

/// Why a function cannot be handed over or given back.
#[derive(Debug, thiserror::Error)]
pub enum VfioError {
    /// There is no such function.
    #[error("PCI function {address} is gone")]
    Gone {
        /// Address of the function.
        address: PciAddress,
    },
    /// The kernel has no `vfio-pci`.
    #[error("the kernel has no driver vfio-pci: load the module of that name")]
    NoDriver,
    /// Nothing keeps the function's memory accesses apart from those of others.
    #[error("PCI function {address} has no IOMMU group: switch the IOMMU on in firmware and kernel")]
    NoGroup {
        /// Address of the function.
        address: PciAddress,
    },
    /// A driver of the host works with a member of the group.
    #[error(
        "IOMMU group {group} also holds {member}, which the driver {driver} uses: all of a group are handed over, or none"
    )]
    SharedGroup {
        /// The group.
        group: u32,
        /// The member at fault.
        member: String,
        /// Driver of the member.
        driver: String,
    },
    /// A process has the function open. The kernel would let us wait for as long as that takes.
    #[error("PCI function {address} is in use by {users}")]
    InUse {
        /// Address of the function.
        address: PciAddress,
        /// Users of the function.
        users: String,
    },
    /// A recorded name could lead out of the folder of drivers.
    #[error("{name:?} is not the name of a driver")]
    DriverName {
        /// Name in the record.
        name: String,
    },
    /// The binding cannot be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// The kernel refused a write.
    #[error("failed to write {text:?} to /{}", path.display())]
    Write {
        /// Text that was written.
        text: String,
        /// File, below the root.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel took a write, which did not have the effect that it should have.
    #[error("PCI function {address} should be bound to {wanted}, and is bound to {found}")]
    Binding {
        /// Address of the function.
        address: PciAddress,
        /// The driver that was asked for, or "nothing".
        wanted: String,
        /// The driver that the function has, or "nothing".
        found: String,
    },
    /// The override was not stored.
    #[error("driver_override of PCI function {address} reads {found:?} after {wanted:?} was written")]
    Override {
        /// Address of the function.
        address: PciAddress,
        /// Text that was written.
        wanted: String,
        /// Content of the file.
        found: String,
    },
    /// A device node that has to be there is not.
    #[error("{path} is absent although PCI function {address} is bound to vfio-pci")]
    NoNode {
        /// The node.
        path: String,
        /// The function's address.
        address: PciAddress,
    },
}

/// Reads how a function is bound now.
///
/// # Errors
/// When the function is gone, or that cannot be told.
pub fn binding(root: &SysRoot, address: PciAddress) -> Result<DriverBinding, VfioError> {
    let folder = folder(root, address)?;
    Ok(DriverBinding { driver: driver(root, &folder)?, driver_override: driver_override(root, &folder)? })
}

/// True if a function is bound to `vfio-pci`. One that is gone is not.
///
/// # Errors
/// When that cannot be told.
pub fn is_bound(root: &SysRoot, address: PciAddress) -> Result<bool, VfioError> {
    match binding(root, address) {
        Err(VfioError::Gone { .. }) => Ok(false),
        now => Ok(now?.driver.as_deref() == Some(DRIVER)),
    }
}

/// The IOMMU group of a function: all members are handed over together. `None` where there is no IOMMU, or no
/// function.
///
/// # Errors
/// When that cannot be told.
pub fn group_of(root: &SysRoot, address: PciAddress) -> Result<Option<u32>, VfioError> {
    match folder(root, address) {
        Err(VfioError::Gone { .. }) => Ok(None),
        folder => Ok(group(root, &folder?)?),
    }
}

/// Checks that a function could be handed over: there is a driver to do it, and no driver of the host uses another
/// member of its group, bridges apart. Gives the group. Writes nothing.
///
/// # Errors
/// When the function could not be, with the member that is in the way.
pub fn check(root: &SysRoot, address: PciAddress) -> Result<u32, VfioError> {
    let folder = folder(root, address)?;
    if !root.exists(Path::new(DRIVERS).join(DRIVER))? {
        return Err(VfioError::NoDriver);
    }
    let group = group(root, &folder)?.ok_or(VfioError::NoGroup { address })?;
    for member in root.names(format!("{GROUPS}/{group}/devices"))? {
        if member == address.to_string() {
            continue;
        }
        let member_folder = Path::new(DEVICES).join(&member);
        let Some(driver) = driver(root, &member_folder)? else { continue };
        if !is_bridge(root, &member_folder)? && !driver.contains("vfio") {
            return Err(VfioError::SharedGroup { group, member, driver });
        }
    }
    Ok(group)
}

/// Binds a function to `vfio-pci` and gives the device nodes that its user needs. One that is bound already stays so.
///
/// # Errors
/// When a step fails or has no effect. [`give_back`] undoes the steps until then.
pub fn hand_over(root: &SysRoot, address: PciAddress) -> Result<VfioNodes, VfioError> {
    check(root, address)?;
    let folder = folder(root, address)?;
    if driver(root, &folder)?.as_deref() != Some(DRIVER) {
        set_override(root, address, &folder, Some(DRIVER))?;
        unbind(root, address, &folder)?;
        probe(root, address)?;
        expect_driver(root, address, &folder, Some(DRIVER))?;
    }
    nodes(root, address)
}

/// Gives a function back to the binding that it had before [`hand_over`], or undoes any part of that. A function that
/// is gone, or was given back already, is left alone.
///
/// # Errors
/// When the function is still open in a process, or a step fails or has no effect.
pub fn give_back(root: &SysRoot, address: PciAddress, former: &DriverBinding) -> Result<(), VfioError> {
    let now = match binding(root, address) {
        Ok(now) => now,
        Err(VfioError::Gone { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    if now == *former {
        return Ok(());
    }
    let folder = folder(root, address)?;
    set_override(root, address, &folder, former.driver_override.as_deref())?;
    if now.driver == former.driver {
        return Ok(());
    }
    if now.driver.as_deref() == Some(DRIVER) {
        expect_unused(root, address)?;
    }
    unbind(root, address, &folder)?;
    let Some(driver) = &former.driver else { return expect_driver(root, address, &folder, None) };
    probe(root, address)?;
    if self::driver(root, &folder)?.is_none() {
        // A driver that took the function by an id of its own making (`new_id`) is not found by probing.
        write(root, driver_folder(driver)?.join("bind"), &address.to_string())?;
    }
    expect_driver(root, address, &folder, Some(driver))
}

/// Takes the driver from a function, whichever it is, and gives the binding that it had. A function without one is left
/// alone.
///
/// # Errors
/// When the function was handed over and is open in a process, or the step fails or has no effect.
pub fn unbind_driver(root: &SysRoot, address: PciAddress) -> Result<DriverBinding, VfioError> {
    let former = binding(root, address)?;
    if former.driver.as_deref() == Some(DRIVER) {
        expect_unused(root, address)?;
    }
    unbind(root, address, &folder(root, address)?)?;
    Ok(former)
}

/// Undoes [`unbind_driver`]. A function whose former driver is not known, as after a crash, gets the one that the kernel
/// finds for it.
///
/// # Errors
/// When the function is gone, or the former driver does not take it.
pub fn bind_driver(root: &SysRoot, address: PciAddress, former: &DriverBinding) -> Result<(), VfioError> {
    if former.driver.is_none() { probe(root, address) } else { give_back(root, address, former) }
}

/// Refuses while the function is in use: unbinding waits in the kernel until the last user has gone, for ever if need
/// be.
///
/// # Errors
/// When a process has the function open, or that cannot be told.
pub fn expect_unused(root: &SysRoot, address: PciAddress) -> Result<(), VfioError> {
    let nodes = match nodes(root, address) {
        Ok(nodes) => nodes,
        Err(VfioError::Read(failure)) => return Err(failure.into()),
        // Nodes that are absent cannot be open.
        Err(_) => return Ok(()),
    };
    let found = users(root, &nodes.own())?;
    if !found.is_empty() {
        return Err(VfioError::InUse {
            address,
            users: found.iter().map(DeviceUser::to_string).collect::<Vec<_>>().join(", "),
        });
    }
    // Processes that cannot be seen from here, of another process namespace, show all the same: a group is opened once.
    let node = nodes.group.trim_start_matches('/');
    match root.device(node, OFlag::empty()) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            Err(VfioError::InUse { address, users: "a process that cannot be seen from here".to_owned() })
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ReadFailure::new(node, error).into()),
        _ => Ok(()),
    }
}

/// The function's own folder, not the link to it.
fn folder(root: &SysRoot, address: PciAddress) -> Result<PathBuf, VfioError> {
    let link = Path::new(DEVICES).join(address.to_string());
    let folder = root.target(&link)?.unwrap_or(link);
    if root.exists(&folder)? { Ok(folder) } else { Err(VfioError::Gone { address }) }
}

fn group(root: &SysRoot, folder: &Path) -> Result<Option<u32>, ReadFailure> {
    Ok(root.link_name(folder.join("iommu_group"))?.and_then(|group| group.parse().ok()))
}

fn driver(root: &SysRoot, folder: &Path) -> Result<Option<String>, ReadFailure> {
    root.link_name(folder.join("driver"))
}

/// Returns true for a bridge, base class 06.
fn is_bridge(root: &SysRoot, folder: &Path) -> Result<bool, ReadFailure> {
    Ok(root.attribute(folder.join("class"))?.is_some_and(|class| class.starts_with("0x06")))
}

fn driver_override(root: &SysRoot, folder: &Path) -> Result<Option<String>, ReadFailure> {
    let text = root.attribute(folder.join("driver_override"))?;
    Ok(text.filter(|text| !text.is_empty() && text != NO_OVERRIDE))
}

fn set_override(root: &SysRoot, address: PciAddress, folder: &Path, wanted: Option<&str>) -> Result<(), VfioError> {
    if driver_override(root, folder)?.as_deref() == wanted {
        return Ok(());
    }
    write(root, folder.join("driver_override"), wanted.unwrap_or(CLEAR))?;
    let found = driver_override(root, folder)?;
    if found.as_deref() == wanted {
        return Ok(());
    }
    let text = |name: Option<&str>| name.unwrap_or_default().to_owned();
    Err(VfioError::Override { address, wanted: text(wanted), found: text(found.as_deref()) })
}

fn unbind(root: &SysRoot, address: PciAddress, folder: &Path) -> Result<(), VfioError> {
    let Some(driver) = driver(root, folder)? else { return Ok(()) };
    write(root, driver_folder(&driver)?.join("unbind"), &address.to_string())?;
    expect_driver(root, address, folder, None)
}

fn probe(root: &SysRoot, address: PciAddress) -> Result<(), VfioError> {
    write(root, "sys/bus/pci/drivers_probe".into(), &address.to_string())
}

fn expect_driver(root: &SysRoot, address: PciAddress, folder: &Path, wanted: Option<&str>) -> Result<(), VfioError> {
    let found = driver(root, folder)?;
    if found.as_deref() == wanted {
        return Ok(());
    }
    let text = |name: Option<&str>| name.unwrap_or("nothing").to_owned();
    Err(VfioError::Binding { address, wanted: text(wanted), found: text(found.as_deref()) })
}

/// Folder of a driver. Names of drivers come from records too: they must not lead out of the folder.
fn driver_folder(name: &str) -> Result<PathBuf, VfioError> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(VfioError::DriverName { name: name.to_owned() });
    }
    Ok(Path::new(DRIVERS).join(name))
}

fn write(root: &SysRoot, path: PathBuf, text: &str) -> Result<(), VfioError> {
    root.write(&path, text).map_err(|source| VfioError::Write { text: text.to_owned(), path, source })
}
