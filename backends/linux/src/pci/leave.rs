//! PCI functions that are to leave the system.

use std::{io, path::PathBuf};

use super::{DEVICES, PciAddress};
use crate::{CharacterDevices, DeviceUser, ReadFailure, SysRoot, users};

/// Bit of a network interface's flags: it is in use.
const IS_UP: u32 = 1;

/// Reason why a function does not leave the system.
#[derive(Debug, thiserror::Error)]
pub enum PciLeaveError {
    /// Processes have its device nodes open.
    #[error("PCI function {address} is in use by {users}")]
    InUse {
        /// Address of the function.
        address: PciAddress,
        /// The processes.
        users: String,
    },
    /// A network interface of it is up.
    #[error("PCI function {address} is in use: its network interface {interface} is up")]
    InterfaceUp {
        /// Address of the function.
        address: PciAddress,
        /// Name of the interface.
        interface: String,
    },
    /// The state could not be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// The kernel refused.
    #[error("failed to remove PCI function {address}")]
    Write {
        /// Address of the function.
        address: PciAddress,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel accepted the removal and did nothing.
    #[error("PCI function {address} is still there after it was removed")]
    NotRemoved {
        /// Address of the function.
        address: PciAddress,
    },
}

/// Checks that no process has a device node of the function open, one of `nodes` (`/dev/…`) or one that its driver made,
/// and that no network interface of it is up.
///
/// # Errors
/// When the function is in use, or that cannot be told.
pub fn expect_unused(root: &SysRoot, address: PciAddress, nodes: &[String]) -> Result<(), PciLeaveError> {
    let made = root.look(|tree| CharacterDevices::read(tree).beneath(tree, &super::folder(tree, address)))?;
    let mut nodes = nodes.to_vec();
    nodes.extend(made.into_iter().map(|name| format!("/dev/{name}")));
    let found = users(root, &nodes)?;
    if !found.is_empty() {
        let users = found.iter().map(DeviceUser::to_string).collect::<Vec<_>>().join(", ");
        return Err(PciLeaveError::InUse { address, users });
    }
    let interfaces = PathBuf::from(format!("{DEVICES}/{address}/net"));
    for interface in root.names(&interfaces)? {
        let flags = root.attribute(interfaces.join(&interface).join("flags"))?.unwrap_or_default();
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16);
        if flags.map_or(true, |flags| flags & IS_UP != 0) {
            return Err(PciLeaveError::InterfaceUp { address, interface });
        }
    }
    Ok(())
}

/// Removes a function from the system. The kernel does so even under memory of it that is in use, and dies of it: only for
/// functions that have none.
///
/// # Errors
/// When the kernel refuses, or the function is still there.
pub fn remove(root: &SysRoot, address: PciAddress) -> Result<(), PciLeaveError> {
    let folder = format!("{DEVICES}/{address}");
    root.write(format!("{folder}/remove"), "1").map_err(|source| PciLeaveError::Write { address, source })?;
    expect_removed(root, address)
}

/// Checks that a function has left the system.
///
/// # Errors
/// When it is still there, or that cannot be told.
pub fn expect_removed(root: &SysRoot, address: PciAddress) -> Result<(), PciLeaveError> {
    if root.exists(format!("{DEVICES}/{address}"))? { Err(PciLeaveError::NotRemoved { address }) } else { Ok(()) }
}
