//! Finds the processes that have a device node open.

use std::{
    fmt,
    fs::Metadata,
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
};

use crate::{ReadFailure, SysRoot};

/// A process that uses a device node.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct DeviceUser {
    /// Process id.
    pub pid: u32,
    /// Name that the process gives itself.
    pub name: String,
}

impl fmt::Display for DeviceUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// The processes that have one of `nodes` (`/dev/…`) open, by number. Containers have nodes of their own for the same
/// device, so devices are compared, not paths. Processes that we may not look at are not among them.
///
/// # Errors
/// When a node, or a file that a process has open, cannot be looked at for another reason.
pub fn users(root: &SysRoot, nodes: &[String]) -> Result<Vec<DeviceUser>, ReadFailure> {
    let mut wanted = Vec::new();
    for node in nodes {
        wanted.extend(root.metadata(node.trim_start_matches('/'))?.as_ref().map(DeviceNodeId::of));
    }
    let mut users = Vec::new();
    if wanted.is_empty() {
        return Ok(users);
    }
    for pid in root.names("proc")?.into_iter().filter_map(|name| name.parse::<u32>().ok()) {
        if has_open(root, pid, &wanted)? {
            users.push(DeviceUser { pid, name: root.text(format!("proc/{pid}/comm"))?.unwrap_or_default() });
        }
    }
    users.sort_unstable();
    Ok(users)
}

fn has_open(root: &SysRoot, pid: u32, wanted: &[DeviceNodeId]) -> Result<bool, ReadFailure> {
    let folder = format!("proc/{pid}/fd");
    for file in allowed(root.names(&folder))?.unwrap_or_default() {
        let file = answering(root.metadata(format!("{folder}/{file}")))?.flatten();
        if file.is_some_and(|file| wanted.contains(&DeviceNodeId::of(&file))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// An answer; `None` where we may not have it: processes of other users are theirs.
fn allowed<T>(answer: Result<T, ReadFailure>) -> Result<Option<T>, ReadFailure> {
    match answer {
        Err(failure) if failure.error().kind() == io::ErrorKind::PermissionDenied => Ok(None),
        answer => answer.map(Some),
    }
}

/// The file system's answer about a file; `None` where it gives none. Files of other users can be on one whose server
/// is gone, which is no reason to keep a device: the nodes of devices are on one that the kernel has in memory.
fn answering<T>(answer: Result<T, ReadFailure>) -> Result<Option<T>, ReadFailure> {
    match answer {
        Err(failure) if !failure.is_shortage() => Ok(None),
        answer => answer.map(Some),
    }
}

/// Identity of a device node: two with the same are one.
#[derive(Eq, PartialEq)]
enum DeviceNodeId {
    /// Number of a device.
    Device(u64),
    /// File system and inode of anything else.
    File(u64, u64),
}

impl DeviceNodeId {
    fn of(file: &Metadata) -> Self {
        if file.file_type().is_char_device() { Self::Device(file.rdev()) } else { Self::File(file.dev(), file.ino()) }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_file_that_does_not_answer_is_no_device_and_hides_no_user() {
        let tree = tempfile::tempdir().unwrap();
        let root = SysRoot::new(tree.path());
        let path = |below: &str| tree.path().join(below);
        for folder in ["dev", "proc/7/fd", "proc/8/fd"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        fs::write(path("dev/card"), "").unwrap();
        fs::write(path("proc/8/comm"), "trainer\n").unwrap();
        // As a file on a server that is gone: there, and every question about it fails.
        for process in [7, 8] {
            symlink("3", path(&format!("proc/{process}/fd/3"))).unwrap();
        }
        symlink("/dev/card", path("proc/8/fd/4")).unwrap();
        root.metadata("proc/7/fd/3").unwrap_err();
        let found = users(&root, &["/dev/card".to_owned()]).unwrap();
        assert_eq!(found, [DeviceUser { pid: 8, name: "trainer".to_owned() }]);
    }
}
