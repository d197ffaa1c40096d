//! A snapshot as a `.tar.zst` archive: the same bytes for the same content, whoever made it and when.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tar::{Builder, EntryType, Header};

use super::{
    replay::READ_ERRORS,
    snapshot::{SnapshotEntry, TreeSnapshot},
    unpack::harmless,
};

/// Why an archive was not written.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// Something is there already.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// What is there is no ordinary file and must not be replaced.
    #[error("{} is no file", .0.display())]
    NotAFile(PathBuf),
    /// The disk is full, or the folder is not ours.
    #[error("failed to write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
}

impl TreeSnapshot {
    /// The archive: entries sorted by path, without times and owners. Files that are not copied are empty and of mode 0.
    ///
    /// # Errors
    /// When a path or its content does not fit into the format.
    pub fn to_archive(&self) -> io::Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            append(&mut tar, path, entry)?;
        }
        if !self.errors.is_empty() {
            append(&mut tar, Path::new(READ_ERRORS), &SnapshotEntry::File(self.read_errors().into_bytes()))?;
        }
        Ok(compress_to_vec(tar.into_inner()?.as_slice(), CompressionLevel::Fastest))
    }

    /// A line per file: path of the machine, what was tried, the error's number and its words.
    fn read_errors(&self) -> String {
        let mut text = String::new();
        for (path, number) in &self.errors {
            let words = io::Error::from_raw_os_error(*number);
            // Writing to a string does not fail.
            let _ = writeln!(text, "/{}\tread\t{number}\t{words}", path.display());
        }
        text
    }
}

fn append(tar: &mut Builder<Vec<u8>>, path: &Path, entry: &SnapshotEntry) -> io::Result<()> {
    let (kind, mode, content): (_, _, &[u8]) = match entry {
        SnapshotEntry::Folder => (EntryType::Directory, 0o755, &[]),
        SnapshotEntry::File(content) => (EntryType::Regular, 0o644, content),
        SnapshotEntry::Present => (EntryType::Regular, 0, &[]),
        SnapshotEntry::Link(_) => (EntryType::Symlink, 0o777, &[]),
    };
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(content.len() as u64);
    let SnapshotEntry::Link(target) = entry else { return tar.append_data(&mut header, path, content) };
    // What may lead out would be left out when it is unpacked; nothing that was read lies behind it then either.
    match harmless(target, path.components().count().saturating_sub(1)) {
        Some(target) => tar.append_link(&mut header, path, target),
        None => Ok(()),
    }
}

/// Writes a file that only its owner can read, whole or not at all. Without `replace` nothing that is there is touched.
///
/// # Errors
/// When something is there that must stay, or the file cannot be written.
pub fn save(path: &Path, bytes: &[u8], replace: bool) -> Result<(), SaveError> {
    let failed = |source| SaveError::Write { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        // Renaming over a device node would take it away.
        Ok(found) if !found.is_file() => return Err(SaveError::NotAFile(path.to_owned())),
        Ok(_) if !replace => return Err(SaveError::Exists(path.to_owned())),
        _ => {}
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Of mode 0600, and removed again if anything below fails.
    let mut file = tempfile::Builder::new().prefix(".hostler-").tempfile_in(folder).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    let placed = if replace { file.persist(path) } else { file.persist_noclobber(path) };
    match placed {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(SaveError::Exists(path.to_owned())),
        Err(error) => Err(failed(error.error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_saved_file_is_the_owners_alone_and_stays_unless_told_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        save(&path, b"one", false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(save(&path, b"two", false), Err(SaveError::Exists(there)) if there == path));
        assert_eq!(fs::read(&path).unwrap(), b"one");
        save(&path, b"two", true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
    }

    #[test]
    fn what_is_no_file_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("nowhere", &link).unwrap();
        for path in [&link, Path::new("/dev/null"), folder.path()] {
            assert!(matches!(save(path, b"x", true), Err(SaveError::NotAFile(_))), "{}", path.display());
        }
        let error = save(&folder.path().join("absent/c"), b"x", false).unwrap_err();
        assert!(matches!(error, SaveError::Write { .. }));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    }
}
