//! Files that a command writes for its user: theirs alone, whole or not at all.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use hostler_files::{Durability, FileError, PendingFile, TemporaryName};

use super::CliFailure;

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
enum SaveError {
    /// Something is there already.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// The path is no ordinary file and must not be replaced.
    #[error("{} is no file", .0.display())]
    NotAFile(PathBuf),
    /// The disk is full, or the folder is not ours.
    #[error(transparent)]
    Write(#[from] FileError),
}

/// Writes a file that only its owner can read; says how to have one replaced that is there.
pub(super) fn save(path: &Path, bytes: &[u8], force: bool) -> Result<(), CliFailure> {
    write(path, bytes, force).map_err(|error| match error {
        SaveError::Exists(path) => CliFailure::Said(format!(
            "{} is there already: name another file, or replace it with --force",
            path.display()
        )),
        error => CliFailure::step("save the file", error),
    })
}

/// Without `replace` nothing that is there is touched.
fn write(path: &Path, bytes: &[u8], replace: bool) -> Result<(), SaveError> {
    match fs::symlink_metadata(path) {
        // Renaming over a device node would take it away.
        Ok(found) if !found.is_file() => return Err(SaveError::NotAFile(path.to_owned())),
        Ok(_) if !replace => return Err(SaveError::Exists(path.to_owned())),
        _ => {}
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let finished = || {
        let mut file = PendingFile::create(folder, TemporaryName::Unique { prefix: ".hostler-", suffix: "" }, 0o600)?;
        file.write_all(bytes)?;
        file.finish(Durability::Synced)
    };
    let file = finished().map_err(FileError::at("write", path))?;
    let placed = if replace { file.publish(path) } else { file.publish_new(path) };
    placed.map_err(|error| match error.source.kind() {
        io::ErrorKind::AlreadyExists => SaveError::Exists(path.to_owned()),
        _ => error.as_part_of("write", path).into(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_saved_file_is_the_owners_alone_and_stays_unless_told_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        write(&path, b"one", false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(write(&path, b"two", false), Err(SaveError::Exists(there)) if there == path));
        assert_eq!(fs::read(&path).unwrap(), b"one");
        write(&path, b"two", true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
    }

    #[test]
    fn what_is_no_file_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("nowhere", &link).unwrap();
        for path in [&link, Path::new("/dev/null"), folder.path()] {
            assert!(matches!(write(path, b"x", true), Err(SaveError::NotAFile(_))), "{}", path.display());
        }
        let error = write(&folder.path().join("absent/c"), b"x", false).unwrap_err();
        assert!(matches!(error, SaveError::Write(_)));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    }
}
