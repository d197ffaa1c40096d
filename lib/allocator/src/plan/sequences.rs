//! Sequences, each held once: texts, columns of values, states. Half a million devices have few different ones, and
//! two are equal when their numbers are.
//!
//! A copy shares all entries, and later entries of one of the two are not in the other: the watcher of a cluster goes
//! on while readers look at it as it was.

mod index;

use std::{
    hash::{BuildHasher, Hash},
    sync::Arc,
};

use hashbrown::DefaultHashBuilder;
use index::Index;

/// A map whose keys are numbers that the planner gives itself. Names that tenants choose keep the standard hash, which is
/// made to withstand them.
pub(in crate::plan) type NumberMap<K, V> = hashbrown::HashMap<K, V>;

/// Number of sequences in a heap. A copy shares all heaps but the last.
const HEAP: usize = 1024;

/// The new number of a sequence that was forgotten.
pub(super) const GONE: u32 = u32::MAX;

/// Sequences of `T`, numbered in the order in which they came.
#[derive(Clone, Debug)]
pub(super) struct Sequences<T> {
    heaps: Vec<Arc<Heap<T>>>,
    numbers: Index,
    /// Seeded anew in each process: texts that were made to collide somewhere do not collide here.
    hasher: DefaultHashBuilder,
    /// Size of all sequences, in bytes.
    size: usize,
}

/// Sequences, one after the other.
#[derive(Clone, Debug)]
struct Heap<T> {
    items: Vec<T>,
    ends: Vec<u32>,
}

impl<T> Default for Sequences<T> {
    fn default() -> Self {
        Self { heaps: Vec::new(), numbers: Index::default(), hasher: DefaultHashBuilder::default(), size: 0 }
    }
}

impl<T> Heap<T> {
    fn new() -> Self {
        Self { items: Vec::new(), ends: Vec::new() }
    }

    fn get(&self, at: usize) -> &[T] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.items[start as usize..self.ends[at] as usize]
    }
}

impl<T: Copy + Eq + Hash> Sequences<T> {
    /// Returns the number of `sequence`, and adds it if it is new.
    pub(super) fn intern(&mut self, sequence: &[T]) -> u32 {
        let hash = self.hasher.hash_one(sequence);
        match self.look_up(hash, sequence) {
            Some(number) => number,
            None => self.push(sequence),
        }
    }

    /// Returns the number of `sequence`, if it is known.
    pub(super) fn find(&self, sequence: &[T]) -> Option<u32> {
        self.look_up(self.hasher.hash_one(sequence), sequence)
    }

    /// Returns the sequence with this number.
    pub(super) fn get(&self, number: u32) -> &[T] {
        sequence_of(&self.heaps, number)
    }

    /// Number of sequences.
    pub(super) fn len(&self) -> usize {
        self.heaps.last().map_or(0, |last| (self.heaps.len() - 1) * HEAP + last.ends.len())
    }

    /// Forgets all but the living sequences, numbers those anew, and translates their items. Returns the new numbers,
    /// by the old one: [`GONE`] for a forgotten sequence.
    pub(super) fn retain(&mut self, is_alive: &[bool], translate: impl Fn(T) -> T) -> Vec<u32> {
        let mut renumbered = vec![GONE; self.len()];
        (self.numbers, self.size) = (Index::default(), 0);
        let mut scratch = Vec::new();
        // Each old heap is dropped before the next one is looked at: at no moment is everything there twice.
        for (at, heap) in std::mem::take(&mut self.heaps).into_iter().enumerate() {
            for of_heap in (0..heap.ends.len()).filter(|of_heap| is_alive.get(at * HEAP + of_heap) == Some(&true)) {
                scratch.clear();
                scratch.extend(heap.get(of_heap).iter().map(|item| translate(*item)));
                renumbered[at * HEAP + of_heap] = self.push(&scratch);
            }
        }
        renumbered
    }

    /// Size of all sequences, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    fn look_up(&self, hash: u64, sequence: &[T]) -> Option<u32> {
        self.numbers.find(hash, |number| self.get(number) == sequence)
    }

    fn push(&mut self, sequence: &[T]) -> u32 {
        let number = u32::try_from(self.len()).unwrap_or(GONE);
        if self.len().is_multiple_of(HEAP) {
            if let Some(last) = self.heaps.last_mut() {
                Arc::make_mut(last).items.shrink_to_fit();
            }
            self.heaps.push(Arc::new(Heap::new()));
        }
        if let Some(last) = self.heaps.last_mut() {
            let last = Arc::make_mut(last);
            last.items.extend_from_slice(sequence);
            last.ends.push(u32::try_from(last.items.len()).unwrap_or(u32::MAX));
        }
        self.numbers.insert(number, |number| self.hasher.hash_one(sequence_of(&self.heaps, number)));
        self.size += size_of_val(sequence) + size_of::<u32>();
        number
    }
}

fn sequence_of<T>(heaps: &[Arc<Heap<T>>], number: u32) -> &[T] {
    let number = number as usize;
    heaps[number / HEAP].get(number % HEAP)
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

    /// Number of texts.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Size of all texts, in bytes.
    pub(super) fn size(&self) -> usize {
        self.0.size()
    }

    /// See [`Sequences::retain`].
    pub(super) fn retain(&mut self, is_alive: &[bool]) -> Vec<u32> {
        self.0.retain(is_alive, |byte| byte)
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

    fn word(number: u32) -> String {
        format!("word {number}")
    }

    #[test]
    fn a_copy_stays_what_it_was_while_the_other_grows() {
        let mut texts = Texts::default();
        for number in 0..3_000 {
            assert_eq!(texts.intern(&word(number)), number);
        }
        let copy = texts.clone();
        for number in 3_000..9_000 {
            assert_eq!(texts.intern(&word(number)), number);
        }
        assert_eq!((copy.len(), texts.len()), (3_000, 9_000));
        assert_eq!((copy.find(&word(2_999)), copy.find(&word(3_000))), (Some(2_999), None));
        assert!(
            (0..9_000).all(|number| texts.find(&word(number)) == Some(number) && texts.get(number) == word(number))
        );
    }

    #[test]
    fn the_living_have_new_numbers_and_the_rest_is_gone() {
        let mut texts = Texts::default();
        (0..5_000).for_each(|number| _ = texts.intern(&word(number)));
        let before = texts.clone();
        let size = texts.size();
        let is_alive: Vec<bool> = (0..5_000).map(|number| number % 5 == 0).collect();
        let renumbered = texts.retain(&is_alive);
        assert_eq!(texts.len(), 1_000);
        assert!(texts.size() < size / 4);
        for number in 0..5_000 {
            let new = renumbered[number as usize];
            assert_eq!(new == GONE, number % 5 != 0);
            assert_eq!(texts.find(&word(number)), (new != GONE).then_some(new));
            assert_eq!(before.get(number), word(number));
        }
        assert_eq!(texts.intern("one more"), 1_000);
    }
}
