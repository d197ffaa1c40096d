//! One directory of CDI specs, as the runtimes watch it: reading all of it, and writing files of our own atomically.
//!
//! Runtimes read every name that ends in `.json` or `.yaml` as soon as it appears. A file is therefore written under a
//! name that they ignore and renamed: at no moment do they see half a file, and a full disk leaves the old one.
//!
//! Nothing is synced to the disk. The directory (`/var/run/cdi`) is usually in memory, and the claim records are the
//! truth: after a crash of the machine the files are written again from them, and a file that the crash cut short
//! differs from what it should be and is replaced.

#[cfg(test)]
mod tests;

use std::{
    fmt, fs,
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use hostler_files::{Durability, FileError, FileReplacement, TemporaryName, read_file};

use crate::{
    read::{ReadError, SpecExtension, extension, read_spec},
    spec::CdiSpec,
    validate::{ProblemSeverity, SpecProblem},
};

/// Suffix of temporary files: neither `.json` nor `.yaml`, and used by no other program.
const TEMPORARY_SUFFIX: &str = ".hostler-tmp";

/// A directory of CDI specs. The value holds the path alone; the directory need not exist.
#[derive(Clone, Debug)]
pub struct SpecDir {
    path: PathBuf,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteOutcome {
    /// The file was not there or had another content.
    Replaced,
    /// The file had this content already and was left alone, so that no runtime reads its directory again for nothing.
    Unchanged,
}

/// A file that runtimes take for a spec.
#[derive(Debug)]
pub struct SpecFile {
    /// Directory and name.
    pub path: PathBuf,
    /// Content of the file.
    pub spec: Result<CdiSpec, ReadError>,
    /// Findings of validation on the content; empty for a file that could not be read.
    pub problems: Vec<SpecProblem>,
}

/// Reason why an operation on a directory failed.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// The name cannot be a file name here.
    #[error("{stem:?} cannot name a CDI spec: {reason}")]
    Stem {
        /// The name without extension.
        stem: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// The spec is one that a runtime refuses or that breaks the specification.
    #[error("CDI spec {stem} is invalid: {}", ProblemList(problems))]
    Invalid {
        /// The name without extension.
        stem: String,
        /// All mistakes of the spec.
        problems: Vec<SpecProblem>,
    },
    /// The spec could not be turned into JSON.
    #[error("failed to encode CDI spec {stem}")]
    Encode {
        /// The name without extension.
        stem: String,
        /// Error of the serializer.
        #[source]
        source: serde_json::Error,
    },
    /// The directory could not be made.
    #[error("failed to create CDI directory {}", path.display())]
    CreateDir {
        /// The directory.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The new content could not be stored; the old file is as it was.
    #[error("failed to write CDI spec {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The file could not be removed.
    #[error("failed to remove {}", path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The directory could not be read.
    #[error("failed to list CDI directory {}", path.display())]
    List {
        /// The directory.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

struct ProblemList<'a>(&'a [SpecProblem]);

impl fmt::Display for ProblemList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(SpecProblem::to_string).collect();
        f.write_str(&texts.join(" | "))
    }
}

impl SpecDir {
    /// The directory at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the file that [`SpecDir::write`] writes for a stem.
    ///
    /// # Errors
    /// [`DirError::Stem`].
    pub fn file(&self, stem: &str) -> Result<PathBuf, DirError> {
        check_stem(stem).map_err(|reason| DirError::Stem { stem: stem.to_owned(), reason })?;
        Ok(self.path.join(format!("{stem}.json")))
    }

    /// Writes `<stem>.json`, readable by everyone, in one step; makes the directory where it is missing.
    ///
    /// # Errors
    /// The name or the spec is wrong, or the system refuses; in each case the old file is as it was.
    pub fn write(&self, stem: &str, spec: &CdiSpec) -> Result<WriteOutcome, DirError> {
        let path = self.file(stem)?;
        spec.validate().map_err(|problems| DirError::Invalid { stem: stem.to_owned(), problems })?;
        let bytes = spec.to_json().map_err(|source| DirError::Encode { stem: stem.to_owned(), source })?;
        if holds(&path, &bytes) {
            return Ok(WriteOutcome::Unchanged);
        }
        self.create()?;
        let prefix = format!(".{stem}.json.");
        let temporary = TemporaryName::Unique { prefix: &prefix, suffix: TEMPORARY_SUFFIX };
        // A spec is no secret, and rootless runtimes read it.
        let file = FileReplacement { path: &path, temporary, mode: 0o644, content: &bytes };
        match hostler_files::replace(&file, Durability::Unsynced) {
            Ok(()) => Ok(WriteOutcome::Replaced),
            Err(FileError { source, .. }) => Err(DirError::Write { path, source }),
        }
    }

    /// Makes the directory where it is missing. Rootless runtimes read it too, so it is open to all whatever the umask.
    ///
    /// # Errors
    /// [`DirError::CreateDir`].
    pub fn create(&self) -> Result<(), DirError> {
        const MODE: u32 = 0o755;
        if self.path.is_dir() {
            return Ok(());
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(MODE)
            .create(&self.path)
            .and_then(|()| fs::set_permissions(&self.path, fs::Permissions::from_mode(MODE)))
            .map_err(|source| DirError::CreateDir { path: self.path.clone(), source })
    }

    /// Removes `<stem>.json`. A file that is already gone is success: the kubelet repeats calls, and a reboot empties
    /// the directory.
    ///
    /// # Errors
    /// The name is wrong, or the system refuses.
    pub fn remove(&self, stem: &str) -> Result<(), DirError> {
        remove_file(&self.file(stem)?)
    }

    /// Every file that runtimes take for a spec, by name, with what is wrong with it. A directory that is not there has
    /// none.
    ///
    /// # Errors
    /// [`DirError::List`].
    pub fn scan(&self) -> Result<Vec<SpecFile>, DirError> {
        let is_spec = |path: &Path| extension(path).is_some();
        Ok(self.entries()?.into_iter().filter(|path| is_spec(path)).filter_map(SpecFile::load).collect())
    }

    /// The JSON files of one vendor: those named `<vendor>-…` as the reference library names them, unless their
    /// content is another vendor's. Files that cannot be read are among them, so that their owner can replace or
    /// remove them.
    ///
    /// # Errors
    /// [`DirError::List`].
    pub fn list(&self, vendor: &str) -> Result<Vec<SpecFile>, DirError> {
        Ok(self.named(vendor)?.into_iter().filter_map(|path| SpecFile::of_vendor(path, vendor)).collect())
    }

    /// The JSON files that are named as one vendor's, unread.
    ///
    /// # Errors
    /// [`DirError::List`].
    pub fn named(&self, vendor: &str) -> Result<Vec<PathBuf>, DirError> {
        let prefix = format!("{vendor}-");
        let is_named = |path: &PathBuf| {
            extension(path) == Some(SpecExtension::Json) && stem(path).is_some_and(|stem| stem.starts_with(&prefix))
        };
        Ok(self.entries()?.into_iter().filter(is_named).collect())
    }

    /// Removes temporary files that a crash left behind, and returns their number. Only for the start: a write under
    /// way in another thread would lose its file and fail.
    ///
    /// # Errors
    /// The directory cannot be listed, or a file cannot be removed.
    pub fn remove_leftovers(&self) -> Result<usize, DirError> {
        let leftovers: Vec<_> = self.entries()?.into_iter().filter(|path| is_leftover(path)).collect();
        leftovers.iter().try_for_each(|path| remove_file(path))?;
        Ok(leftovers.len())
    }

    /// All entries but directories, by name.
    fn entries(&self) -> Result<Vec<PathBuf>, DirError> {
        let list = || -> io::Result<Vec<PathBuf>> {
            let mut paths = Vec::new();
            for entry in fs::read_dir(&self.path)? {
                let entry = entry?;
                if !entry.file_type()?.is_dir() {
                    paths.push(entry.path());
                }
            }
            paths.sort();
            Ok(paths)
        };
        match list() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            other => other.map_err(|source| DirError::List { path: self.path.clone(), source }),
        }
    }
}

impl SpecFile {
    /// Reads a file that is named as a vendor's; `None` where its content is another's, and where it went away
    /// meanwhile.
    pub fn of_vendor(path: PathBuf, vendor: &str) -> Option<Self> {
        Self::load(path).filter(|file| file.vendor().is_none_or(|found| found == vendor))
    }

    /// Reads and validates a file; `None` where it went away meanwhile.
    fn load(path: PathBuf) -> Option<Self> {
        let spec = read_spec(&path);
        if spec.is_err() && path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return None;
        }
        let problems = spec.as_ref().map_or_else(|_| Vec::new(), |spec| spec.validate().err().unwrap_or_default());
        Some(Self { path, spec, problems })
    }

    /// The file name without its extension; `None` where it is no UTF-8.
    pub fn stem(&self) -> Option<&str> {
        stem(&self.path)
    }

    /// The content, unless a runtime would refuse it.
    pub fn usable(&self) -> Option<&CdiSpec> {
        let is_refused = self.problems.iter().any(|problem| problem.severity == ProblemSeverity::Refused);
        self.spec.as_ref().ok().filter(|_| !is_refused)
    }

    fn vendor(&self) -> Option<&str> {
        self.spec.as_ref().ok()?.kind.split_once('/').map(|(vendor, _)| vendor)
    }
}

/// True for a temporary file of hostler.
fn is_leftover(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with('.') && name.ends_with(TEMPORARY_SUFFIX))
}

fn stem(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(".json").or_else(|| name.strip_suffix(".yaml"))
}

/// Checks a stem. A stem is part of a path that root writes to: nothing that could lead out of the directory or hide
/// the file.
fn check_stem(stem: &str) -> Result<(), &'static str> {
    // A file name has at most 255 bytes; the temporary name adds dots, suffix and a few random characters.
    const MAX_BYTES: usize = 180;
    if stem.is_empty() {
        return Err("it is empty");
    }
    if stem.len() > MAX_BYTES {
        return Err("it is longer than 180 bytes");
    }
    if stem.starts_with('.') || stem.contains("..") {
        return Err("it begins with a dot or has two in a row");
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    if stem.chars().all(is_allowed) {
        Ok(())
    } else {
        Err("it has other characters than letters, digits, '.', '_', '-' and ':'")
    }
}

/// True if the file itself (no link to it) has this content. A file that cannot be read has not.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    let has_length = |metadata: fs::Metadata| metadata.is_file() && metadata.len() == bytes.len() as u64;
    path.symlink_metadata().is_ok_and(has_length)
        && read_file(path, bytes.len() as u64).is_ok_and(|found| found == bytes)
}

fn remove_file(path: &Path) -> Result<(), DirError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| DirError::Remove { path: path.to_owned(), source }),
    }
}
