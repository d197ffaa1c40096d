//! Tables and sets of names of drivers, pools and devices.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
};

/// A table by names that drivers choose. The hash is a cheap one: a driver has better ways to slow a cluster down than
/// names with the same hash. Names that users choose do not belong here.
pub(super) type NameTable<K, V> = HashMap<K, V, BuildHasherDefault<NameHasher>>;

/// A set of such names.
pub(super) type NameSet<'a> = HashSet<&'a str, BuildHasherDefault<NameHasher>>;

/// A hasher that multiplies eight bytes at a time, and keeps both halves of the product.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NameHasher(u64);

/// Digits of the golden ratio: an odd number without a pattern.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let product = u128::from(self.0 ^ u64::from_le_bytes(word)) * u128::from(FACTOR);
            #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
            let halves = (product as u64, (product >> 64) as u64);
            self.0 = halves.0 ^ halves.1;
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_that_differ_in_a_number_have_hashes_of_their_own() {
        let hash = |name: &str| {
            let mut hasher = NameHasher::default();
            hasher.write(name.as_bytes());
            hasher.finish()
        };
        let hashes: HashSet<u64> = (0..10_000).map(|at| hash(&format!("a-device-with-number-{at}"))).collect();
        assert_eq!(hashes.len(), 10_000);
        // A table looks at the lowest bits first.
        let low: HashSet<u64> = hashes.iter().map(|hash| hash % 1024).collect();
        assert_eq!(low.len(), 1024);
    }
}
