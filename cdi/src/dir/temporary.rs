//! Replacing a file by way of a temporary one in the same directory, under a name that runtimes do not read.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

/// Ends neither in `.json` nor in `.yaml`, and belongs to nobody else.
const SUFFIX: &str = ".hostler-tmp";

/// Gives `path` this content in one step. `create` opens the temporary file.
///
/// On an error the file at `path` is as it was, and no temporary file is left.
pub(super) fn replace(path: &Path, bytes: &[u8], create: impl Fn(&Path) -> io::Result<File>) -> io::Result<()> {
    let temporary = name_beside(path)?;
    let file = match create(&temporary) {
        // The name is new in this process, so the file is left from an earlier one with the same id: in a container
        // that is the rule.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(&temporary)?;
            create(&temporary)?
        }
        other => other?,
    };
    let renamed = fill(file, bytes).and_then(|()| fs::rename(&temporary, path));
    if renamed.is_err() {
        // The write's own error says more than one of the clean-up could; the next start cleans up again.
        let _ = fs::remove_file(&temporary);
    }
    renamed
}

/// Opens a new file; whatever is there already, a link included, is an error.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Whether this is a temporary file of ours.
pub(super) fn is_leftover(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with('.') && name.ends_with(SUFFIX))
}

fn fill(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    // A spec is no secret, and rootless runtimes read it; set outright because the daemon's umask would narrow it.
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

fn name_beside(path: &Path) -> io::Result<PathBuf> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(ErrorKind::InvalidFilename)?;
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    Ok(path.with_file_name(format!(".{name}.{}-{number}{SUFFIX}", process::id())))
}
