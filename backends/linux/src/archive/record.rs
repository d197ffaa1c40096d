//! Records what a reader of a tree looks at.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::{PathAccess, SysRootTap};

/// Recorder to put between a tree and its readers ([`SysRoot::tapped`](crate::SysRoot::tapped)); a
/// [`TreeSnapshot`](super::TreeSnapshot) then takes what they looked at.
#[derive(Debug, Default)]
pub struct AccessRecorder(Mutex<BTreeSet<(PathBuf, PathAccess)>>);

impl AccessRecorder {
    /// Returns the accesses so far, by path.
    pub(super) fn seen(&self) -> BTreeSet<(PathBuf, PathAccess)> {
        // A set is whole after every insertion, even if another thread panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl SysRootTap for AccessRecorder {
    fn access(&self, access: PathAccess, path: &Path) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((path.to_owned(), access));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::SysRoot;

    #[test]
    fn every_kind_of_access_is_noted_once_whatever_came_of_it() {
        let recorder = Arc::new(AccessRecorder::default());
        let root = SysRoot::new("/nonexistent").tapped(recorder.clone());
        for _ in 0..2 {
            assert_eq!((root.attribute("sys/a").unwrap(), root.names("sys").unwrap()), (None, Vec::new()));
            assert_eq!((root.link("sys/a").unwrap(), root.exists("sys/b").unwrap()), (None, false));
        }
        use PathAccess::{Link, List, Look, Read};
        let expected = [("sys", List), ("sys/a", Read), ("sys/a", Link), ("sys/b", Look)];
        let expected: BTreeSet<_> = expected.map(|(path, access)| (PathBuf::from(path), access)).into();
        assert_eq!(recorder.seen(), expected);
    }
}
