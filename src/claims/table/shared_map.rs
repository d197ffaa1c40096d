//! An ordered map that is cheap to copy and to change where copies are kept: they share what has not changed.
//!
//! Entries lie in chunks, in their order. A copy takes a reference to each chunk; a change copies the one chunk that it
//! touches, if it is shared. With [`MOST`] entries in a chunk, ten thousand are two or three hundred references.

use std::{borrow::Borrow, sync::Arc};

/// Entries of one chunk.
const MOST: usize = 64;

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
    /// Sets the value of a key.
    pub fn insert(&mut self, key: K, value: V) {
        match self.place(&key) {
            Ok((chunk, at)) => Arc::make_mut(&mut self.chunks[chunk])[at].1 = value,
            Err((chunk, at)) => {
                self.len += 1;
                match self.chunks.get_mut(chunk) {
                    Some(entries) => Arc::make_mut(entries).insert(at, (key, value)),
                    None => self.chunks.push(Arc::new(vec![(key, value)])),
                }
                self.split(chunk);
            }
        }
    }

    /// Takes a key and its value away.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let Ok((chunk, at)) = self.place(key) else { return };
        self.len -= 1;
        if self.chunks[chunk].len() == 1 {
            self.chunks.remove(chunk);
        } else {
            Arc::make_mut(&mut self.chunks[chunk]).remove(at);
        }
    }

    /// Makes two of a chunk that has too many entries.
    fn split(&mut self, chunk: usize) {
        if self.chunks[chunk].len() > MOST {
            let rest = Arc::make_mut(&mut self.chunks[chunk]).split_off(MOST / 2);
            self.chunks.insert(chunk + 1, Arc::new(rest));
        }
    }
}

impl<K: Clone + Ord, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let mut map = Self::default();
        entries.into_iter().for_each(|(key, value)| map.insert(key, value));
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
            steps in proptest::collection::vec((0_u16..600, any::<Option<u32>>()), 0..1_500),
            kept_after in 0_usize..1_500,
        ) {
            let (mut map, mut known) = (SharedMap::default(), BTreeMap::new());
            let mut kept = (map.clone(), known.clone());
            for (number, (key, value)) in steps.into_iter().enumerate() {
                match value {
                    Some(value) => {
                        map.insert(key, value);
                        known.insert(key, value);
                    }
                    None => {
                        map.remove(&key);
                        known.remove(&key);
                    }
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
