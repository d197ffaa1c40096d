//! Which objects of a kind there are, in which version: from lists and from watches, late, twice, or in a wrong order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hostler_api::ObjectKey;

use super::ObjectStamp;

/// Deletions that are remembered, in case that older news of the object come behind them. They come from another server of
/// the same cluster, within moments.
const MOST_DELETED: usize = 256;

/// The objects of a kind.
#[derive(Debug, Default)]
pub(super) struct KnownObjects {
    objects: BTreeMap<ObjectKey, ObjectStamp>,
    /// What a list that is not complete yet has told.
    listing: Option<BTreeSet<ObjectKey>>,
    deleted: VecDeque<(ObjectKey, ObjectStamp)>,
}

impl KnownObjects {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn list_started(&mut self) {
        self.listing = Some(BTreeSet::new());
    }

    /// Whether that is news.
    pub(super) fn see(&mut self, key: &ObjectKey, stamp: ObjectStamp) -> bool {
        if let Some(listing) = &mut self.listing {
            listing.insert(key.clone());
        }
        let known = self.objects.get(key);
        if known.is_some_and(|known| stamp == *known || stamp.is_older_than(*known)) || self.was_deleted(key, stamp) {
            return false;
        }
        self.objects.insert(key.clone(), stamp);
        true
    }

    fn was_deleted(&self, key: &ObjectKey, stamp: ObjectStamp) -> bool {
        self.deleted.iter().any(|(gone, last)| gone == key && stamp.is_older_than(*last))
    }

    /// Whether an object that was known is gone.
    pub(super) fn lose(&mut self, key: &ObjectKey, last: ObjectStamp) -> bool {
        if self.deleted.len() == MOST_DELETED {
            self.deleted.pop_front();
        }
        self.deleted.push_back((key.clone(), last));
        if let Some(listing) = &mut self.listing {
            listing.remove(key);
        }
        let is_it = self.objects.get(key).is_some_and(|known| !last.is_older_than(*known));
        is_it && self.objects.remove(key).is_some()
    }

    /// What is not there any more.
    pub(super) fn list_ended(&mut self) -> Vec<ObjectKey> {
        let Some(listing) = self.listing.take() else { return Vec::new() };
        let gone: Vec<ObjectKey> = self.objects.keys().filter(|key| !listing.contains(*key)).cloned().collect();
        for key in &gone {
            self.objects.remove(key);
        }
        gone
    }
}
