//! What is wrong with which object, so that the log says it when it is another trouble than the last, and not again and again.

use std::collections::BTreeMap;

/// The last trouble of each object that has one.
#[derive(Debug)]
pub(in crate::hold) struct Troubles<K>(BTreeMap<K, String>);

impl<K> Default for Troubles<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Troubles<K> {
    /// Whether that is another trouble than the last one of the object.
    pub(in crate::hold) fn is_news(&mut self, object: K, trouble: &str) -> bool {
        self.0.insert(object, trouble.to_owned()).as_deref() != Some(trouble)
    }

    /// Nothing is wrong with the object any more, or it is gone.
    pub(in crate::hold) fn mended(&mut self, object: &K) {
        self.0.remove(object);
    }
}
