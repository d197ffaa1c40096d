//! The state of a file, by which a change of its content is noticed without reading it.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The coarsest times of a file system that hostler runs on, those of FAT: two changes within this may bear one time.
const COARSEST: Duration = Duration::from_secs(2);

/// Marks of a file's content. The kernel sets the time of a change; no program can set it back, as it can the time of
/// a modification.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    changed: (i64, i64),
}

/// A name in a folder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct NamedFile {
    /// `None` if the next change might leave the same marks, or there is nothing to mark.
    pub(super) stamp: Option<FileStamp>,
    /// True if writes to this file can come under another name.
    pub(super) has_other_names: bool,
}

impl NamedFile {
    /// Looks at a name, and at the file that a link leads to; `None` if there is no such name.
    pub(super) fn look(path: &Path) -> Option<Self> {
        let named = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            named => named.ok(),
        };
        let is_link = named.as_ref().is_some_and(Metadata::is_symlink);
        let found = if is_link { fs::metadata(path).ok() } else { named };
        let has_other_names = is_link || found.as_ref().is_some_and(|found| found.nlink() > 1);
        let stamp = found.and_then(|found| FileStamp::of(&found, SystemTime::now()));
        Some(Self { stamp, has_other_names })
    }
}

impl FileStamp {
    /// Takes the marks of a file at a time. There are none of a file that changed so lately, or in the future of a clock
    /// that was set back, that its next change might bear the same time.
    fn of(found: &Metadata, now: SystemTime) -> Option<Self> {
        let changed = (found.ctime(), found.ctime_nsec());
        let settled = is_settled(changed, now);
        settled.then(|| Self { device: found.dev(), inode: found.ino(), size: found.len(), changed })
    }
}

fn is_settled((seconds, nanoseconds): (i64, i64), now: SystemTime) -> bool {
    let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(seconds), u32::try_from(nanoseconds)) else { return false };
    let since = UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds));
    since.and_then(|changed| now.duration_since(changed).ok()).is_some_and(|age| age > COARSEST)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_has_marks_once_its_next_change_must_bear_another_time() {
        let now = UNIX_EPOCH + Duration::new(1000, 500);
        assert!(is_settled((997, 0), now) && is_settled((998, 499), now));
        for changed in [(998, 500), (1000, 500), (1001, 0), (-1, 0), (i64::MAX, 0)] {
            assert!(!is_settled(changed, now), "{changed:?}");
        }
    }

    #[test]
    fn marks_tell_a_file_from_one_in_its_place_with_the_same_size_and_time_of_modification() {
        let temp = tempfile::tempdir().unwrap();
        let (old, new) = (temp.path().join("old"), temp.path().join("new"));
        let later = SystemTime::now() + Duration::from_secs(60);
        let stamp = |path: &Path| FileStamp::of(&fs::metadata(path).unwrap(), later).unwrap();
        let time = fs::FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(1));
        for path in [&old, &new] {
            fs::write(path, "1").unwrap();
            fs::File::options().write(true).open(path).unwrap().set_times(time).unwrap();
        }
        let before = stamp(&old);
        assert_eq!(before, stamp(&old));
        fs::rename(&new, &old).unwrap();
        assert_ne!(before, stamp(&old));
    }

    #[test]
    fn links_and_files_with_several_names_can_change_under_another_name() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        fs::write(path("one"), "").unwrap();
        assert_eq!(NamedFile::look(&path("one")), Some(NamedFile { stamp: None, has_other_names: false }));
        symlink("one", path("link")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();
        fs::hard_link(path("one"), path("two")).unwrap();
        for name in ["one", "two", "link", "dangling"] {
            assert!(NamedFile::look(&path(name)).unwrap().has_other_names, "{name}");
        }
        assert_eq!(NamedFile::look(&path("absent")), None);
    }
}
