//! Reading files that hostler has kept: no links, nothing that others can have changed, nothing larger than it may
//! be. A FIFO, a device or a sparse file of that name is reported, not waited for or read to its end.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, io::Errno, process::geteuid};

use crate::{
    FileError,
    bounded::{opened, read_opened, with_flags},
};

/// Bits that let a group or all users write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// The sticky bit: only the owner of an entry removes or renames it.
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;

/// Reason why a file or folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another user may have changed it, or put it there.
    #[error("{} {reason}", path.display())]
    Untrusted {
        /// The file or folder.
        path: PathBuf,
        /// Cause of the distrust, and how to mend it.
        reason: String,
    },
}

impl TrustError {
    fn untrusted(path: &Path, reason: impl Into<String>) -> Self {
        Self::Untrusted { path: path.to_owned(), reason: reason.into() }
    }

    pub(crate) fn too_large(path: &Path, bytes: u64, most: u64) -> Self {
        Self::untrusted(path, format!("has {bytes} bytes; {most} are the most; remove it"))
    }

    /// True if there is no such file.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::File(FileError { source, .. }) if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Opens a file that only root or this process's user can have written.
///
/// # Errors
/// When it cannot be opened, is a link or no file, or belongs to others or can be changed by them.
pub fn open_trusted(path: &Path) -> Result<(File, Metadata), TrustError> {
    trusted(path, &with_flags(OFlags::NOFOLLOW | OFlags::NONBLOCK))
}

fn trusted(path: &Path, options: &OpenOptions) -> Result<(File, Metadata), TrustError> {
    let (file, found) = opened(path, options).map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::LOOP) => TrustError::untrusted(path, "is a link; remove it"),
        _ if source.kind() == io::ErrorKind::InvalidInput => TrustError::untrusted(path, "is not a file; remove it"),
        _ => FileError::at("open", path)(source).into(),
    })?;
    trust(path, &found)?;
    Ok((file, found))
}

/// Opens a file like [`open_trusted`], for writing as well.
pub(crate) fn open_trusted_to_write(path: &Path) -> Result<(File, Metadata), TrustError> {
    trusted(path, with_flags(OFlags::NOFOLLOW | OFlags::NONBLOCK).write(true))
}

/// The content of such a file, of at most `most` bytes.
///
/// # Errors
/// As [`open_trusted`], and when it is larger or cannot be read.
pub fn read_trusted(path: &Path, most: u64) -> Result<Vec<u8>, TrustError> {
    let (file, found) = open_trusted(path)?;
    read_opened(file, &found, most).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => TrustError::too_large(path, found.len(), most),
        _ => FileError::at("read", path)(source).into(),
    })
}

/// Refuses a folder that others can change, or that others have led here by a link.
///
/// # Errors
/// As [`trust`], and when the folder cannot be looked at.
pub fn trust_folder(path: &Path) -> Result<(), TrustError> {
    let failed = |source| FileError::at("look at", path)(source);
    let named = fs::symlink_metadata(path).map_err(failed)?;
    // In a folder with the sticky bit only the owner of the link can replace it.
    if named.is_symlink() && !is_ours(&named) {
        return Err(TrustError::untrusted(path, format!("is a link of user {}; remove it", named.uid())));
    }
    trust(path, &fs::metadata(path).map_err(failed)?)
}

/// Refuses a file or folder that others can change: a folder before anything in it is believed, a file after it was
/// opened.
///
/// # Errors
/// When it belongs to others or can be changed by them; the reason says how to mend that.
pub fn trust(path: &Path, found: &Metadata) -> Result<(), TrustError> {
    if !is_ours(found) {
        return Err(TrustError::untrusted(path, format!("belongs to user {}; give it to root", found.uid())));
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        let mode = found.mode() & 0o7777;
        // Kubelets make every emptyDir in memory like this; a pod cannot change it.
        let or = if found.is_dir() && mode & STICKY != 0 { ", or name a folder below it" } else { "" };
        return Err(TrustError::untrusted(
            path,
            format!("can be changed by others (mode {mode:o}); chmod go-w it{or}"),
        ));
    }
    Ok(())
}

fn is_ours(found: &Metadata) -> bool {
    found.uid() == ROOT || found.uid() == geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt, symlink},
    };

    use nix::{
        sys::stat::Mode,
        unistd::{Uid, chown, geteuid, mkfifo},
    };

    use super::*;

    fn refusal(path: &Path) -> String {
        read_trusted(path, 100).unwrap_err().to_string()
    }

    #[test]
    fn only_files_that_nobody_else_can_change_are_read() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        fs::write(path("good"), "content").unwrap();
        fs::set_permissions(path("good"), Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read_trusted(&path("good"), 100).unwrap(), b"content");
        assert!(read_trusted(&path("absent"), 100).unwrap_err().is_absent());

        symlink(path("good"), path("link")).unwrap();
        assert!(refusal(&path("link")).ends_with("link is a link; remove it"));
        fs::create_dir(path("folder")).unwrap();
        assert!(refusal(&path("folder")).ends_with("folder is not a file; remove it"));
        mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        assert!(refusal(&path("fifo")).ends_with("fifo is not a file; remove it"), "and it is not waited for");
        fs::write(path("open"), "").unwrap();
        fs::set_permissions(path("open"), Permissions::from_mode(0o622)).unwrap();
        assert!(refusal(&path("open")).ends_with("open can be changed by others (mode 622); chmod go-w it"));
        File::create(path("sparse")).unwrap().set_len(3 << 30).unwrap();
        assert!(refusal(&path("sparse")).ends_with("sparse has 3221225472 bytes; 100 are the most; remove it"));
    }

    #[test]
    fn what_belongs_to_another_user_is_not_believed() {
        if !geteuid().is_root() {
            println!("skipped: only root can give a file away");
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("forged");
        fs::write(&path, "content").unwrap();
        chown(&path, Some(Uid::from_raw(12345)), None).unwrap();
        assert!(refusal(&path).ends_with("forged belongs to user 12345; give it to root"));
        chown(temp.path(), Some(Uid::from_raw(12345)), None).unwrap();
        let error = trust(temp.path(), &fs::metadata(temp.path()).unwrap()).unwrap_err().to_string();
        assert!(error.ends_with("belongs to user 12345; give it to root"), "{error}");
    }

    #[test]
    fn a_folder_that_others_lead_to_or_can_change_is_not_believed() {
        let temp = tempfile::tempdir().unwrap();
        let (open, own, link) = (temp.path().join("open"), temp.path().join("open/own"), temp.path().join("open/link"));
        fs::create_dir_all(&own).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
        fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
        let error = trust_folder(&open).unwrap_err().to_string();
        assert!(error.ends_with("(mode 1777); chmod go-w it, or name a folder below it"), "{error}");
        trust_folder(&own).unwrap();
        symlink(&own, &link).unwrap();
        trust_folder(&link).unwrap();
        assert!(trust_folder(&temp.path().join("absent")).unwrap_err().is_absent());
        if geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(12345), None).unwrap();
            let error = trust_folder(&link).unwrap_err().to_string();
            assert!(error.ends_with("link is a link of user 12345; remove it"), "{error}");
        }
    }
}
