//! The objects of a kind and their versions, from lists, from watches and from answers to writes, in any order. Pure.
//!
//! The newest version of an object counts. One that cannot be read hides no other.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use hostler_api::ObjectKey;
use hostler_cluster::ObjectVersion;

/// Deletions that are remembered, in case older news of the object come behind them: from another server of the same cluster, or as
/// the answer to a write. Both come within moments.
const MOST_DELETED: usize = 256;

/// Version of an object, in a few bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ObjectStamp {
    /// Hash of the UID.
    uid: u64,
    version: u64,
}

impl ObjectStamp {
    /// True if this is an earlier version of the same object. Versions of one object are numbers that rise; of two objects with one
    /// name, the one that is seen later counts.
    pub fn is_older_than(self, other: Self) -> bool {
        self.is_of(other) && self.version < other.version
    }

    fn is_of(self, other: Self) -> bool {
        self.uid == other.uid
    }
}

impl From<&ObjectVersion> for ObjectStamp {
    fn from(version: &ObjectVersion) -> Self {
        let mut uid = DefaultHasher::new();
        version.uid.hash(&mut uid);
        // Where versions are no numbers, the later word counts.
        Self { uid: uid.finish(), version: version.resource_version.parse().unwrap_or_default() }
    }
}

/// The objects of a kind, each with a value that the reader keeps of it.
#[derive(Debug)]
pub struct Store<T> {
    objects: BTreeMap<Arc<ObjectKey>, (ObjectStamp, T)>,
    /// Objects of a list that is not complete yet.
    listing: Option<BTreeSet<Arc<ObjectKey>>>,
    deleted: VecDeque<(ObjectKey, ObjectStamp)>,
    /// Reasons why objects cannot be read.
    unreadable: BTreeMap<ObjectKey, String>,
    is_synced: bool,
}

/// News of an object that cannot be read.
#[derive(Debug, Eq, PartialEq)]
pub struct Unreadable<T> {
    /// True if the object could be read before, or was not there.
    pub is_first: bool,
    /// Value of another object that had the name.
    pub replaced: Option<T>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            listing: None,
            deleted: VecDeque::new(),
            unreadable: BTreeMap::new(),
            is_synced: false,
        }
    }
}

impl<T> Store<T> {
    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// True if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// True once a complete list was seen.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Objects that cannot be read, and why.
    pub fn unreadable(&self) -> &BTreeMap<ObjectKey, String> {
        &self.unreadable
    }

    /// Objects and their values, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &T)> {
        self.objects.iter().map(|(key, (_, value))| (&**key, value))
    }

    /// True while the first list is read.
    pub fn is_loading(&self) -> bool {
        self.listing.is_some() && !self.is_synced
    }

    /// Key of an object, for readers that keep it as well.
    pub fn shared_key(&self, key: &ObjectKey) -> Arc<ObjectKey> {
        let known = self.objects.get_key_value(key).map(|(known, _)| known);
        let known = known.or_else(|| self.listing.as_ref()?.get(key));
        known.map_or_else(|| Arc::new(key.clone()), Arc::clone)
    }

    /// Value of an object.
    pub fn get(&self, key: &ObjectKey) -> Option<&T> {
        self.objects.get(key).map(|(_, value)| value)
    }

    /// Value of an object, to be changed; the version stays.
    pub fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut T> {
        self.objects.get_mut(key).map(|(_, value)| value)
    }

    /// Forgets which objects were deleted. A server that was restored to an earlier state may have them again.
    pub fn forget_deletions(&mut self) {
        self.deleted.clear();
    }

    /// True if this version of the object would be news. One that is not belongs to a list under way all the same.
    pub fn is_news(&mut self, key: &ObjectKey, stamp: ObjectStamp) -> bool {
        if self.listing.is_some() {
            let key = self.shared_key(key);
            self.listing.get_or_insert_default().insert(key);
        }
        let known = self.objects.get(key).map(|(known, _)| *known);
        let is_known = known.is_some_and(|known| stamp == known || stamp.is_older_than(known));
        !is_known && !self.was_deleted(key, stamp)
    }

    /// Takes an object from a list, a watch or an answer. `Ok` with the value before where that is news.
    pub fn see(&mut self, key: &ObjectKey, stamp: ObjectStamp, value: T) -> Option<Option<T>> {
        if !self.is_news(key, stamp) {
            return None;
        }
        self.unreadable.remove(key);
        Some(self.put(key, stamp, value))
    }

    /// Takes an object that cannot be read. The value of an earlier version stays; `value` counts where there is none.
    pub fn see_unreadable(
        &mut self,
        key: &ObjectKey,
        stamp: ObjectStamp,
        reason: String,
        value: T,
    ) -> Option<Unreadable<T>> {
        if !self.is_news(key, stamp) {
            return None;
        }
        let is_first = self.unreadable.insert(key.clone(), reason).is_none();
        let replaced = match self.objects.get_mut(key) {
            Some((known, _)) if known.is_of(stamp) => {
                *known = stamp;
                None
            }
            _ => self.put(key, stamp, value),
        };
        Some(Unreadable { is_first, replaced })
    }

    /// Takes a deletion; returns the value of the object where it was known. The name may have another object by then, whose version is
    /// higher: versions rise over all objects of a kind.
    pub fn remove(&mut self, key: &ObjectKey, last: ObjectStamp) -> Option<T> {
        if self.deleted.len() == MOST_DELETED {
            self.deleted.pop_front();
        }
        self.deleted.push_back((key.clone(), last));
        if let Some(listing) = &mut self.listing {
            listing.remove(key);
        }
        let is_it = self.objects.get(key).is_some_and(|(known, _)| known.version <= last.version);
        if is_it { self.take(key) } else { None }
    }

    /// A list begins: one that was under way is void.
    pub fn list_started(&mut self) {
        self.listing = Some(BTreeSet::new());
    }

    /// The list is complete; returns the objects that are gone.
    pub fn list_ended(&mut self) -> Vec<(ObjectKey, T)> {
        self.is_synced = true;
        let Some(listing) = self.listing.take() else { return Vec::new() };
        let gone: Vec<_> = self.objects.keys().filter(|key| !listing.contains(*key)).cloned().collect();
        gone.into_iter().filter_map(|key| self.take(&key).map(|value| (Arc::unwrap_or_clone(key), value))).collect()
    }

    /// The API server does not serve the kind: there are no objects of it.
    pub fn not_served(&mut self) -> Vec<(ObjectKey, T)> {
        self.list_started();
        self.list_ended()
    }

    fn put(&mut self, key: &ObjectKey, stamp: ObjectStamp, value: T) -> Option<T> {
        let key = self.shared_key(key);
        self.objects.insert(key, (stamp, value)).map(|(_, before)| before)
    }

    fn take(&mut self, key: &ObjectKey) -> Option<T> {
        self.unreadable.remove(key);
        self.objects.remove(key).map(|(_, value)| value)
    }

    fn was_deleted(&self, key: &ObjectKey, stamp: ObjectStamp) -> bool {
        self.deleted.iter().any(|(gone, last)| gone == key && (stamp == *last || stamp.is_older_than(*last)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stamp(uid: &str, version: u64) -> ObjectStamp {
        ObjectStamp::from(&ObjectVersion { uid: uid.to_owned(), resource_version: version.to_string() })
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("", name)
    }

    fn see(store: &mut Store<u64>, name: &str, uid: &str, version: u64) -> bool {
        store.see(&key(name), stamp(uid, version), version).is_some()
    }

    #[test]
    fn the_newest_version_counts_whatever_comes_behind_it() {
        let mut store = Store::default();
        assert!(see(&mut store, "a", "u", 5));
        assert!(!see(&mut store, "a", "u", 5) && !see(&mut store, "a", "u", 4));
        assert!(see(&mut store, "a", "u", 7));
        assert_eq!(store.remove(&key("a"), stamp("u", 6)), None, "an older deletion");
        assert_eq!(store.remove(&key("a"), stamp("u", 8)), Some(7));
        assert!(!see(&mut store, "a", "u", 7) && !see(&mut store, "a", "u", 8), "the answer to a write comes late");
        assert!(see(&mut store, "a", "v", 3), "another object with the name");
    }

    #[test]
    fn the_end_of_an_object_is_not_the_end_of_its_successor() {
        let mut store = Store::default();
        see(&mut store, "a", "new", 9);
        assert_eq!(store.remove(&key("a"), stamp("old", 8)), None, "the answer to a write came before the watch");
        assert_eq!(store.remove(&key("a"), stamp("newer", 12)), Some(9), "of the one between only the end was told");
    }

    #[test]
    fn a_list_removes_what_it_lacks_and_not_what_was_written_meanwhile() {
        let mut store = Store::default();
        assert!(!store.is_synced());
        store.list_started();
        see(&mut store, "a", "u", 1);
        see(&mut store, "gone", "w", 2);
        assert!(store.list_ended().is_empty() && store.is_synced());
        store.list_started();
        see(&mut store, "a", "u", 1);
        see(&mut store, "new", "x", 6);
        assert_eq!(store.list_ended(), [(key("gone"), 2)]);
        // A list that breaks off is void.
        store.list_started();
        store.list_started();
        see(&mut store, "a", "u", 1);
        assert_eq!(store.list_ended(), [(key("new"), 6)]);
        assert_eq!(store.not_served().len(), 1);
        assert!(store.is_empty());
    }

    #[test]
    fn an_object_that_cannot_be_read_keeps_its_value_and_another_one_with_its_name_does_not() {
        let mut store = Store::default();
        see(&mut store, "a", "u", 1);
        let mut damaged = |uid, version| store.see_unreadable(&key("a"), stamp(uid, version), "why".to_owned(), 99);
        assert_eq!(damaged("u", 2), Some(Unreadable { is_first: true, replaced: None }));
        assert_eq!(damaged("u", 2), None);
        assert_eq!(damaged("u", 3), Some(Unreadable { is_first: false, replaced: None }));
        assert_eq!(damaged("v", 4), Some(Unreadable { is_first: false, replaced: Some(1) }));
        assert_eq!((store.get(&key("a")), store.unreadable().len()), (Some(&99), 1));
        assert!(see(&mut store, "a", "v", 5) && store.unreadable().is_empty());
    }

    proptest! {
        /// Whatever of the true history is told, late, twice or in another order: the store ends with the newest that it was told.
        #[test]
        fn news_in_any_order_end_with_the_newest(
            told in proptest::collection::vec((0..4_u64, 1..30_u64, any::<bool>()), 0..60)
        ) {
            let mut store = Store::default();
            let mut newest: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
            for (object, version, is_gone) in told {
                // Each version is one thing: there, or gone for good.
                let last = newest.get(&object).copied();
                let is_gone = is_gone && version > 20;
                if last.is_some_and(|(_, was_gone)| was_gone) { continue; }
                let (name, stamp) = (key(&object.to_string()), stamp(&object.to_string(), version));
                if is_gone { store.remove(&name, stamp); } else { store.see(&name, stamp, version); }
                if last.is_none_or(|(known, _)| version >= known) { newest.insert(object, (version, is_gone)); }
            }
            for (object, (version, is_gone)) in newest {
                let expected = (!is_gone).then_some(version);
                prop_assert_eq!(store.get(&key(&object.to_string())).copied(), expected);
            }
        }
    }
}
