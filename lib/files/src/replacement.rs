//! Replacing a file in one step.
//!
//! ```text
//!   temporary file made ──► content ──► synced ──► renamed ──► folder synced
//!   └──── any failure: the temporary file goes, the old one is untouched ────┘ a failure here: the new may not last
//! ```

use std::{io::Write, path::Path};

use crate::{FileError, FinishedFile, PendingFile, TemporaryName, open_folder};

/// Durability of a file on a machine that loses its power.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// The content is on the disk, under its name, when the write returns.
    Synced,
    /// Nothing waits for the disk: for files that do not outlive a boot, or that are made anew from others. Readers
    /// still never see half of one, unless the machine crashes.
    Unsynced,
}

/// A file and the content that it shall get.
#[derive(Clone, Copy, Debug)]
pub struct FileReplacement<'a> {
    /// The file.
    pub path: &'a Path,
    /// Name of the file until it is whole, in the same folder.
    pub temporary: TemporaryName<'a>,
    /// Mode of the file, whatever the umask.
    pub mode: u32,
    /// Content of the file.
    pub content: &'a [u8],
}

impl FileReplacement<'_> {
    /// Writes the content under the temporary name. For callers that replace several files at once; else see
    /// [`replace`].
    ///
    /// # Errors
    /// When the file cannot be made or the content does not get into it. No temporary file is left.
    pub fn prepare(&self, durability: Durability) -> Result<FinishedFile, FileError> {
        let folder = folder_of(self.path);
        let at = match self.temporary {
            TemporaryName::Fixed(name) => folder.join(name),
            TemporaryName::Unique { .. } => self.path.to_owned(),
        };
        let prepare = || {
            let mut pending = PendingFile::create(folder, self.temporary, self.mode)?;
            pending.write_all(self.content)?;
            pending.finish(durability)
        };
        prepare().map_err(FileError::at("write", &at))
    }
}

/// Gives a file its new content in one step.
///
/// # Errors
/// When a step fails. The old file is then there or the new one, whole in either case, and no temporary file is left.
pub fn replace(file: &FileReplacement<'_>, durability: Durability) -> Result<(), FileError> {
    file.prepare(durability)?.publish(file.path)?;
    match durability {
        Durability::Synced => sync_folder(folder_of(file.path)),
        Durability::Unsynced => Ok(()),
    }
}

/// Puts the names of a folder's files on the disk.
///
/// # Errors
/// When the folder cannot be opened or the disk fails.
pub fn sync_folder(folder: &Path) -> Result<(), FileError> {
    open_folder(folder)?.sync_all().map_err(FileError::at("sync", folder))
}

/// The folder of a file; a bare name is in the folder in which the process works.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
