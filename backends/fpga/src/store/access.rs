//! Files of the store, opened with care: no links, no files that others can change, nothing larger than it may be.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use nix::{libc, unistd::geteuid};

use super::StoreError;

/// Bits that let a group or everybody write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const ROOT: u32 = 0;

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

/// Makes the folder where it is not there, and opens it.
pub(super) fn make(folder: &Path) -> Result<File, StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(StoreError::file("make", folder))?;
    let opened = File::open(folder).map_err(StoreError::file("open", folder))?;
    trust(folder, &opened.metadata().map_err(StoreError::file("look at", folder))?)?;
    Ok(opened)
}

/// Opens a file of the store.
pub(super) fn open(path: &Path) -> Result<(File, Metadata), StoreError> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|source| match source.raw_os_error() {
        Some(libc::ELOOP) => untrusted(path, "is a link; remove it, and add the bitstream again"),
        _ => StoreError::file("open", path)(source),
    })?;
    let found = file.metadata().map_err(StoreError::file("look at", path))?;
    if !found.is_file() {
        return Err(untrusted(path, "is not a file; remove it"));
    }
    trust(path, &found)?;
    Ok((file, found))
}

/// The content of a file of the store.
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>, StoreError> {
    let (file, found) = open(path)?;
    if found.len() > most {
        return Err(untrusted(path, &format!("has {} bytes; {most} are the most", found.len())));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or_default());
    file.take(most).read_to_end(&mut bytes).map_err(StoreError::file("read", path))?;
    Ok(bytes)
}

fn trust(path: &Path, found: &Metadata) -> Result<(), StoreError> {
    if found.uid() != ROOT && found.uid() != geteuid().as_raw() {
        return Err(untrusted(path, &format!("belongs to user {}; give it to root", found.uid())));
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        let mode = found.mode() & 0o7777;
        return Err(untrusted(path, &format!("can be changed by others (mode {mode:o}); chmod go-w it")));
    }
    Ok(())
}

fn untrusted(path: &Path, reason: &str) -> StoreError {
    StoreError::Untrusted { path: path.to_owned(), reason: reason.to_owned() }
}
