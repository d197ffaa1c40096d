//! A small map: sorted pairs in one piece of memory. A device has a dozen attributes, and a tree per device would hold
//! mostly holes.

use std::{cmp::Ordering, fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Names and values, sorted by name.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SortedMap<V>(Box<[(Box<str>, V)]>);

impl<V> SortedMap<V> {
    /// True if the map has no pairs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the pairs in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// Finds a value by a search in the order of the names: `order` compares a name with the wanted one.
    pub fn search(&self, order: impl Fn(&str) -> Ordering) -> Option<&V> {
        self.0.binary_search_by(|(name, _)| order(name)).ok().map(|at| &self.0[at].1)
    }

    /// The value with this name.
    pub fn get(&self, name: &str) -> Option<&V> {
        self.search(|other| other.cmp(name))
    }
}

impl<V> Default for SortedMap<V> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<V, N: Into<Box<str>>> FromIterator<(N, V)> for SortedMap<V> {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<(Box<str>, V)> = pairs.into_iter().map(|(name, value)| (name.into(), value)).collect();
        pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self(pairs.into_boxed_slice())
    }
}

impl<V: Serialize> Serialize for SortedMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for SortedMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MapVisitor(PhantomData))
    }
}

struct MapVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> de::Visitor<'de> for MapVisitor<V> {
    type Value = SortedMap<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<SortedMap<V>, E> {
        Ok(SortedMap::default())
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<SortedMap<V>, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry::<Box<str>, V>()? {
            pairs.push(pair);
        }
        Ok(pairs.into_iter().collect())
    }
}
