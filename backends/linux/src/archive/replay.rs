//! Replays failures that an unpacked capture cannot show by files alone: attributes that exist and fail when they are
//! read.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::{PathAccess, SysRootTap};

/// The file beside `sys` and `proc` that lists what could not be read on the captured machine.
pub(super) const READ_ERRORS: &str = "READ_ERRORS.tsv";

/// Limit on the list: far more than the largest machine has. A hostile archive may have anything.
const MOST_LISTED: u64 = 16 << 20;

/// Error of a read whose content the capture does not know (ENODATA).
const NOT_CAPTURED: i32 = 61;

/// Fails reads that failed on the machine, and those whose result there is not known.
#[derive(Debug)]
pub(super) struct ReplayTap {
    /// The tree without links.
    folder: PathBuf,
    /// The last names of all `errors`: most reads are of none of them, and need no second look.
    names: HashSet<OsString>,
    errors: Mutex<BTreeMap<PathBuf, i32>>,
}

impl ReplayTap {
    /// Makes the tap of the tree in `folder`; `None` if everything in it can be read.
    pub(super) fn of(folder: &Path, unknown: Vec<PathBuf>) -> Option<Self> {
        let mut errors: BTreeMap<PathBuf, i32> = unknown.into_iter().map(|path| (path, NOT_CAPTURED)).collect();
        let mut listed = Vec::new();
        // A part of a list is a list too; what cannot be read of it is as if it were not there.
        let _ = File::open(folder.join(READ_ERRORS)).and_then(|file| file.take(MOST_LISTED).read_to_end(&mut listed));
        errors.extend(String::from_utf8_lossy(&listed).lines().filter_map(error));
        let names = errors.keys().filter_map(|path| path.file_name()).map(OsString::from).collect();
        let folder = fs::canonicalize(folder).ok()?;
        (!errors.is_empty()).then(|| Self { folder, names, errors: Mutex::new(errors) })
    }

    /// The file that `path` leads to, if it may be one of ours.
    fn place(&self, path: &Path) -> Option<PathBuf> {
        if !self.names.contains(path.file_name()?) {
            return None;
        }
        let real = fs::canonicalize(self.folder.join(path)).ok()?;
        real.strip_prefix(&self.folder).ok().map(Path::to_owned)
    }
}

impl SysRootTap for ReplayTap {
    fn access(&self, access: PathAccess, path: &Path) -> io::Result<()> {
        if access != PathAccess::Read {
            return Ok(());
        }
        let errors = |place: PathBuf| self.errors.lock().unwrap_or_else(PoisonError::into_inner).get(&place).copied();
        self.place(path).and_then(errors).map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(number)))
    }

    fn write(&self, path: &Path, _: &[u8]) -> Option<io::Result<()>> {
        // The written content is known from now on.
        if let Some(place) = self.place(path) {
            self.errors.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
        }
        None
    }
}

/// Parses a line of `/path`, `read`, number, words. Lines of another form are passed over: the list is as untrusted as
/// the rest of the archive.
fn error(line: &str) -> Option<(PathBuf, i32)> {
    let mut fields = line.split('\t');
    let (path, tried, number) = (fields.next()?, fields.next()?, fields.next()?);
    let number = number.parse().ok().filter(|number| *number > 0)?;
    (tried == "read").then(|| (PathBuf::from(path.trim_start_matches('/')), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_another_form_are_passed_over() {
        assert_eq!(error("/sys/a\tread\t16\tbusy"), Some(("sys/a".into(), 16)));
        for line in
            ["", "/sys/a", "/sys/a\tread", "/sys/a\tlstat\t2", "/sys/a\tread\tInput/output error", "/sys/a\tread\t-1"]
        {
            assert_eq!(error(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_list_that_names_what_is_elsewhere_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sys")).unwrap();
        fs::write(folder.path().join("sys/passwd"), "x").unwrap();
        fs::write(folder.path().join(READ_ERRORS), "/../../etc/passwd\tread\t5\nsys/gone\tread\t5\n").unwrap();
        let replay = ReplayTap::of(folder.path(), Vec::new()).unwrap();
        assert!(replay.access(PathAccess::Read, Path::new("sys/passwd")).is_ok());
        assert!(replay.access(PathAccess::Read, Path::new("sys/gone")).is_ok(), "reading it says that it is not there");
    }
}
