//! Which processes have a device node open.

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
///
/// # Errors
/// When a node, or what a process has open, cannot be looked at for another reason.
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

/// An answer; `None` where it is not for us: other people's processes are theirs.
fn allowed<T>(answer: Result<T, ReadFailure>) -> Result<Option<T>, ReadFailure> {
    match answer {
        Err(failure) if failure.error().kind() == io::ErrorKind::PermissionDenied => Ok(None),
        answer => answer.map(Some),
    }
}

/// What a file system says of a file; `None` where it says nothing. Other people's files can be on one whose server is gone,
/// which is no reason to keep a device: the nodes of devices are on one that the kernel has in memory.
fn answering<T>(answer: Result<T, ReadFailure>) -> Result<Option<T>, ReadFailure> {
    match answer {
        Err(failure) if !failure.is_shortage() => Ok(None),
        answer => answer.map(Some),
    }
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
