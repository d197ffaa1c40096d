//! One live daemon per node: the others wait for this lock. The kernel drops it with the process, however that ends.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

/// The lock, held until it is dropped or, once kept, until the process ends.
#[derive(Debug)]
pub(super) struct InstanceLock {
    _flock: Flock<File>,
}

impl InstanceLock {
    /// The lock, if nobody else has it.
    pub(super) fn try_take(path: &Path) -> io::Result<Option<Self>> {
        match Flock::lock(open(path)?, FlockArg::LockExclusiveNonblock) {
            Ok(flock) => Ok(Some(Self { _flock: flock })),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(error.into()),
        }
    }

    /// The lock, as soon as nobody else has it. Blocking.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        let mut file = open(path)?;
        loop {
            match Flock::lock(file, FlockArg::LockExclusive) {
                Ok(flock) => return Ok(Self { _flock: flock }),
                Err((back, Errno::EINTR)) => file = back,
                Err((_, error)) => return Err(error.into()),
            }
        }
    }

    /// Holds the lock as long as the process lives.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_gets_the_lock_when_the_first_has_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = InstanceLock::try_take(&path).unwrap().unwrap();
        assert!(InstanceLock::try_take(&path).unwrap().is_none());
        let waiting = {
            let path = path.clone();
            std::thread::spawn(move || InstanceLock::take(&path).map(drop))
        };
        drop(first);
        waiting.join().unwrap().unwrap();
        assert!(InstanceLock::try_take(&path).unwrap().is_some());
    }
}
