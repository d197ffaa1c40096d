//! The root of the tree that is read: the host's, a captured machine's or a made-up one.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// No sysfs text attribute is longer than a page; only masks of thousands of CPUs are.
const PAGE: usize = 4096;

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
        Some(trimmed(&self.bytes(relative).ok()?))
    }

    /// As [`SysRoot::text`], for sysfs alone: the kernel hands a sysfs attribute over in one read, so that a short read
    /// is its end and nothing asks for more. A scan of a machine reads thousands of them.
    pub fn attribute(&self, relative: impl AsRef<Path>) -> Option<String> {
        let mut file = File::open(self.path(relative)).ok()?;
        let mut page = [0; PAGE];
        let length = file.read(&mut page).ok()?;
        if length < PAGE {
            return Some(trimmed(&page[..length]));
        }
        let mut bytes = page.to_vec();
        file.read_to_end(&mut bytes).ok()?;
        Some(trimmed(&bytes))
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

/// White space and NUL bytes (of captures that pad, of kernels that print a terminator) are not part of a value.
fn trimmed(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned()
}
