//! Maps whose copies share the parts that neither has changed since.

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
    sync::Arc,
};

/// Number of parts: a change to a map that has a copy copies one of them.
const PARTS: usize = 256;

/// A map in parts; in no order.
#[derive(Clone, Debug)]
pub(super) struct Shards<K, V> {
    parts: Vec<Arc<BTreeMap<K, V>>>,
    len: usize,
}

impl<K, V> Default for Shards<K, V> {
    fn default() -> Self {
        Self { parts: vec![Arc::default(); PARTS], len: 0 }
    }
}

impl<K: Clone + Hash + Ord, V: Clone> Shards<K, V> {
    /// Returns the value of a key.
    pub(super) fn get<Q: Hash + Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.parts[part(key)].get(key)
    }

    /// Returns the value of a key, to be changed.
    pub(super) fn get_mut<Q: Hash + Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let part = &mut self.parts[part(key)];
        // A shared part is not copied for a key that is not there.
        if part.contains_key(key) { Arc::make_mut(part).get_mut(key) } else { None }
    }

    /// Returns the value of a key, to be changed; makes it where there is none.
    pub(super) fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let part = Arc::make_mut(&mut self.parts[part(&key)]);
        self.len += usize::from(!part.contains_key(&key));
        part.entry(key).or_default()
    }

    /// Sets the value of a key, and returns the old one.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let old = Arc::make_mut(&mut self.parts[part(&key)]).insert(key, value);
        self.len += usize::from(old.is_none());
        old
    }

    /// Removes the value of a key, and returns it.
    pub(super) fn remove<Q: Hash + Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let part = &mut self.parts[part(key)];
        let old = if part.contains_key(key) { Arc::make_mut(part).remove(key) } else { None };
        self.len -= usize::from(old.is_some());
        old
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.parts.iter().flat_map(|part| &**part)
    }

    /// All values.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// All values, to be changed.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.parts.iter_mut().filter(|part| !part.is_empty()).flat_map(|part| Arc::make_mut(part).values_mut())
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Returns the part of a key. It is the same in every process: a question about the same cluster has one answer.
fn part<Q: Hash + ?Sized>(key: &Q) -> usize {
    usize::try_from(BuildHasherDefault::<DefaultHasher>::default().hash_one(key)).unwrap_or_default() % PARTS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_map_in_parts_is_a_map_and_its_copies_stay(changes: Vec<(u16, Option<u8>)>) {
            let (mut shards, mut map) = (Shards::default(), BTreeMap::new());
            for (key, value) in changes {
                let (copy, before) = (shards.clone(), map.clone());
                match value {
                    Some(value) => prop_assert_eq!(shards.insert(key, value), map.insert(key, value)),
                    None => prop_assert_eq!(shards.remove(&key), map.remove(&key)),
                }
                prop_assert_eq!((shards.get(&key), shards.len()), (map.get(&key), map.len()));
                let of_copy: BTreeMap<u16, u8> = copy.iter().map(|(key, value)| (*key, *value)).collect();
                prop_assert_eq!(of_copy, before);
            }
        }
    }
}
