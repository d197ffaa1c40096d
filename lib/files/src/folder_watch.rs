//! Tells which entries of a folder changed since the last question, from inotify.
//!
//! The kernel queues an event before the call that caused it returns. So a question hears of every change that was made
//! before it, and no time passes in which an answer is old.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::Metadata,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::Path,
};

use rustix::{
    fs::{
        fstatfs,
        inotify::{self, CreateFlags, Reader, WatchFlags},
    },
    io::Errno,
};

use crate::{FileError, open_folder};

/// Room for some sixteen events with the longest names.
const BUFFER_BYTES: usize = 4096;

/// Types of file systems on which this kernel makes every change itself. Another host can change a file of a network's
/// file system, and a process a file of its own, without an event here.
const LOCAL: [u64; 9] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683E, // Btrfs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0xF2F5_2010, // F2FS
    0x2FC1_2FC1, // ZFS
    0xCA45_1A4E, // bcachefs
    0x794C_7630, // overlayfs, whose layers nobody may change under it
];

/// A watch of one folder.
///
/// It tells of names that come and go, and of writes to files under their names in this folder. It does not tell of
/// writes to a file under another of its names, to the target of a link, or through a mapping into memory, nor that a
/// file was given a name elsewhere.
#[derive(Debug)]
pub struct FolderWatch {
    inotify: OwnedFd,
    /// Device and inode of the folder: the path may lead to another one later.
    folder: (u64, u64),
}

/// Changes of a folder since the last question.
#[derive(Debug, Eq, PartialEq)]
pub enum FolderChanges {
    /// Entries of these names may have changed, and no others.
    Entries(BTreeSet<OsString>),
    /// Every entry may have changed, and the watch has ended: events were lost, or the path leads elsewhere now.
    Unknown,
}

impl FolderWatch {
    /// Begins to watch the folder that `path` leads to.
    ///
    /// # Errors
    /// When it is no folder, changes of its file system may go unseen here, or the kernel has no more watches to give.
    pub fn begin(path: &Path) -> Result<Self, FileError> {
        let watch = |source: io::Error| FileError::at("watch", path)(source);
        let folder = open_folder(path)?;
        let found = folder.metadata().map_err(watch)?;
        let kind = fstatfs(&folder).map_err(|error| watch(error.into()))?.f_type;
        if !u64::try_from(kind).is_ok_and(|kind| LOCAL.contains(&kind)) {
            let reason = format!("changes on a file system of type {kind:#x} may go unseen on this host");
            return Err(watch(io::Error::new(io::ErrorKind::Unsupported, reason)));
        }
        let inotify = begin(&folder).map_err(|error| watch(error.into()))?;
        Ok(Self { inotify, folder: identity(&found) })
    }

    /// Takes all changes since the last question; `path` is the one that the watch began with.
    pub fn changes(&self, path: &Path) -> FolderChanges {
        if path.metadata().map_or(true, |found| identity(&found) != self.folder) {
            return FolderChanges::Unknown;
        }
        let mut names = BTreeSet::new();
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut events = Reader::new(&self.inotify, &mut buffer);
        loop {
            match events.next() {
                Ok(event) => match event.file_name() {
                    Some(name) => drop(names.insert(OsStr::from_bytes(name.to_bytes()).to_owned())),
                    // About the folder itself, or about events that found no room.
                    None => return FolderChanges::Unknown,
                },
                Err(Errno::AGAIN) => return FolderChanges::Entries(names),
                Err(Errno::INTR) => {}
                Err(_) => return FolderChanges::Unknown,
            }
        }
    }
}

fn begin(folder: &impl AsRawFd) -> Result<OwnedFd, Errno> {
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let flags = WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::MOVE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    // By the open folder: its path could lead to another one in between.
    inotify::add_watch(&inotify, format!("/proc/self/fd/{}", folder.as_raw_fd()), flags)?;
    Ok(inotify)
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    /// A folder with the files `a` and `b`; `None` where temporary files are on a file system that is not watched.
    fn watched() -> Option<(tempfile::TempDir, FolderWatch)> {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::write(folder.path().join(name), "1").unwrap();
        }
        match FolderWatch::begin(folder.path()) {
            Err(error) if error.source.kind() == io::ErrorKind::Unsupported => {
                println!("skipped: {:?}", error.source);
                None
            }
            watch => Some((folder, watch.unwrap())),
        }
    }

    fn entries(names: &[&str]) -> FolderChanges {
        FolderChanges::Entries(names.iter().map(OsString::from).collect())
    }

    #[test]
    fn every_change_is_told_once_and_at_the_next_question() {
        let Some((folder, watch)) = watched() else { return };
        let path = |name: &str| folder.path().join(name);
        let changes = || watch.changes(folder.path());
        assert_eq!(changes(), entries(&[]));
        fs::write(path("a"), "2").unwrap();
        assert_eq!(changes(), entries(&["a"]));
        assert_eq!(changes(), entries(&[]));
        fs::OpenOptions::new().append(true).open(path("b")).unwrap().write_all(b"3").unwrap();
        fs::File::create(path("c")).unwrap();
        assert_eq!(changes(), entries(&["b", "c"]));
        fs::rename(path("a"), path("d")).unwrap();
        assert_eq!(changes(), entries(&["a", "d"]));
        fs::remove_file(path("b")).unwrap();
        assert_eq!(changes(), entries(&["b"]));
        fs::hard_link(path("c"), path("e")).unwrap();
        symlink("c", path("f")).unwrap();
        fs::set_permissions(path("d"), fs::Permissions::from_mode(0o600)).unwrap();
        // Not of `c`, which has a second name now.
        assert_eq!(changes(), entries(&["d", "e", "f"]));
    }

    #[test]
    fn after_a_flood_of_events_or_in_another_folder_everything_may_have_changed() {
        let Some((folder, watch)) = watched() else { return };
        // More than the kernel queues, by default 16384.
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        for number in 0..most.trim().parse::<u32>().unwrap() / 2 + 2 {
            let path = folder.path().join(format!("flood-{}", number % 2));
            fs::File::create(&path).unwrap();
            fs::remove_file(path).unwrap();
        }
        assert_eq!(watch.changes(folder.path()), FolderChanges::Unknown);

        let Some((folder, watch)) = watched() else { return };
        let (path, aside) = (folder.path().to_owned(), folder.path().with_extension("aside"));
        fs::rename(&path, &aside).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(watch.changes(&path), FolderChanges::Unknown);
        fs::remove_dir_all(aside).unwrap();
        assert!(FolderWatch::begin(&path.join("absent")).is_err());
        assert!(FolderWatch::begin(Path::new("/proc/self/fdinfo")).is_err(), "nobody tells of changes there");
    }
}
