//! The root of the tree that is read: the host's, a captured machine's or a made-up one.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A folder that holds `sys`, `proc` and `dev`.
#[derive(Clone, Debug)]
pub struct SysRoot(PathBuf);

impl SysRoot {
    /// A tree in a folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// The machine we run on.
    pub fn host() -> Self {
        Self::new("/")
    }

    /// Where `relative` (`sys/devices/…`) is.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.0.join(relative)
    }

    /// The content of an attribute without the white space around it. `None` if it is absent or cannot be read: sysfs
    /// files may exist and still fail with EIO, EINVAL, ENXIO or EBUSY.
    pub fn text(&self, relative: impl AsRef<Path>) -> Option<String> {
        let bytes = self.bytes(relative).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned())
    }

    /// The content of a file, whole: the size that `stat` gives for sysfs means nothing.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn bytes(&self, relative: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        fs::read(self.path(relative))
    }

    /// Whether something is there.
    pub fn exists(&self, relative: impl AsRef<Path>) -> bool {
        self.path(relative).exists()
    }

    /// The names in a folder, sorted; empty if it is absent or cannot be read.
    pub fn names(&self, relative: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(relative)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Where a symbolic link points to, unresolved.
    pub fn link(&self, relative: impl AsRef<Path>) -> Option<PathBuf> {
        fs::read_link(self.path(relative)).ok()
    }

    /// The last component of a symbolic link's target (`driver`, `iommu_group`).
    pub fn link_name(&self, relative: impl AsRef<Path>) -> Option<String> {
        self.link(relative)?.file_name()?.to_str().map(str::to_owned)
    }
}
