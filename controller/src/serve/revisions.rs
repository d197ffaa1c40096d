//! Changes since a revision: every entry knows the revision of its last change, so a reader that comes back after a
//! while gets only its news, and the server keeps nothing for it meanwhile. Pure.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// The most names of entries that are gone; a reader that was away for longer starts anew.
const MOST_GONE: usize = 1024;

/// Entries by name, with the revision of each last change.
#[derive(Debug)]
pub(crate) struct Revisions<T> {
    revision: u64,
    entries: BTreeMap<Arc<str>, Revised<T>>,
    /// Names of entries that are gone, with their revisions, the oldest first.
    gone: VecDeque<(u64, Arc<str>)>,
    /// The last revision whose removed entries are forgotten.
    forgotten: u64,
}

#[derive(Debug)]
struct Revised<T> {
    changed: u64,
    value: Arc<T>,
}

/// Changes since a revision.
#[derive(Debug, PartialEq)]
pub(crate) struct NewEntries<T> {
    /// The current revision.
    pub(crate) revision: u64,
    /// Entries that came or changed.
    pub(crate) changed: Vec<(Arc<str>, Arc<T>)>,
    /// Names of entries that were removed, and did not come again.
    pub(crate) gone: Vec<Arc<str>>,
}

impl<T> Default for Revisions<T> {
    fn default() -> Self {
        Self { revision: 0, entries: BTreeMap::new(), gone: VecDeque::new(), forgotten: 0 }
    }
}

impl<T> Revisions<T> {
    /// Returns the current revision: the number of changes.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Takes the present entries, by name; the same value is the same entry. Returns true if anything changed.
    pub(crate) fn update<'a>(&mut self, now: impl IntoIterator<Item = (&'a Arc<str>, &'a Arc<T>)>) -> bool
    where
        T: 'a,
    {
        let next = self.revision + 1;
        let mut old = std::mem::take(&mut self.entries);
        let mut is_other = false;
        for (name, value) in now {
            let known = old.remove(name).filter(|known| Arc::ptr_eq(&known.value, value));
            is_other |= known.is_none();
            let entry = known.unwrap_or_else(|| Revised { changed: next, value: value.clone() });
            self.entries.insert(name.clone(), entry);
        }
        old.retain(|name, _| !self.entries.contains_key(name));
        is_other |= !old.is_empty();
        self.gone.extend(old.into_keys().map(|name| (next, name)));
        while self.gone.len() > MOST_GONE {
            self.forgotten = self.gone.pop_front().map_or(self.forgotten, |(revision, _)| revision);
        }
        self.revision += u64::from(is_other);
        is_other
    }

    /// Returns the changes since a revision; `None` if they are forgotten.
    pub(crate) fn since(&self, revision: u64) -> Option<NewEntries<T>> {
        if revision < self.forgotten || revision > self.revision {
            return None;
        }
        let is_new = |entry: &&Revised<T>| entry.changed > revision;
        let changed = self.entries.iter().filter(|(_, entry)| is_new(entry));
        let gone = self.gone.iter().filter(|(at, name)| *at > revision && !self.entries.contains_key(name));
        Some(NewEntries {
            revision: self.revision,
            changed: changed.map(|(name, entry)| (name.clone(), entry.value.clone())).collect(),
            gone: gone.map(|(_, name)| name.clone()).collect(),
        })
    }

    /// Returns all entries.
    pub(crate) fn all(&self) -> NewEntries<T> {
        let each = self.entries.iter().map(|(name, entry)| (name.clone(), entry.value.clone()));
        NewEntries { revision: self.revision, changed: each.collect(), gone: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Now = BTreeMap<Arc<str>, Arc<u32>>;

    fn names(new: &NewEntries<u32>) -> Vec<&str> {
        new.changed.iter().map(|(name, _)| &**name).collect()
    }

    fn put(now: &mut Now, name: &str, value: u32) {
        now.insert(name.into(), Arc::new(value));
    }

    #[test]
    fn whoever_comes_back_gets_what_is_new_to_him() {
        let (mut revisions, mut now) = (Revisions::default(), Now::new());
        put(&mut now, "a", 1);
        put(&mut now, "b", 1);
        assert!(revisions.update(&now));
        assert!(!revisions.update(&now), "nothing is new");
        assert_eq!(revisions.revision(), 1);
        put(&mut now, "b", 2);
        now.remove("a");
        assert!(revisions.update(&now));
        put(&mut now, "c", 1);
        revisions.update(&now);
        let new = revisions.since(1).unwrap();
        assert_eq!((names(&new), new.gone.len(), new.revision), (vec!["b", "c"], 1, 3));
        assert_eq!(names(&revisions.since(2).unwrap()), ["c"]);
        assert!(revisions.since(3).unwrap().changed.is_empty());
        assert_eq!(names(&revisions.all()), ["b", "c"]);
        assert_eq!(revisions.since(4), None, "that is another run's");
    }

    #[test]
    fn what_came_again_is_not_gone() {
        let (mut revisions, mut now) = (Revisions::default(), Now::new());
        put(&mut now, "a", 1);
        revisions.update(&now);
        revisions.update(&Now::new());
        revisions.update(&now);
        let new = revisions.since(1).unwrap();
        assert_eq!((names(&new), new.gone.len()), (vec!["a"], 0));
    }

    #[test]
    fn whoever_was_away_for_too_long_starts_anew() {
        let mut revisions = Revisions::default();
        for round in 0..MOST_GONE as u32 + 10 {
            let mut now = Now::new();
            put(&mut now, &format!("n{round}"), round);
            revisions.update(&now);
        }
        assert_eq!(revisions.gone.len(), MOST_GONE);
        assert_eq!(revisions.since(1), None);
        assert!(revisions.since(revisions.revision() - 5).unwrap().gone.len() == 5);
    }
}
