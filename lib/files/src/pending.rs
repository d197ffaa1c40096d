//! A file that gets its content first and its name when it is whole.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use tempfile::{Builder, NamedTempFile, PathPersistError, TempPath};

use crate::{Durability, FileError};

/// Permissions of a file's owner; those of others are granted once the file is open.
const OWNER: u32 = 0o700;

/// Name of a file until it is whole. The folder's readers must not take it for one of theirs, and the clean-up after
/// a crash must recognise it.
#[derive(Clone, Copy, Debug)]
pub enum TemporaryName<'a> {
    /// Always the same name: a leftover of a crash is replaced by the next write. For files that have one writer at a
    /// time.
    Fixed(&'a str),
    /// A name that is new in the folder, between these two texts. Several may write at once.
    Unique {
        /// Beginning of the name.
        prefix: &'a str,
        /// End of the name.
        suffix: &'a str,
    },
}

/// A file that is being written, under its temporary name. Dropping it removes it.
#[derive(Debug)]
pub struct PendingFile(NamedTempFile);

impl PendingFile {
    /// Makes an empty file in `folder`. What stands there under the name already, a link included, is never written to.
    /// The mode is exact, whatever the umask.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(folder: &Path, name: TemporaryName<'_>, mode: u32) -> io::Result<Self> {
        let pending = Self::create_with(folder, name, |path| {
            OpenOptions::new().write(true).create_new(true).mode(mode & OWNER).open(path)
        })?;
        if mode & !OWNER != 0 {
            pending.0.as_file().set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(pending)
    }

    fn create_with(
        folder: &Path,
        name: TemporaryName<'_>,
        create_new: impl Fn(&Path) -> io::Result<File>,
    ) -> io::Result<Self> {
        let file = match name {
            TemporaryName::Unique { prefix, suffix } => {
                Builder::new().prefix(prefix).suffix(suffix).make_in(folder, create_new)
            }
            TemporaryName::Fixed(name) => Builder::new().prefix(name).rand_bytes(0).make_in(folder, |path| {
                create_new(path).or_else(|error| {
                    if error.kind() != ErrorKind::AlreadyExists {
                        return Err(error);
                    }
                    fs::remove_file(path)?;
                    create_new(path)
                })
            }),
        };
        file.map(Self)
    }

    /// Temporary path of the file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Ends the writing, and puts the content on the disk if it is to last. Of a new file this costs what `fdatasync`
    /// does, and its mode is there as well.
    ///
    /// # Errors
    /// When the disk fails, or is full and has not said so before.
    pub fn finish(self, durability: Durability) -> io::Result<FinishedFile> {
        if durability == Durability::Synced {
            self.0.as_file().sync_all()?;
        }
        Ok(FinishedFile(self.0.into_temp_path()))
    }
}

/// A file that is whole, closed, and still under its temporary name. Dropping it removes it.
#[derive(Debug)]
pub struct FinishedFile(TempPath);

impl FinishedFile {
    /// Gives the file its name, in the same file system. An earlier file of that name loses it; if a link has the
    /// name, only the link is replaced.
    ///
    /// # Errors
    /// When it cannot be renamed. Then an earlier file keeps the name.
    pub fn publish(self, path: &Path) -> Result<(), FileError> {
        self.0.persist(path).map_err(not_renamed)
    }

    /// Gives the file its name like [`FinishedFile::publish`], but an earlier file keeps the name.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::AlreadyExists`] in that case; or when it cannot be renamed.
    pub fn publish_new(self, path: &Path) -> Result<(), FileError> {
        self.0.persist_noclobber(path).map_err(not_renamed)
    }
}

fn not_renamed(error: PathPersistError) -> FileError {
    // The temporary file goes with the error.
    FileError::at("rename", &error.path)(error.error)
}

/// Errors are the kernel's own, without the temporary path that `tempfile` would add to them.
impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.as_file_mut().flush()
    }
}

#[cfg(test)]
mod tests;
