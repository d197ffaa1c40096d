//! Which processes have a device node open.

use std::{
    fmt,
    fs::{self, Metadata},
    os::unix::fs::{FileTypeExt, MetadataExt},
};

use crate::SysRoot;

/// A process that uses a device node.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct DeviceUser {
    /// Its number.
    pub pid: u32,
    /// What it calls itself.
    pub name: String,
}

impl fmt::Display for DeviceUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// The processes that have one of `nodes` (`/dev/…`) open, by number. Containers have nodes of their own for the same
/// device, so devices are compared, not paths. Processes of which we may not know are not among them.
pub fn users(root: &SysRoot, nodes: &[String]) -> Vec<DeviceUser> {
    let wanted: Vec<DeviceNodeId> = nodes
        .iter()
        .filter_map(|node| fs::metadata(root.path(node.trim_start_matches('/'))).ok())
        .map(|found| DeviceNodeId::of(&found))
        .collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let processes = root.names("proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    let mut users: Vec<DeviceUser> = processes
        .filter(|pid| has_open(root, *pid, &wanted))
        .map(|pid| DeviceUser { pid, name: root.text(format!("proc/{pid}/comm")).unwrap_or_default() })
        .collect();
    users.sort_unstable();
    users
}

fn has_open(root: &SysRoot, pid: u32, wanted: &[DeviceNodeId]) -> bool {
    let folder = format!("proc/{pid}/fd");
    let files = root.names(&folder).into_iter();
    files
        .filter_map(|file| fs::metadata(root.path(format!("{folder}/{file}"))).ok())
        .any(|file| wanted.contains(&DeviceNodeId::of(&file)))
}

/// What makes two nodes the same.
#[derive(Eq, PartialEq)]
enum DeviceNodeId {
    /// A device: its number.
    Device(u64),
    /// Anything else: file system and inode.
    File(u64, u64),
}

impl DeviceNodeId {
    fn of(file: &Metadata) -> Self {
        if file.file_type().is_char_device() { Self::Device(file.rdev()) } else { Self::File(file.dev(), file.ino()) }
    }
}
