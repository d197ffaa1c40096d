//! The slices of a publisher on the API server: from lists, from the watch, and from the answers to writes, in
//! any order. Pure.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{ObjectKey, resource::ResourceSliceSpec};
use hostler_cluster::{ApiObject, FollowEvent, ObjectVersion, RawObject};
use tracing::warn;

use super::{PublishedSlice, packed::KnownSlice};
use crate::{Fingerprint, ObjectStamp, Store};

/// Consequence of an event or an answer for the publisher.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SliceChange {
    /// Nothing that was not known.
    None,
    /// A slice is other than it was known to be.
    Changed,
    /// A slice is gone, and another one than the publisher deleted it.
    Deleted,
}

/// The slices, by name. They are packed: a cluster may have tens of thousands of devices.
#[derive(Debug, Default)]
pub struct KnownSlices {
    store: Store<KnownSlice>,
    /// UIDs of slices that the publisher deletes: their end is no news.
    deleting: BTreeSet<String>,
    is_listed: bool,
}

impl KnownSlices {
    /// Slices with their names.
    pub fn all(&self) -> BTreeMap<&str, PublishedSlice> {
        self.store.iter().map(|(key, slice)| (&*key.name, slice.unpack())).collect()
    }

    /// Slices of a pool with their names.
    pub fn of_pool(&self, pool: &str) -> BTreeMap<&str, PublishedSlice> {
        let of_pool = self.store.iter().filter(|(_, slice)| slice.pool.name == pool);
        of_pool.map(|(key, slice)| (&*key.name, slice.unpack())).collect()
    }

    /// Names of the pools that have slices.
    pub fn pools(&self) -> BTreeSet<&str> {
        self.store.iter().map(|(_, slice)| &*slice.pool.name).collect()
    }

    /// Hash of the names and versions of the slices of each pool that has some.
    pub fn pool_versions(&self) -> BTreeMap<String, Fingerprint> {
        let mut versions: BTreeMap<String, Fingerprint> = BTreeMap::new();
        for (key, slice) in self.store.iter() {
            let version = (&key.name, &slice.version.uid, &slice.version.resource_version);
            versions.entry(slice.pool.name.clone()).or_default().add(version);
        }
        versions
    }

    /// Number of slices.
    pub fn count(&self) -> usize {
        self.store.len()
    }

    /// True if a complete list has come since [`relist`](Self::relist).
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// A new list is on its way, and no write.
    pub fn relist(&mut self) {
        self.is_listed = false;
        self.store.forget_deletions();
    }

    /// Takes an event of the watch.
    pub fn observe(&mut self, event: &FollowEvent) -> SliceChange {
        match event {
            FollowEvent::ListStarted => {
                self.is_listed = false;
                self.store.list_started();
            }
            // Of a list only the whole is news.
            FollowEvent::Listed(object) => drop(self.read(object)),
            FollowEvent::ListEnded => return self.list_ended(),
            FollowEvent::Applied(object) => return self.read(object),
            FollowEvent::Deleted(object) => return self.lose(object.name(), &object.version()),
            FollowEvent::UpToDate => {}
        }
        SliceChange::None
    }

    /// Takes the answer to a write or a read, unless the watch has told more by now.
    pub fn put(&mut self, name: &str, slice: &PublishedSlice) -> SliceChange {
        let (key, stamp, slice) = (key(name), ObjectStamp::from(&slice.version), KnownSlice::pack(slice));
        if self.store.is_news(&key, stamp) {
            self.store.see(&key, stamp, slice);
            return SliceChange::None;
        }
        match self.store.get_mut(&key) {
            // The answer knows what was sent.
            Some(known) if known.version == slice.version => {
                *known = slice;
                SliceChange::None
            }
            Some(_) => SliceChange::Changed,
            None => SliceChange::Deleted,
        }
    }

    /// The publisher is about to delete this version of a slice.
    pub fn deleting(&mut self, version: &ObjectVersion) {
        self.deleting.insert(version.uid.clone());
    }

    /// A slice that had this version is known not to be there.
    pub fn remove(&mut self, name: &str, last: &ObjectVersion) {
        self.store.remove(&key(name), ObjectStamp::from(last));
    }

    /// Takes a slice as the server tells it. One that makes no sense hides no other; what is known of it stays.
    fn read(&mut self, object: &RawObject) -> SliceChange {
        match object.read::<ApiObject<ResourceSliceSpec>>() {
            Ok(slice) => match PublishedSlice::of(slice) {
                Some((name, slice)) => self.see(&name, &slice),
                None => SliceChange::None,
            },
            Err(error) => {
                warn!(slice = object.name(), error = %error, "failed to read a slice of this publisher");
                // It belongs to the list all the same.
                self.store.is_news(&object.key(), ObjectStamp::from(&object.version()));
                SliceChange::None
            }
        }
    }

    fn see(&mut self, name: &str, found: &PublishedSlice) -> SliceChange {
        let (key, stamp, found) = (key(name), ObjectStamp::from(&found.version), KnownSlice::pack(found));
        let same = self.store.get(&key).filter(|known| known.says_the_same(&found));
        let (is_same, slice) = match same {
            Some(known) => (true, KnownSlice { version: found.version, ..known.clone() }),
            None => (false, found),
        };
        match self.store.see(&key, stamp, slice) {
            Some(_) if !is_same => SliceChange::Changed,
            _ => SliceChange::None,
        }
    }

    fn list_ended(&mut self) -> SliceChange {
        self.store.list_ended();
        let store = &self.store;
        self.deleting.retain(|uid| store.iter().any(|(_, slice)| slice.version.uid == *uid));
        self.is_listed = true;
        SliceChange::Changed
    }

    fn lose(&mut self, name: &str, last: &ObjectVersion) -> SliceChange {
        match self.store.remove(&key(name), ObjectStamp::from(last)) {
            Some(lost) if !self.deleting.remove(&lost.version.uid) => SliceChange::Deleted,
            _ => SliceChange::None,
        }
    }
}

/// Slices have no namespace.
fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: String::new(), name: name.to_owned() }
}

#[cfg(test)]
mod tests;
