//! The slices that stand on the server, as far as is known: from lists, from the watch, and from the answers to writes.
//! The three come in any order; the newest version of a slice counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_api::resource::{SliceContent, SliceDevice};
use kube::runtime::watcher::Event;

use crate::kubernetes::{
    ResourceSlice,
    plan::{Existing, Identity},
};

/// What an event means for whoever wants to keep the slices as they should be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Seen {
    /// Nothing that was not known.
    Known,
    /// Something is other than it was known to be.
    Changed,
    /// A slice is gone, and nobody here deleted it.
    Deleted,
}

/// The slices.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    slices: BTreeMap<String, Existing>,
    /// What the watch last saw deleted under a name. The answer to a write may come after the news of the deletion.
    deleted: BTreeMap<String, Identity>,
    /// UIDs of slices that are being deleted from here.
    deleting: BTreeSet<String>,
    /// A list that is not complete yet.
    listing: Option<BTreeMap<String, Existing>>,
    listed: bool,
}

impl Mirror {
    /// What is known, by name.
    pub(super) fn slices(&self) -> &BTreeMap<String, Existing> {
        &self.slices
    }

    /// Whether a complete list has come since [`relist`](Self::relist).
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }

    /// A new list is on its way.
    pub(super) fn relist(&mut self) {
        self.listed = false;
        self.listing = None;
    }

    /// Takes an event of the watch.
    pub(super) fn observe(&mut self, event: Event<ResourceSlice>) -> Seen {
        match event {
            Event::Init => self.listing = Some(BTreeMap::new()),
            Event::InitApply(slice) => {
                if let (Some(listing), Some((name, found))) = (&mut self.listing, existing(slice)) {
                    listing.insert(name, found);
                }
            }
            Event::InitDone => return self.take_list(),
            Event::Apply(slice) => return existing(slice).map_or(Seen::Known, |(name, found)| self.see(name, found)),
            Event::Delete(slice) => return existing(slice).map_or(Seen::Known, |(name, gone)| self.lose(&name, &gone)),
        }
        Seen::Known
    }

    fn take_list(&mut self) -> Seen {
        let list = self.listing.take().unwrap_or_default();
        self.slices.retain(|name, _| list.contains_key(name));
        for (name, found) in list {
            self.see(name, found);
        }
        self.deleting.retain(|uid| self.slices.values().any(|slice| slice.identity.uid == *uid));
        self.listed = true;
        Seen::Changed
    }

    fn see(&mut self, name: String, found: Existing) -> Seen {
        let Some(known) = self.slices.get_mut(&name) else {
            self.slices.insert(name, found);
            return Seen::Changed;
        };
        if found.identity == known.identity || is_older(&found.identity, &known.identity) {
            return Seen::Known;
        }
        if found.pool == known.pool && found.owner == known.owner && found.content == known.content {
            known.identity = found.identity;
            return Seen::Known;
        }
        *known = found;
        Seen::Changed
    }

    fn lose(&mut self, name: &str, gone: &Existing) -> Seen {
        self.deleted.insert(name.to_owned(), gone.identity.clone());
        let is_it =
            |known: &&Existing| known.identity.uid == gone.identity.uid && !is_older(&gone.identity, &known.identity);
        if self.slices.get(name).filter(is_it).is_none() {
            return Seen::Known;
        }
        self.slices.remove(name);
        if self.deleting.remove(&gone.identity.uid) { Seen::Known } else { Seen::Deleted }
    }

    /// A slice is about to be deleted from here: that it goes is no news then.
    pub(super) fn deleting(&mut self, identity: &Identity) {
        self.deleting.insert(identity.uid.clone());
    }

    /// Takes the answer to a write or a read, unless the watch has told more by now. A list that was made before it may
    /// miss it.
    pub(super) fn put(&mut self, name: String, slice: Existing) -> Seen {
        if self.deleted.get(&name).is_some_and(|gone| gone.uid == slice.identity.uid) {
            return Seen::Deleted;
        }
        if self.slices.get(&name).is_some_and(|known| is_older(&slice.identity, &known.identity)) {
            return Seen::Changed;
        }
        if let Some(listing) = &mut self.listing {
            listing.insert(name.clone(), slice.clone());
        }
        self.slices.insert(name, slice);
        Seen::Known
    }

    /// The slice is known not to be there.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some(listing) = &mut self.listing {
            listing.remove(name);
        }
        self.slices.remove(name);
    }
}

/// A slice in few bytes, with its name. An object without a name or version is none that an API server gives.
pub(super) fn existing(slice: ResourceSlice) -> Option<(String, Existing)> {
    let owners = slice.metadata.owner_references.unwrap_or_default();
    let owner = owners.into_iter().find(|owner| owner.controller == Some(true) && owner.kind == "Node");
    let identity = Identity { uid: slice.metadata.uid?, resource_version: slice.metadata.resource_version? };
    let devices = slice.spec.devices.into_iter().map(SliceDevice::unwrapped).collect();
    let content = Arc::new(SliceContent { devices, shared_counters: slice.spec.shared_counters });
    let owner = owner.map(|owner| owner.uid);
    Some((slice.metadata.name?, Existing { identity, pool: slice.spec.pool, owner, content, sent: None }))
}

/// Versions are numbers that rise, wherever they are numbers. Where not, the later word counts.
fn is_older(one: &Identity, other: &Identity) -> bool {
    let number = |identity: &Identity| identity.resource_version.parse::<u64>().ok();
    number(one).zip(number(other)).is_some_and(|(one, other)| one < other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(name: &str, uid: &str, version: u64, device: &str) -> ResourceSlice {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": uid, "resourceVersion": version.to_string()},
            "spec": {"driver": "d", "nodeName": "n", "devices": [{"name": device}],
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}},
        }))
        .unwrap()
    }

    fn list(mirror: &mut Mirror, slices: Vec<ResourceSlice>) {
        mirror.observe(Event::Init);
        for slice in slices {
            mirror.observe(Event::InitApply(slice));
        }
        assert_eq!(mirror.observe(Event::InitDone), Seen::Changed);
    }

    fn put(mirror: &mut Mirror, slice: ResourceSlice) {
        let (name, slice) = existing(slice).unwrap();
        assert_eq!(mirror.put(name, slice), Seen::Known);
    }

    fn put_late(mirror: &mut Mirror, slice: ResourceSlice) -> Seen {
        let (name, slice) = existing(slice).unwrap();
        mirror.put(name, slice)
    }

    fn known(mirror: &Mirror) -> Vec<(&str, &str)> {
        mirror.slices().iter().map(|(name, it)| (name.as_str(), it.identity.resource_version.as_str())).collect()
    }

    #[test]
    fn the_echo_of_a_write_is_nothing_new() {
        let mut mirror = Mirror::default();
        put(&mut mirror, slice("a", "u", 5, "x"));
        assert_eq!(mirror.observe(Event::Apply(slice("a", "u", 5, "x"))), Seen::Known);
        // An earlier write's echo comes after the answer to a later one.
        assert_eq!(mirror.observe(Event::Apply(slice("a", "u", 4, "y"))), Seen::Known);
        assert_eq!(known(&mirror), [("a", "5")]);
    }

    #[test]
    fn a_change_by_somebody_else_is_seen_unless_it_says_the_same() {
        let mut mirror = Mirror::default();
        put(&mut mirror, slice("a", "u", 5, "x"));
        assert_eq!(mirror.observe(Event::Apply(slice("a", "u", 6, "x"))), Seen::Known);
        assert_eq!(known(&mirror), [("a", "6")]);
        assert_eq!(mirror.observe(Event::Apply(slice("a", "u", 7, "y"))), Seen::Changed);
        assert_eq!(mirror.observe(Event::Apply(slice("b", "v", 8, "y"))), Seen::Changed);
    }

    #[test]
    fn an_answer_that_comes_after_later_news_of_the_watch_changes_nothing() {
        let mut mirror = Mirror::default();
        assert_eq!(mirror.observe(Event::Apply(slice("a", "u", 6, "y"))), Seen::Changed);
        assert_eq!(put_late(&mut mirror, slice("a", "u", 5, "x")), Seen::Changed);
        assert_eq!(known(&mirror), [("a", "6")]);

        assert_eq!(mirror.observe(Event::Delete(slice("b", "v", 8, "x"))), Seen::Known);
        assert_eq!(put_late(&mut mirror, slice("b", "v", 7, "x")), Seen::Deleted);
        assert_eq!(mirror.observe(Event::Delete(slice("a", "u", 9, "y"))), Seen::Deleted);
        assert_eq!(put_late(&mut mirror, slice("a", "u", 8, "x")), Seen::Deleted);
        assert!(mirror.slices().is_empty());
        assert_eq!(put_late(&mut mirror, slice("a", "w", 10, "x")), Seen::Known);
        assert_eq!(known(&mirror), [("a", "10")]);
    }

    #[test]
    fn only_the_deletion_of_what_stands_there_counts() {
        let mut mirror = Mirror::default();
        put(&mut mirror, slice("a", "new", 9, "x"));
        assert_eq!(mirror.observe(Event::Delete(slice("a", "old", 8, "x"))), Seen::Known);
        assert_eq!(mirror.observe(Event::Delete(slice("a", "new", 10, "x"))), Seen::Deleted);
        assert_eq!(mirror.observe(Event::Delete(slice("a", "new", 10, "x"))), Seen::Known);
    }

    #[test]
    fn a_slice_that_is_deleted_from_here_is_not_missed() {
        let mut mirror = Mirror::default();
        put(&mut mirror, slice("a", "u", 1, "x"));
        put(&mut mirror, slice("b", "v", 2, "x"));
        let identity = mirror.slices()["a"].identity.clone();
        mirror.deleting(&identity);
        assert_eq!(mirror.observe(Event::Delete(slice("a", "u", 3, "x"))), Seen::Known);
        assert_eq!(known(&mirror), [("b", "2")]);
        assert_eq!(mirror.observe(Event::Delete(slice("b", "v", 4, "x"))), Seen::Deleted);
    }

    #[test]
    fn a_list_replaces_what_was_known_but_not_what_was_written_meanwhile() {
        let mut mirror = Mirror::default();
        list(&mut mirror, vec![slice("a", "u", 1, "x"), slice("gone", "v", 2, "x")]);
        mirror.observe(Event::Init);
        mirror.observe(Event::InitApply(slice("a", "u", 1, "x")));
        put(&mut mirror, slice("a", "u", 5, "y"));
        put(&mut mirror, slice("new", "w", 6, "y"));
        mirror.observe(Event::InitDone);
        assert_eq!(known(&mirror), [("a", "5"), ("new", "6")]);
    }

    #[test]
    fn nothing_is_listed_until_the_list_is_complete() {
        let mut mirror = Mirror::default();
        mirror.observe(Event::Init);
        assert!(!mirror.is_listed());
        mirror.observe(Event::InitDone);
        assert!(mirror.is_listed());
        mirror.relist();
        assert!(!mirror.is_listed());
    }
}
