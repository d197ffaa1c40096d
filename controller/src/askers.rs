//! The share of the planner that one asker has, and the order of turns: a hard question delays the others for one box
//! at most.

use std::{collections::BTreeMap, time::Duration};

use hostler_allocator::plan::BoxSize;

/// The box of all questions that an asker has at a time. An honest one takes milliseconds; one for hundreds of pods in
/// a cluster of thousands of nodes takes half a second, and some million looks.
pub(crate) const ASKER_BOX: BoxSize = BoxSize { work: 50_000_000, time: Duration::from_secs(2) };

/// Brings `items` into an order in which namespaces take turns; those of one stay in the order in which they were.
pub(crate) fn in_turns<T>(items: Vec<T>, namespace_of: impl Fn(&T) -> &str) -> Vec<T> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, T)> = Vec::with_capacity(items.len());
    for item in items {
        let count = counts.entry(namespace_of(&item).to_owned()).or_default();
        ranked.push((*count, item));
        *count += 1;
    }
    // Stable: of each rank the first stays the first.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_many_questions_gets_every_second_turn_beside_another_one() {
        let items = vec!["a1", "a2", "a3", "b1", "c1", "b2"];
        assert_eq!(in_turns(items, |item| &item[..1]), ["a1", "b1", "c1", "a2", "b2", "a3"]);
    }
}
