//! Reads Linux: sysfs and procfs, PCI, uevents, cgroups, interrupts, and hands over its devices. The only crate that
//! may contain `unsafe`, but for two calls of the allocator in `hostler-heap`.
//!
//! Everything that reads `/sys`, `/proc` or `/dev` takes a [`SysRoot`]: the host's own tree, a captured machine or a
//! made-up one. An answer is present, absent or a [`ReadFailure`], and only the kernel says what is absent; a tree
//! that contradicts itself gives what can be known and a [`TreeWarning`].

pub mod archive;
pub mod boot;
pub mod cgroup;
mod character_devices;
mod cxl_nodes;
mod idset;
pub mod ioctl;
pub mod irq;
pub mod memory_blocks;
pub mod memory_tiers;
mod overwrite;
pub mod pci;
mod root;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod topology;
pub mod uevent;
mod users;
pub mod vfio;
pub mod write_watch;

pub use character_devices::CharacterDevices;
pub use cxl_nodes::{cxl_nodes, cxl_ranges};
pub use idset::{IdSet, ParseIdSetError};
pub use overwrite::{OverwriteError, overwrite};
pub use root::{LookMemory, PathAccess, ReadFailure, SysRoot, SysRootTap, TreeReading, place};
pub use users::{DeviceUser, users};

use serde::Serialize;

/// Something about the tree that makes no sense, and what was done about it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct TreeWarning {
    /// The file or folder at fault, as a path of the machine described (`/sys/…`).
    pub path: String,
    /// The fault and what follows from it.
    pub reason: String,
}
