//! Sequences, each held once: texts, columns of values, states. Half a million devices have few different ones, and two are
//! equal when their numbers are.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
};

/// Sequences of `T`, numbered in the order in which they came.
#[derive(Clone, Debug)]
pub(super) struct Sequences<T> {
    items: Vec<T>,
    ends: Vec<usize>,
    /// By hash; sequences of one hash stand at the next ones. A map with the sequences themselves as keys would hold
    /// each twice.
    numbers: HashMap<u64, u32>,
    hasher: RandomState,
}

impl<T> Default for Sequences<T> {
    fn default() -> Self {
        Self { items: Vec::new(), ends: Vec::new(), numbers: HashMap::new(), hasher: RandomState::new() }
    }
}

impl<T: Copy + Eq + Hash> Sequences<T> {
    /// The number of `sequence`, which is new or was there.
    pub(super) fn intern(&mut self, sequence: &[T]) -> u32 {
        match self.look_up(sequence) {
            Ok(number) => number,
            Err(hash) => {
                let number = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
                self.items.extend_from_slice(sequence);
                self.ends.push(self.items.len());
                self.numbers.insert(hash, number);
                number
            }
        }
    }

    /// The number of `sequence`, if it was there.
    pub(super) fn find(&self, sequence: &[T]) -> Option<u32> {
        self.look_up(sequence).ok()
    }

    /// The sequence with this number.
    pub(super) fn get(&self, number: u32) -> &[T] {
        let at = number as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.items[start..self.ends[at]]
    }

    /// Its number, or the hash under which it would be held.
    fn look_up(&self, sequence: &[T]) -> Result<u32, u64> {
        let mut hash = self.hasher.hash_one(sequence);
        loop {
            match self.numbers.get(&hash) {
                None => return Err(hash),
                Some(number) if self.get(*number) == sequence => return Ok(*number),
                Some(_) => hash = hash.wrapping_add(1),
            }
        }
    }
}

/// Texts, each held once.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts(Sequences<u8>);

impl Texts {
    /// The number of `text`.
    pub(super) fn intern(&mut self, text: &str) -> u32 {
        self.0.intern(text.as_bytes())
    }

    /// The number of `text`, if it was there.
    pub(super) fn find(&self, text: &str) -> Option<u32> {
        self.0.find(text.as_bytes())
    }

    /// The text with this number.
    pub(super) fn get(&self, number: u32) -> &str {
        std::str::from_utf8(self.0.get(number)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equal_sequences_and_no_others_have_one_number(sequences: Vec<Vec<u8>>) {
            let mut interned = Sequences::default();
            let numbers: Vec<u32> = sequences.iter().map(|sequence| interned.intern(sequence)).collect();
            for (one, number) in sequences.iter().zip(&numbers) {
                prop_assert_eq!(interned.get(*number), &one[..]);
                prop_assert_eq!(interned.find(one), Some(*number));
                for (other, other_number) in sequences.iter().zip(&numbers) {
                    prop_assert_eq!(one == other, number == other_number);
                }
            }
        }
    }
}
