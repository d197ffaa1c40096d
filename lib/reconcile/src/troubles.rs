//! The last trouble of each object: the log names a trouble once, and again when it is another one.

use std::collections::BTreeMap;

/// Troubles by object.
#[derive(Debug)]
pub struct Troubles<K>(BTreeMap<K, String>);

impl<K> Default for Troubles<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Troubles<K> {
    /// Notes a trouble; true if it is another one than the last one of the object.
    pub fn is_news(&mut self, object: K, trouble: &str) -> bool {
        self.0.insert(object, trouble.to_owned()).as_deref() != Some(trouble)
    }

    /// Notes that the object has no trouble any more, or is gone.
    pub fn mended(&mut self, object: &K) {
        self.0.remove(object);
    }
}
