//! An ordered map that is cheap to copy and to change where copies are kept: they share what has not changed.
//!
//! Entries lie in chunks, in their order. A copy takes a reference to each chunk; a change copies the one chunk that it
//! touches, if it is shared. With [`MOST`] entries in a chunk, ten thousand are two or three hundred references.

use std::{borrow::Borrow, sync::Arc};

/// Entries of one chunk.
const MOST: usize = 64;
/// Entries by which a chunk grows.
const MORE: usize = 8;

/// An ordered map whose copies share their entries.
#[derive(Clone, Debug)]
pub struct SharedMap<K, V> {
    /// In the order of their keys; none is empty.
    chunks: Vec<Arc<Vec<(K, V)>>>,
    len: usize,
}

/// Place of an entry: number of the chunk, and number in it.
type EntryPlace = (usize, usize);

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<K: Ord, V> SharedMap<K, V> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(key, value)| (key, value))
    }

    /// Keys, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (chunk, at) = self.place(key).ok()?;
        Some(&self.chunks[chunk][at].1)
    }

    /// True if the key has a value.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).is_ok()
    }

    /// The place of a key, or the one where it belongs.
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Result<EntryPlace, EntryPlace>
    where
        K: Borrow<Q>,
    {
        let begins_before = |chunk: &Arc<Vec<(K, V)>>| chunk.first().is_some_and(|(first, _)| first.borrow() <= key);
        let number = self.chunks.partition_point(begins_before).saturating_sub(1);
        let Some(chunk) = self.chunks.get(number) else { return Err((number, 0)) };
        let place = |at| (number, at);
        chunk.binary_search_by(|(known, _)| known.borrow().cmp(key)).map(place).map_err(place)
    }
}

impl<K: Clone + Ord, V: Clone> SharedMap<K, V> {
    /// Sets the value of a key, and returns the old one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Ok(place) => Some(std::mem::replace(self.value_mut(place), value)),
            Err(place) => {
                self.add(place, key, value);
                None
            }
        }
    }

    /// Takes a key and its value away, and returns the value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (chunk, at) = self.place(key).ok()?;
        self.len -= 1;
        let (_, value) = Arc::make_mut(&mut self.chunks[chunk]).remove(at);
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
        }
        Some(value)
    }

    /// The value of a key, to be changed. What is shared is not copied for a key that is not there.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let place = self.place(key).ok()?;
        Some(self.value_mut(place))
    }

    /// The value of a key, to be changed; made where there is none.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let place = match self.place(&key) {
            Ok(place) => place,
            Err(place) => self.add(place, key, V::default()),
        };
        self.value_mut(place)
    }

    /// Values, to be changed, in the order of their keys.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.chunks.iter_mut().flat_map(Arc::make_mut).map(|(_, value)| value)
    }

    fn value_mut(&mut self, (chunk, at): EntryPlace) -> &mut V {
        &mut Arc::make_mut(&mut self.chunks[chunk])[at].1
    }

    /// Adds an entry where its key belongs, and returns where it is then. A full chunk becomes two before.
    fn add(&mut self, (mut chunk, mut at): EntryPlace, key: K, value: V) -> EntryPlace {
        self.len += 1;
        if self.chunks.is_empty() {
            self.chunks.push(Arc::default());
        }
        if self.chunks[chunk].len() == MOST {
            let rest = Arc::make_mut(&mut self.chunks[chunk]).split_off(MOST / 2);
            self.chunks.insert(chunk + 1, Arc::new(rest));
            if at > MOST / 2 {
                (chunk, at) = (chunk + 1, at - MOST / 2);
            }
        }
        let entries = Arc::make_mut(&mut self.chunks[chunk]);
        if entries.len() == entries.capacity() {
            // Twice as much, the usual growth, would be more than a chunk ever has.
            entries.reserve_exact(MORE);
        }
        entries.insert(at, (key, value));
        (chunk, at)
    }
}

impl<K: Clone + Ord, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let mut map = Self::default();
        entries.into_iter().for_each(|(key, value)| _ = map.insert(key, value));
        map
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The standard map is the reference, also for a copy that was kept on the way.
        #[test]
        fn it_is_the_standard_map(
            steps in proptest::collection::vec((0_u16..600, proptest::option::of(0_u32..40)), 0..1_500),
            kept_after in 0_usize..1_500,
        ) {
            let (mut map, mut known) = (SharedMap::default(), BTreeMap::new());
            let mut kept = (map.clone(), known.clone());
            for (number, (key, value)) in steps.into_iter().enumerate() {
                match value {
                    Some(0) => {
                        let changed = (map.get_mut(&key), known.get_mut(&key));
                        prop_assert_eq!(&changed.0, &changed.1);
                        changed.0.into_iter().chain(changed.1).for_each(|value| *value = 1);
                    }
                    Some(1) => {
                        *map.get_or_default(key) += 2;
                        *known.entry(key).or_default() += 2;
                    }
                    Some(2) => map.values_mut().chain(known.values_mut()).for_each(|value| *value += 3),
                    Some(value) => prop_assert_eq!(map.insert(key, value), known.insert(key, value)),
                    None => prop_assert_eq!(map.remove(&key), known.remove(&key)),
                }
                prop_assert_eq!(map.get(&key), known.get(&key));
                prop_assert_eq!(map.contains_key(&key), known.contains_key(&key));
                if number == kept_after {
                    kept = (map.clone(), known.clone());
                }
            }
            for (map, known) in [(map, known), kept] {
                prop_assert_eq!((map.len(), map.is_empty()), (known.len(), known.is_empty()));
                prop_assert!(map.iter().eq(known.iter()));
                prop_assert!(map.keys().eq(known.keys()) && map.values().eq(known.values()));
                prop_assert!(map.chunks.iter().all(|chunk| (1..=MOST).contains(&chunk.len())));
            }
        }
    }

    #[test]
    fn a_change_copies_one_chunk_alone() {
        let mut map: SharedMap<u32, u32> = (0..10_000).map(|number| (number, 0)).collect();
        let kept = map.clone();
        map.insert(5_000, 1);
        let shared = map.chunks.iter().zip(&kept.chunks).filter(|(ours, theirs)| Arc::ptr_eq(ours, theirs)).count();
        assert_eq!(map.chunks.len() - shared, 1);
        assert_eq!((map.get(&5_000), kept.get(&5_000)), (Some(&1), Some(&0)));
    }
}
