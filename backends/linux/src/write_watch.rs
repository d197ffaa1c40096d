//! Hints about writes into folders: inotify. The listener looks at what was written; events may be lost, and a folder
//! may be one too many.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor},
};

use crate::SysRoot;

/// Most folders that are watched at once: each costs the kernel a kilobyte, and users may have a few thousand in all.
pub const MOST_FOLDERS: usize = 1024;

/// Watches folders for writes to files whose names begin with some text.
#[derive(Debug)]
pub struct WriteWatch {
    inotify: Inotify,
    root: SysRoot,
    prefix: &'static str,
    folders: BTreeMap<PathBuf, WatchDescriptor>,
}

impl WriteWatch {
    /// Watches nothing yet. Only files whose names begin with `prefix` count.
    ///
    /// # Errors
    /// When the kernel has no more watches to give.
    pub fn new(root: &SysRoot, prefix: &'static str) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Self { inotify, root: root.clone(), prefix, folders: BTreeMap::new() })
    }

    /// Watches these folders and no others, paths of the machine; returns how many of them are not watched. Folders
    /// that are gone do not count.
    pub fn watch(&mut self, folders: &BTreeSet<PathBuf>) -> usize {
        let gone: Vec<PathBuf> = self.folders.keys().filter(|folder| !folders.contains(*folder)).cloned().collect();
        for watched in gone.iter().filter_map(|folder| self.folders.remove(folder)) {
            // A folder that was removed has taken its watch with it.
            let _ = self.inotify.rm_watch(watched);
        }
        let new: Vec<&PathBuf> = folders.iter().filter(|folder| !self.folders.contains_key(*folder)).collect();
        new.into_iter().filter(|folder| !self.add(folder)).count()
    }

    /// Number of folders that are watched.
    pub fn folders(&self) -> usize {
        self.folders.len()
    }

    /// Takes all hints that there are; returns true if one was about a file that counts, or may have been.
    ///
    /// # Errors
    /// When the hints cannot be read.
    pub fn take(&self) -> io::Result<bool> {
        let mut written = false;
        loop {
            match self.inotify.read_events() {
                Ok(events) => {
                    let counts = |name: &std::ffi::OsString| name.to_string_lossy().starts_with(self.prefix);
                    // Without a name: hints were lost, or the folder itself went.
                    written |= events.iter().any(|event| event.name.as_ref().is_none_or(counts));
                }
                Err(Errno::EAGAIN) => return Ok(written),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Watches a folder; false if that failed. A folder that is gone needs nothing.
    fn add(&mut self, folder: &Path) -> bool {
        if self.folders.len() >= MOST_FOLDERS {
            return false;
        }
        let path = self.root.path(folder.strip_prefix("/").unwrap_or(folder));
        let flags = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_ONLYDIR;
        match self.inotify.add_watch(&path, flags) {
            Ok(watched) => {
                self.folders.insert(folder.to_owned(), watched);
                true
            }
            Err(Errno::ENOENT | Errno::ENOTDIR) => true,
            Err(_) => false,
        }
    }
}

impl AsFd for WriteWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl AsRawFd for WriteWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.inotify.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testkit::MachineTree;

    #[test]
    fn writes_to_files_that_count_are_noticed_and_no_others() {
        let tree = MachineTree::new();
        tree.files("cg/a", &[("cpuset.cpus", "0"), ("pids.max", "max")]).files("cg/b", &[("cpuset.cpus", "0")]);
        let mut watch = WriteWatch::new(&tree.root(), "cpuset.").unwrap();
        let folders = BTreeSet::from(["/cg/a".into(), "/cg/gone".into()]);
        assert_eq!((watch.watch(&folders), watch.folders()), (0, 1));
        assert!(!watch.take().unwrap());
        fs::write(tree.path("cg/a/pids.max"), "7").unwrap();
        fs::write(tree.path("cg/b/cpuset.cpus"), "1").unwrap();
        assert!(!watch.take().unwrap());
        fs::write(tree.path("cg/a/cpuset.cpus"), "1").unwrap();
        assert!(watch.take().unwrap());
        assert!(!watch.take().unwrap(), "each hint is taken once");
        watch.watch(&BTreeSet::from(["/cg/b".into()]));
        fs::write(tree.path("cg/b/cpuset.cpus"), "2").unwrap();
        assert!(watch.take().unwrap());
    }

    #[test]
    fn there_is_an_end_to_what_is_watched() {
        let tree = MachineTree::new();
        let folders: BTreeSet<PathBuf> = (0..MOST_FOLDERS + 3).map(|number| format!("/cg/{number}").into()).collect();
        for folder in &folders {
            tree.folder(folder.strip_prefix("/").unwrap());
        }
        let mut watch = WriteWatch::new(&tree.root(), "cpuset.").unwrap();
        // A user's own limit may be lower.
        assert_eq!(watch.watch(&folders) + watch.folders(), folders.len());
        assert!(watch.folders() <= MOST_FOLDERS);
    }
}
