//! A copy of what was looked at in a tree: files, links and the names in folders.
//!
//! Only places of a machine that [`policy`] allows are copied, and never through a link that leads to another: paths
//! are followed here as if the tree were the root of the file system.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::OsString,
    fs, io,
    path::{Component, Path, PathBuf},
};

use super::{
    policy::{self, CapturePolicy, HOST_NAME},
    record::AccessRecorder,
};
use crate::{PathAccess, ReadFailure, SysRoot};

/// Most links on one path: as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Limit on a file: no attribute is longer; `/proc/cpuinfo` and `/proc/iomem` of the largest machines are a few
/// megabytes.
const MOST_BYTES: u64 = 16 << 20;

/// EIO, for errors that have no number.
const EIO: i32 = 5;

/// One entry of a snapshot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum SnapshotEntry {
    /// A folder, of which only the names that are entries themselves are known.
    Folder,
    /// A file with its content.
    File(Vec<u8>),
    /// A file or device node that is there, and whose content is not copied.
    Present,
    /// A symbolic link, as its text stands.
    Link(PathBuf),
}

/// A part of a machine, in memory.
#[derive(Clone, Debug, Default)]
pub struct TreeSnapshot {
    /// Entries by path, relative to the root.
    pub(super) entries: BTreeMap<PathBuf, SnapshotEntry>,
    /// Files that could not be read, with the number of the error.
    pub(super) errors: BTreeMap<PathBuf, i32>,
    left_out: BTreeSet<PathBuf>,
}

impl TreeSnapshot {
    /// Copies what `recorder` saw from `root`, which is the tree that the recorder was put in front of. A file that
    /// cannot be read is one of the facts.
    ///
    /// # Errors
    /// When it cannot be told what is there.
    pub fn take(root: &SysRoot, recorder: &AccessRecorder, host_name: bool) -> Result<Self, ReadFailure> {
        let mut snapshot = Self::default();
        for (path, access) in recorder.seen() {
            match access {
                PathAccess::Read => snapshot.read(root, &path, host_name)?,
                PathAccess::List => snapshot.list(root, &path, host_name)?,
                PathAccess::Link => drop(snapshot.place(root, &path, host_name, FinalLink::Kept)?),
                PathAccess::Look => drop(snapshot.place(root, &path, host_name, FinalLink::Followed)?),
                PathAccess::Write => {}
            }
        }
        Ok(snapshot)
    }

    /// Adds a file that is not of the machine.
    pub fn add(&mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) {
        self.entries.insert(path.into(), SnapshotEntry::File(content.into()));
    }

    /// Files that were read, and whose content is not copied because it may be about people.
    pub fn left_out(&self) -> impl Iterator<Item = &Path> {
        self.left_out.iter().map(PathBuf::as_path)
    }

    /// Number of files that could not be read.
    pub fn unreadable(&self) -> usize {
        self.errors.len()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if nothing that is there was looked at.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn read(&mut self, root: &SysRoot, path: &Path, host_name: bool) -> Result<(), ReadFailure> {
        let Some(place) = self.place(root, path, host_name, FinalLink::Followed)? else { return Ok(()) };
        if self.entries.get(&place) != Some(&SnapshotEntry::Present) {
            return Ok(());
        }
        if policy::keep(&place, host_name) != CapturePolicy::Content {
            if !place.starts_with("dev") && place != Path::new(HOST_NAME) {
                self.left_out.insert(place);
            }
            return Ok(());
        }
        match root.required_bytes(&place, MOST_BYTES) {
            Ok(content) => drop(self.entries.insert(place, SnapshotEntry::File(content))),
            Err(failure) if failure.is_shortage() => return Err(failure),
            Err(failure) if failure.error().kind() == io::ErrorKind::NotFound && !root.exists(&place)? => {
                self.entries.remove(&place);
            }
            Err(failure) => self.unreadable_at(place, failure.error()),
        }
        Ok(())
    }

    fn unreadable_at(&mut self, place: PathBuf, error: &io::Error) {
        self.errors.insert(place, error.raw_os_error().unwrap_or(EIO));
    }

    fn list(&mut self, root: &SysRoot, path: &Path, host_name: bool) -> Result<(), ReadFailure> {
        let Some(place) = self.place(root, path, host_name, FinalLink::Followed)? else { return Ok(()) };
        if self.entries.get(&place) != Some(&SnapshotEntry::Folder) {
            return Ok(());
        }
        for name in root.names(&place)? {
            self.place(root, &place.join(name), host_name, FinalLink::Kept)?;
        }
        Ok(())
    }

    /// Enters everything on the way to `path`, and gives the place that it leads to; `None` where nothing is, or
    /// nothing that may be captured.
    fn place(
        &mut self,
        root: &SysRoot,
        path: &Path,
        host_name: bool,
        last: FinalLink,
    ) -> Result<Option<PathBuf>, ReadFailure> {
        let mut way: VecDeque<OsString> = names(path);
        let mut place = PathBuf::new();
        let mut links = 0;
        while let Some(name) = way.pop_front() {
            if name == ".." {
                place.pop();
                continue;
            }
            let next = place.join(name);
            self.enter(root, &next, host_name)?;
            match self.entries.get(&next) {
                None => return Ok(None),
                Some(SnapshotEntry::Link(_)) if way.is_empty() && last == FinalLink::Kept => return Ok(Some(next)),
                Some(SnapshotEntry::Link(target)) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Ok(None);
                    }
                    if target.is_absolute() {
                        place = PathBuf::new();
                    }
                    let rest = std::mem::replace(&mut way, names(target));
                    way.extend(rest);
                }
                Some(SnapshotEntry::Folder) => place = next,
                _ if way.is_empty() => place = next,
                _ => return Ok(None),
            }
        }
        Ok(Some(place))
    }

    /// Makes `place`, whose folder was entered before, an entry, if there is something that may be one.
    fn enter(&mut self, root: &SysRoot, place: &Path, host_name: bool) -> Result<(), ReadFailure> {
        if self.entries.contains_key(place) || policy::keep(place, host_name) == CapturePolicy::Nothing {
            return Ok(());
        }
        // The links name a process; what is below them is the reader's own in every process.
        let own = ["proc/self", "proc/thread-self"].iter().any(|own| place == Path::new(own));
        let real = root.path(place);
        let found = if own { fs::metadata(&real) } else { fs::symlink_metadata(&real) };
        let entry = found.map(|found| found.file_type()).and_then(|kind| match kind {
            kind if kind.is_dir() => Ok(SnapshotEntry::Folder),
            kind if kind.is_symlink() => fs::read_link(&real).map(SnapshotEntry::Link),
            _ => Ok(SnapshotEntry::Present),
        });
        match entry.map_err(|error| ReadFailure::new(place, error)) {
            Ok(entry) => drop(self.entries.insert(place.to_owned(), entry)),
            Err(failure) if failure.is_absence() => {}
            // The content of the folder belongs to root.
            Err(failure) if failure.error().kind() == io::ErrorKind::PermissionDenied => {
                self.unreadable_at(place.to_owned(), failure.error());
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }
}

/// Treatment of a link at the end of a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FinalLink {
    /// The link itself was meant.
    Kept,
    /// The target of the link was meant.
    Followed,
}

/// The steps of a path; `..` is one.
fn names(path: &Path) -> VecDeque<OsString> {
    let step = |component: Component<'_>| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        _ => None,
    };
    path.components().filter_map(step).collect()
}

#[cfg(test)]
mod tests;
