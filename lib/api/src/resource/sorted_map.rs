//! A small map: sorted pairs in one piece of memory. A device has a dozen attributes, and a tree per device would hold
//! mostly holes.

use std::{borrow::Borrow, cmp::Ordering, fmt, marker::PhantomData, mem, ops::Index};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Names and values, sorted by name.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SortedMap<V, K = Box<str>>(Box<[(K, V)]>);

impl<V, K> SortedMap<V, K> {
    /// True if the map has no pairs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the names in their order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(name, _)| name)
    }

    /// Iterates over the values in the order of the names.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }
}

impl<V, K: Borrow<str> + Ord> SortedMap<V, K> {
    /// Iterates over the pairs in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(name, value)| (name.borrow(), value))
    }

    /// Finds a value by a search in the order of the names: `order` compares a name with the wanted one.
    pub fn search(&self, order: impl Fn(&str) -> Ordering) -> Option<&V> {
        self.position(order).ok().map(|at| &self.0[at].1)
    }

    /// The value with this name.
    pub fn get<N: Borrow<str> + ?Sized>(&self, name: &N) -> Option<&V> {
        self.search(|other| other.cmp(name.borrow()))
    }

    /// Sets the value with this name.
    pub fn insert(&mut self, name: K, value: V) {
        match self.position(|other| other.cmp(name.borrow())) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.change(|pairs| {
                pairs.reserve_exact(1);
                pairs.insert(at, (name, value));
            }),
        }
    }

    /// Removes the value with this name.
    pub fn remove(&mut self, name: &str) {
        if let Ok(at) = self.position(|other| other.cmp(name)) {
            self.change(|pairs| drop(pairs.remove(at)));
        }
    }

    fn position(&self, order: impl Fn(&str) -> Ordering) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| order(name.borrow()))
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<(K, V)>)) {
        let mut pairs = mem::take(&mut self.0).into_vec();
        change(&mut pairs);
        self.0 = pairs.into_boxed_slice();
    }
}

impl<V, K> Default for SortedMap<V, K> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<V, K: Borrow<str> + Ord> Index<&str> for SortedMap<V, K> {
    type Output = V;

    #[expect(clippy::expect_used, reason = "as with the standard library's maps")]
    fn index(&self, name: &str) -> &V {
        self.get(name).expect("the name is in the map")
    }
}

impl<V, K: Ord, N: Into<K>> FromIterator<(N, V)> for SortedMap<V, K> {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<(K, V)> = pairs.into_iter().map(|(name, value)| (name.into(), value)).collect();
        pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        // Of two values with one name the last counts, as for readers in Go.
        pairs.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                mem::swap(later, kept);
            }
            is_same
        });
        Self(pairs.into_boxed_slice())
    }
}

impl<V: Serialize, K: Borrow<str> + Ord> Serialize for SortedMap<V, K> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_stay_in_order_and_each_name_has_one_value() {
        let mut map: SortedMap<u32> = [("b", 1), ("d", 2)].into_iter().collect();
        map.insert("c".into(), 3);
        map.insert("a".into(), 4);
        map.insert("b".into(), 5);
        assert_eq!(map.iter().collect::<Vec<_>>(), [("a", &4), ("b", &5), ("c", &3), ("d", &2)]);
        map.remove("c");
        map.remove("x");
        assert_eq!((map.len(), map["d"], map.get("c")), (3, 2, None));
        assert_eq!(map, serde_json::from_str(r#"{"d": 2, "b": 1, "a": 4, "b": 3, "b": 5}"#).unwrap());
        assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"a":4,"b":5,"d":2}"#);
    }
}
