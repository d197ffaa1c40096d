//! Keeps place holders that wait for a node away from places that are being handed over. Pure.
//!
//! A scheduler counts a nominated owner when it looks at pods of the same or a lower priority, and place holders have a
//! higher one: one that waits could take the place between the end of the former place holder and the binding of the
//! owner. So place holders that may come to the node are deleted before, and those that are made meanwhile leave it out.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::context::PlacePod;

/// The longest time for which others leave out a node; an owner that the scheduler refuses would keep them away for
/// ever.
const LONGEST: Duration = Duration::from_secs(60);

/// A place: the name of its Reservation, and the replica.
pub(super) type PlaceKey = (String, u32);

/// Places that are being handed over.
#[derive(Clone, Debug, Default)]
pub(super) struct HandOverGate {
    /// The node of each, and since when.
    begun: BTreeMap<PlaceKey, (String, Duration)>,
}

impl HandOverGate {
    /// Notes that the place holder of a place goes, for its owners to come.
    pub(super) fn begin(&mut self, place: PlaceKey, node: &str, now: Duration) {
        self.begun.entry(place).or_insert_with(|| (node.to_owned(), now));
    }

    /// Notes that no owner of a place is waited for.
    pub(super) fn end(&mut self, place: &PlaceKey) {
        self.begun.remove(place);
    }

    /// Returns the nodes on which other places than this one are handed over: place holders leave them out.
    pub(super) fn nodes(&mut self, but: Option<&PlaceKey>, now: Duration) -> BTreeSet<String> {
        self.begun.retain(|_, (_, since)| now.saturating_sub(*since) < LONGEST);
        let others = self.begun.iter().filter(|(place, _)| but != Some(*place));
        others.map(|(_, (node, _))| node.clone()).collect()
    }
}

/// Returns the place holders that have no node and may come to this one. `next` is the one that is to come.
pub(super) fn in_the_way<'a>(
    waiting: impl Iterator<Item = &'a PlacePod>,
    node: &str,
    next: &str,
) -> impl Iterator<Item = &'a PlacePod> {
    waiting.filter(move |pod| {
        pod.node().is_none() && !pod.is_ending() && pod.metadata.name != next && pod.may_come_to(node)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_left_out_until_owners_are_there_and_not_for_ever() {
        let (mut gate, now) = (HandOverGate::default(), Duration::from_secs(100));
        let own = ("r".to_owned(), 0);
        gate.begin(own.clone(), "a", now);
        gate.begin(("q".to_owned(), 0), "b", now);
        let nodes = |gate: &mut HandOverGate, but, now| gate.nodes(but, now).into_iter().collect::<Vec<_>>();
        assert_eq!(nodes(&mut gate, Some(&own), now), ["b"]);
        assert_eq!(nodes(&mut gate, None, now), ["a", "b"]);
        gate.end(&own);
        assert_eq!(nodes(&mut gate, None, now), ["b"]);
        assert_eq!(nodes(&mut gate, None, now + LONGEST), [""; 0]);
    }
}
