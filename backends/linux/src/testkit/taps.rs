//! Taps that fail and count.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Mutex,
};

use nix::errno::Errno;

use crate::{PathAccess, SysRootTap};

/// Attributes that exist and cannot be used, as sysfs has them.
#[derive(Debug, Default)]
pub struct AttributeFaults(Mutex<BTreeMap<PathBuf, Errno>>);

impl AttributeFaults {
    /// Makes every access to `path` fail, but for questions whether it is there.
    pub fn set(&self, path: impl Into<PathBuf>, errno: Errno) {
        self.0.lock().unwrap().insert(path.into(), errno);
    }

    /// Makes `path` work again.
    pub fn clear(&self, path: impl AsRef<Path>) {
        self.0.lock().unwrap().remove(path.as_ref());
    }
}

impl SysRootTap for AttributeFaults {
    fn access(&self, access: PathAccess, path: &Path) -> io::Result<()> {
        if access == PathAccess::Look {
            return Ok(());
        }
        self.0.lock().unwrap().get(path).map_or(Ok(()), |errno| Err((*errno).into()))
    }
}

/// What was touched, and how often.
#[derive(Debug, Default)]
pub struct AccessCounts(Mutex<BTreeMap<(PathAccess, PathBuf), usize>>);

impl AccessCounts {
    /// What was touched since the last call.
    pub fn take(&self) -> BTreeMap<(PathAccess, PathBuf), usize> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl SysRootTap for AccessCounts {
    fn access(&self, access: PathAccess, path: &Path) -> io::Result<()> {
        *self.0.lock().unwrap().entry((access, path.to_owned())).or_default() += 1;
        Ok(())
    }
}
