//! A lock file: one process holds it as long as it lives, and notices when the name leads to another file than the
//! held one.
//!
//! The lock is on a file, and others find the file by its name. Where the file is removed or replaced under its
//! holder, the next process gets a lock as well, on another file of that name: so the two are compared, after the
//! lock was taken, and before the holder acts.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};

use crate::FileError;

/// The lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct InstanceLock {
    path: PathBuf,
    file: File,
    held: FileIdentity,
}

/// Identity of a file, whatever its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

/// Reason why a lock is not known to be held.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process can hold a lock of the same name.
    #[error(
        "the lock file {path} was removed or replaced: another daemon may work on the same folders, so this one does nothing more"
    )]
    Lost {
        /// The name.
        path: PathBuf,
    },
    /// The state of the lock cannot be told.
    #[error("it cannot be known whether the lock is still held")]
    Unknown(#[source] FileError),
}

impl InstanceLock {
    /// Takes the lock, if no other process has it.
    ///
    /// # Errors
    /// When the file cannot be opened, looked at or locked.
    pub fn try_take(path: &Path) -> Result<Option<Self>, FileError> {
        match Self::locked(path, FlockOperation::NonBlockingLockExclusive) {
            Err(error) if error.source.kind() == io::ErrorKind::WouldBlock => Ok(None),
            taken => taken.map(Some),
        }
    }

    /// Takes the lock, as soon as no other process has it. Blocking.
    ///
    /// # Errors
    /// When the file cannot be opened, looked at or locked.
    pub fn take(path: &Path) -> Result<Self, FileError> {
        Self::locked(path, FlockOperation::LockExclusive)
    }

    fn locked(path: &Path, operation: FlockOperation) -> Result<Self, FileError> {
        loop {
            let file = open(path)?;
            while let Err(error) = flock(&file, operation) {
                if error != Errno::INTR {
                    return Err(FileError::at("lock", path)(error.into()));
                }
            }
            let held = FileIdentity::of(&file.metadata().map_err(FileError::at("look at", path))?);
            let lock = Self { path: path.to_owned(), file, held };
            match lock.check() {
                Ok(()) => return Ok(lock),
                // During the wait, the name went to another file: that one counts.
                Err(LockError::Lost { .. }) => {}
                Err(LockError::Unknown(error)) => return Err(error),
            }
        }
    }

    /// Checks that the next process finds this lock. One look at the file's name: cheap enough for every act.
    ///
    /// # Errors
    /// When the name leads to another file or to none, and when that cannot be known.
    pub fn check(&self) -> Result<(), LockError> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) if FileIdentity::of(&found) == self.held => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LockError::Unknown(FileError::at("look at", &self.path)(error)))
            }
            _ => Err(LockError::Lost { path: self.path.clone() }),
        }
    }

    /// Gives the lock up, and leaves the file where it is.
    pub fn release(self) {
        drop(self.file);
    }
}

fn open(path: &Path) -> Result<File, FileError> {
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    options.open(path).map_err(FileError::at("open", path))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_second_process_gets_the_lock_when_the_first_has_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = InstanceLock::try_take(&path).unwrap().unwrap();
        assert!(InstanceLock::try_take(&path).unwrap().is_none());
        let waiting = {
            let path = path.clone();
            thread::spawn(move || InstanceLock::take(&path).map(InstanceLock::release))
        };
        first.release();
        waiting.join().unwrap().unwrap();
        assert!(InstanceLock::try_take(&path).unwrap().is_some());
    }

    #[test]
    fn a_lock_whose_file_was_removed_or_replaced_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = InstanceLock::try_take(&path).unwrap().unwrap();
        first.check().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(matches!(first.check(), Err(LockError::Lost { .. })));
        let second = InstanceLock::try_take(&path).unwrap().unwrap();
        assert!(matches!(first.check(), Err(LockError::Lost { .. })), "another file has the name");
        second.check().unwrap();
    }

    #[test]
    fn whoever_waited_for_a_lock_whose_file_has_gone_waits_for_the_one_that_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let old = InstanceLock::try_take(&path).unwrap().unwrap();
        let waiting = {
            let path = path.clone();
            thread::spawn(move || {
                let taken = InstanceLock::take(&path).unwrap();
                let counts = taken.check().is_ok();
                taken.release();
                counts
            })
        };
        // Whether it waits already or is yet to come, it must not end up with the old file.
        fs::remove_file(&path).unwrap();
        InstanceLock::take(&path).unwrap().release();
        old.release();
        assert!(waiting.join().unwrap());
    }

    #[test]
    fn a_link_is_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
        InstanceLock::try_take(&path).unwrap_err();
        assert!(!dir.path().join("elsewhere").exists());
    }
}
