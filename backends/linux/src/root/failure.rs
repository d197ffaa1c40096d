//! Meaning of the kernel's errors: nothing is there, we cannot look, or this one file cannot be read.

use std::{
    io,
    path::{Path, PathBuf},
};

use nix::errno::Errno;

use crate::TreeWarning;

/// Errors of the kernel for something that is not there, with the reason. Nothing else is taken for absent.
const ABSENT: [(Errno, &str); 6] = [
    (Errno::ENOENT, "nothing has this name; attributes without a value say so too (`compat_id` of a base region)"),
    (Errno::ENOTDIR, "a part of the path is a file, so that nothing is below it"),
    (
        Errno::ENODEV,
        "the device went between its name and the reading; kernfs says so of attributes, never of folders and links",
    ),
    (Errno::ENXIO, "there is no such part (`targetN` past the ways of a region), or the device has lost its driver"),
    (Errno::ESRCH, "the process ended between its name and the reading"),
    (Errno::ENODATA, "the file has no value now (a sensor without a reading), or a capture has kept it back"),
];

/// Errors of the kernel when we, or all of the machine, are short of something: the next file would fail in the same
/// way, so that nothing that is read now can be believed to be all.
const SHORTAGE: [Errno; 5] = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS, Errno::EINTR];

/// An answer, if there is one.
pub(super) fn present<T>(answer: Result<T, ReadFailure>) -> Result<Option<T>, ReadFailure> {
    match answer {
        Err(failure) if failure.is_absence() => Ok(None),
        answer => answer.map(Some),
    }
}

/// An answer about the tree itself (whether something is there, which names a folder has, where a link leads), if
/// there is one. ENODEV is the word of attributes whose device went; the kernel never says it of the tree, so that
/// anything may be behind it.
pub(super) fn present_in_tree<T>(answer: Result<T, ReadFailure>) -> Result<Option<T>, ReadFailure> {
    match answer {
        Err(failure) if failure.errno() == Some(Errno::ENODEV) => Err(failure),
        answer => present(answer),
    }
}

/// A link, if there is one: something else is no link (EINVAL).
pub(super) fn present_link<T>(answer: Result<T, ReadFailure>) -> Result<Option<T>, ReadFailure> {
    match answer {
        Err(failure) if failure.errno() == Some(Errno::EINVAL) => Ok(None),
        answer => present_in_tree(answer),
    }
}

/// Something that is there, or may be, could not be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to read /{}", path.display())]
pub struct ReadFailure {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl ReadFailure {
    /// Failure for something that was read past the tree. `path` is relative to the root.
    pub fn new(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self { path: path.into(), source }
    }

    /// The file or folder, relative to the root.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kernel's error.
    pub fn error(&self) -> &io::Error {
        &self.source
    }

    /// The kernel's error, without the file.
    pub fn into_error(self) -> io::Error {
        self.source
    }

    /// True if the kernel says that nothing is there.
    pub fn is_absence(&self) -> bool {
        // Made-up errors of taps have a kind alone.
        let absent = |errno| ABSENT.iter().any(|(absent, _)| *absent == errno);
        self.errno().map_or(self.source.kind() == io::ErrorKind::NotFound, absent)
    }

    /// True if every other file would fail as well.
    pub fn is_shortage(&self) -> bool {
        let short = |errno| SHORTAGE.contains(&errno);
        self.errno().map_or(self.source.kind() == io::ErrorKind::Interrupted, short)
    }

    fn errno(&self) -> Option<Errno> {
        self.source.raw_os_error().map(Errno::from_raw)
    }

    /// The failure as a warning, with what follows from it.
    pub fn into_warning(self, consequence: &str) -> TreeWarning {
        let path = format!("/{}", self.path.display());
        TreeWarning { path, reason: format!("cannot be read ({}); {consequence}", self.source) }
    }
}
