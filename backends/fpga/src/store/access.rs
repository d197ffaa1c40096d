//! The folder of the store: nothing in it is believed as long as others can change it.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use hostler_files::{open_folder, trust};

use super::StoreError;

/// The names in the store's folder, sorted; none where there is no folder.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, StoreError> {
    match fs::metadata(folder) {
        Ok(found) => trust(folder, &found)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::file("look at", folder)(error)),
    }
    let entries = fs::read_dir(folder).map_err(StoreError::file("list", folder))?;
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

/// Removes a file; one that is gone already is no error.
pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::file("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Makes the folder where it is not there, and opens it.
pub(super) fn make(folder: &Path) -> Result<File, StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(StoreError::file("make", folder))?;
    let opened = open_folder(folder)?;
    trust(folder, &opened.metadata().map_err(StoreError::file("look at", folder))?)?;
    Ok(opened)
}
