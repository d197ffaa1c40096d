//! Made-up machines: a [`MachineTree`] in a temporary folder, with parts that cannot be plugged in here, and broken ones.
//!
//! A tree is plain files. What plain files cannot do (fail with EBUSY, count who reads, have effects when written) a
//! [`SysRootTap`](crate::SysRootTap) does: [`AttributeFaults`] and [`AccessCounts`] are two.

#![expect(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc, reason = "a test fails by panicking")]

mod captures;
mod cpus;
mod cpuset_kernel;
mod cxl;
mod cxl_kernel;
mod dfl;
mod dfl_kernel;
mod irq_kernel;
mod mailbox;
mod pci;
mod pci_kernel;
mod taps;
mod xrt;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{SysRoot, TreeReading};

pub use captures::{capture, captures, captures_folder};
pub use cpus::CpuLayout;
pub use cpuset_kernel::CpusetKernel;
pub use cxl::{CxlCard, CxlHost, PluggedCard, RegionUse, cxl_function, plug_hmem, plug_node, put_cxl};
pub use nix::errno::Errno;

pub use cxl_kernel::{CxlKernel, CxlMachine, NewBlocks};
pub use dfl::{FakeDflCard, FakeDflPort};
pub use dfl_kernel::DflKernel;
pub use irq_kernel::IrqKernel;
pub use mailbox::FakeMailbox;
pub use pci::{ConfigSpace, FakePciFunction};
pub use pci_kernel::PciKernel;
pub use taps::{AccessCounts, AttributeFaults};
pub use xrt::FakeXrtCard;

/// A folder that holds `sys`, `proc` and `dev` of a machine that does not exist. All paths are relative to it.
#[derive(Debug)]
pub struct MachineTree {
    folder: TempDir,
}

impl Default for MachineTree {
    fn default() -> Self {
        Self::new()
    }
}

impl MachineTree {
    /// An empty tree.
    pub fn new() -> Self {
        Self { folder: crate::archive::private_folder().unwrap() }
    }

    /// The tree, to be read.
    pub fn root(&self) -> SysRoot {
        SysRoot::new(self.folder.path())
    }

    /// What a look at it gives, of which nothing fails.
    pub fn look<T>(&self, look: impl FnOnce(&TreeReading<'_>) -> T) -> T {
        self.root().look(look).unwrap()
    }

    /// Where `path` is.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Makes a file, or changes one, and the folders above it. Text gets the line end that sysfs gives.
    pub fn file(&self, path: impl AsRef<Path>, text: impl AsRef<str>) -> &Self {
        self.bytes(path, format!("{}\n", text.as_ref()))
    }

    /// Makes several files in a folder.
    pub fn files(&self, folder: impl AsRef<Path>, files: &[(&str, &str)]) -> &Self {
        for (name, text) in files {
            self.file(folder.as_ref().join(name), text);
        }
        self
    }

    /// As [`MachineTree::file`], to the byte.
    pub fn bytes(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }

    /// Makes a folder and those above it.
    pub fn folder(&self, path: impl AsRef<Path>) -> &Self {
        fs::create_dir_all(self.path(path)).unwrap();
        self
    }

    /// Makes a symbolic link to another path of the tree, relative as those of sysfs are. The target need not exist.
    pub fn link(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> &Self {
        let up: PathBuf = path.as_ref().parent().unwrap().components().map(|_| "..").collect();
        self.raw_link(path, up.join(target))
    }

    /// Makes a symbolic link with exactly this text.
    pub fn raw_link(&self, path: impl AsRef<Path>, text: impl AsRef<Path>) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(text, path).unwrap();
        self
    }

    /// Takes a file, link or folder away; nothing happens where there is none.
    pub fn remove(&self, path: impl AsRef<Path>) -> &Self {
        let path = self.path(path);
        let Ok(found) = fs::symlink_metadata(&path) else { return self };
        if found.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
        self
    }

    /// Takes a device away with all devices below it, as the kernel does: with their links in buses and classes. Gives
    /// the paths that their uevents have.
    pub fn unplug(&self, folder: impl AsRef<Path>) -> BTreeSet<String> {
        let below = fs::canonicalize(self.path(folder)).unwrap();
        let sys = fs::canonicalize(self.path("sys")).unwrap();
        let mut links = Vec::new();
        for (folder, depth) in [("sys/bus", 4), ("sys/class", 2)] {
            links_below(&self.path(folder), depth, &mut links);
        }
        let devpath = |path: &Path| format!("/{}", path.strip_prefix(&sys).unwrap().display());
        let mut removed = BTreeSet::from([devpath(&below)]);
        for link in links {
            if let Some(device) = fs::canonicalize(&link).ok().filter(|device| device.starts_with(&below)) {
                removed.insert(devpath(&device));
                fs::remove_file(link).unwrap();
            }
        }
        fs::remove_dir_all(below).unwrap();
        removed
    }

    /// The text of a file, without its line end.
    pub fn text(&self, path: impl AsRef<Path>) -> String {
        fs::read_to_string(self.path(path)).unwrap().trim_end().to_owned()
    }
}

/// The symbolic links in a folder, and so many folders deep.
fn links_below(folder: &Path, depth: usize, links: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_symlink() => links.push(entry.path()),
            kind if kind.is_dir() && depth > 1 => links_below(&entry.path(), depth - 1, links),
            _ => {}
        }
    }
}
