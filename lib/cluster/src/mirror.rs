//! What stands on the server, as far as is known: from lists, from the watch, and from the answers to writes. The three
//! come in any order; the newest version of an object counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ObjectVersion, WatchEvent};

/// What a [`Mirror`] keeps of an object.
pub trait Mirrored {
    /// Which version of which object it is.
    fn version(&self) -> &ObjectVersion;

    /// Makes it the same thing in another version.
    fn set_version(&mut self, version: ObjectVersion);

    /// Whether two versions of an object say the same to those who read it.
    fn says_the_same(&self, other: &Self) -> bool;
}

/// What an event means for whoever wants to keep the objects as they should be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MirrorChange {
    /// Nothing that was not known.
    None,
    /// Something is other than it was known to be.
    Changed,
    /// An object is gone, and nobody here deleted it.
    Deleted,
}

/// The objects, by name.
#[derive(Debug)]
pub struct Mirror<T> {
    objects: BTreeMap<String, T>,
    /// What the watch last saw deleted under a name. The answer to a write may come after the news of the deletion.
    deleted: BTreeMap<String, ObjectVersion>,
    /// UIDs of objects that are being deleted from here.
    deleting: BTreeSet<String>,
    /// A list that is not complete yet.
    listing: Option<BTreeMap<String, T>>,
    listed: bool,
}

impl<T> Default for Mirror<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            deleted: BTreeMap::new(),
            deleting: BTreeSet::new(),
            listing: None,
            listed: false,
        }
    }
}

impl<T: Clone + Mirrored> Mirror<T> {
    /// What is known, by name.
    pub fn objects(&self) -> &BTreeMap<String, T> {
        &self.objects
    }

    /// Whether a complete list has come since [`relist`](Self::relist).
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// A new list is on its way.
    pub fn relist(&mut self) {
        self.listed = false;
        self.listing = None;
    }

    /// Takes an event of the watch; objects come with their names.
    pub fn observe(&mut self, event: WatchEvent<(String, T)>) -> MirrorChange {
        match event {
            WatchEvent::ListStarted => self.listing = Some(BTreeMap::new()),
            WatchEvent::Listed((name, found)) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(name, found);
                }
            }
            WatchEvent::ListEnded => return self.take_list(),
            WatchEvent::Applied((name, found)) => return self.see(name, found),
            WatchEvent::Deleted((name, gone)) => return self.lose(&name, &gone),
        }
        MirrorChange::None
    }

    fn take_list(&mut self) -> MirrorChange {
        let list = self.listing.take().unwrap_or_default();
        self.objects.retain(|name, _| list.contains_key(name));
        for (name, found) in list {
            self.see(name, found);
        }
        self.deleting.retain(|uid| self.objects.values().any(|object| object.version().uid == *uid));
        self.listed = true;
        MirrorChange::Changed
    }

    fn see(&mut self, name: String, found: T) -> MirrorChange {
        let Some(known) = self.objects.get_mut(&name) else {
            self.objects.insert(name, found);
            return MirrorChange::Changed;
        };
        if found.version() == known.version() || found.version().is_older_than(known.version()) {
            return MirrorChange::None;
        }
        if found.says_the_same(known) {
            known.set_version(found.version().clone());
            return MirrorChange::None;
        }
        *known = found;
        MirrorChange::Changed
    }

    fn lose(&mut self, name: &str, gone: &T) -> MirrorChange {
        let gone = gone.version();
        self.deleted.insert(name.to_owned(), gone.clone());
        let is_it = |known: &&T| known.version().uid == gone.uid && !gone.is_older_than(known.version());
        if self.objects.get(name).filter(is_it).is_none() {
            return MirrorChange::None;
        }
        self.objects.remove(name);
        if self.deleting.remove(&gone.uid) { MirrorChange::None } else { MirrorChange::Deleted }
    }

    /// An object is about to be deleted from here: that it goes is no news then.
    pub fn deleting(&mut self, version: &ObjectVersion) {
        self.deleting.insert(version.uid.clone());
    }

    /// Takes the answer to a write or a read, unless the watch has told more by now. A list that was made before it may
    /// miss it.
    pub fn put(&mut self, name: String, object: T) -> MirrorChange {
        if self.deleted.get(&name).is_some_and(|gone| gone.uid == object.version().uid) {
            return MirrorChange::Deleted;
        }
        if self.objects.get(&name).is_some_and(|known| object.version().is_older_than(known.version())) {
            return MirrorChange::Changed;
        }
        if let Some(listing) = &mut self.listing {
            listing.insert(name.clone(), object.clone());
        }
        self.objects.insert(name, object);
        MirrorChange::None
    }

    /// The object is known not to be there.
    pub fn remove(&mut self, name: &str) {
        if let Some(listing) = &mut self.listing {
            listing.remove(name);
        }
        self.objects.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug)]
    struct Device {
        version: ObjectVersion,
        name: String,
    }

    impl Mirrored for Device {
        fn version(&self) -> &ObjectVersion {
            &self.version
        }

        fn set_version(&mut self, version: ObjectVersion) {
            self.version = version;
        }

        fn says_the_same(&self, other: &Self) -> bool {
            self.name == other.name
        }
    }

    fn slice(name: &str, uid: &str, version: u64, device: &str) -> (String, Device) {
        let version = ObjectVersion { uid: uid.to_owned(), resource_version: version.to_string() };
        (name.to_owned(), Device { version, name: device.to_owned() })
    }

    fn list(mirror: &mut Mirror<Device>, slices: Vec<(String, Device)>) {
        mirror.observe(WatchEvent::ListStarted);
        for slice in slices {
            mirror.observe(WatchEvent::Listed(slice));
        }
        assert_eq!(mirror.observe(WatchEvent::ListEnded), MirrorChange::Changed);
    }

    fn put(mirror: &mut Mirror<Device>, (name, slice): (String, Device)) {
        assert_eq!(mirror.put(name, slice), MirrorChange::None);
    }

    fn put_late(mirror: &mut Mirror<Device>, (name, slice): (String, Device)) -> MirrorChange {
        mirror.put(name, slice)
    }

    fn known(mirror: &Mirror<Device>) -> Vec<(&str, &str)> {
        mirror.objects().iter().map(|(name, it)| (name.as_str(), it.version.resource_version.as_str())).collect()
    }

    #[test]
    fn the_echo_of_a_write_is_nothing_new() {
        let mut mirror = Mirror::default();
        put(&mut mirror, slice("a", "u", 5, "x"));
        assert_eq!(mirror.observe(WatchEvent::Applied(slice("a", "u", 5, "x"))), MirrorChange::None);
        // An earlier write's echo comes after the answer to a later one.
        assert_eq!(mirror.observe(WatchEvent::Applied(slice("a", "u", 4, "y"))), MirrorChange::None);
        assert_eq!(known(&mirror), [("a", "5")]);
    }

    #[test]
    fn a_change_by_somebody_else_is_seen_unless_it_says_the_same() {
        let mut mirror = Mirror::default();
        put(&mut mirror, slice("a", "u", 5, "x"));
        assert_eq!(mirror.observe(WatchEvent::Applied(slice("a", "u", 6, "x"))), MirrorChange::None);
        assert_eq!(known(&mirror), [("a", "6")]);
        assert_eq!(mirror.observe(WatchEvent::Applied(slice("a", "u", 7, "y"))), MirrorChange::Changed);
        assert_eq!(mirror.observe(WatchEvent::Applied(slice("b", "v", 8, "y"))), MirrorChange::Changed);
    }

    #[test]
    fn an_answer_that_comes_after_later_news_of_the_watch_changes_nothing() {
        let mut mirror = Mirror::default();
        assert_eq!(mirror.observe(WatchEvent::Applied(slice("a", "u", 6, "y"))), MirrorChange::Changed);
        assert_eq!(put_late(&mut mirror, slice("a", "u", 5, "x")), MirrorChange::Changed);
        assert_eq!(known(&mirror), [("a", "6")]);

        assert_eq!(mirror.observe(WatchEvent::Deleted(slice("b", "v", 8, "x"))), MirrorChange::None);
        assert_eq!(put_late(&mut mirror, slice("b", "v", 7, "x")), MirrorChange::Deleted);
        assert_eq!(mirror.observe(WatchEvent::Deleted(slice("a", "u", 9, "y"))), MirrorChange::Deleted);
        assert_eq!(put_late(&mut mirror, slice("a", "u", 8, "x")), MirrorChange::Deleted);
        assert!(mirror.objects().is_empty());
        assert_eq!(put_late(&mut mirror, slice("a", "w", 10, "x")), MirrorChange::None);
        assert_eq!(known(&mirror), [("a", "10")]);
    }

    #[test]
    fn only_the_deletion_of_what_stands_there_counts() {
        let mut mirror = Mirror::default();
        put(&mut mirror, slice("a", "new", 9, "x"));
        assert_eq!(mirror.observe(WatchEvent::Deleted(slice("a", "old", 8, "x"))), MirrorChange::None);
        assert_eq!(mirror.observe(WatchEvent::Deleted(slice("a", "new", 10, "x"))), MirrorChange::Deleted);
        assert_eq!(mirror.observe(WatchEvent::Deleted(slice("a", "new", 10, "x"))), MirrorChange::None);
    }

    #[test]
    fn a_slice_that_is_deleted_from_here_is_not_missed() {
        let mut mirror = Mirror::default();
        put(&mut mirror, slice("a", "u", 1, "x"));
        put(&mut mirror, slice("b", "v", 2, "x"));
        let identity = mirror.objects()["a"].version.clone();
        mirror.deleting(&identity);
        assert_eq!(mirror.observe(WatchEvent::Deleted(slice("a", "u", 3, "x"))), MirrorChange::None);
        assert_eq!(known(&mirror), [("b", "2")]);
        assert_eq!(mirror.observe(WatchEvent::Deleted(slice("b", "v", 4, "x"))), MirrorChange::Deleted);
    }

    #[test]
    fn a_list_replaces_what_was_known_but_not_what_was_written_meanwhile() {
        let mut mirror = Mirror::default();
        list(&mut mirror, vec![slice("a", "u", 1, "x"), slice("gone", "v", 2, "x")]);
        mirror.observe(WatchEvent::ListStarted);
        mirror.observe(WatchEvent::Listed(slice("a", "u", 1, "x")));
        put(&mut mirror, slice("a", "u", 5, "y"));
        put(&mut mirror, slice("new", "w", 6, "y"));
        mirror.observe(WatchEvent::ListEnded);
        assert_eq!(known(&mirror), [("a", "5"), ("new", "6")]);
    }

    #[test]
    fn nothing_is_listed_until_the_list_is_complete() {
        let mut mirror = Mirror::<Device>::default();
        mirror.observe(WatchEvent::ListStarted);
        assert!(!mirror.is_listed());
        mirror.observe(WatchEvent::ListEnded);
        assert!(mirror.is_listed());
        mirror.relist();
        assert!(!mirror.is_listed());
    }
}
