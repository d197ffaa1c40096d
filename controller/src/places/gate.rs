//! Keeps place holders that wait for a node away from places that are being handed over. Pure.
//!
//! A scheduler counts a nominated owner when it looks at pods of the same or a lower priority, and place holders have a
//! higher one: one that waits could take the place between the end of the former place holder and the binding of the
//! owner. So place holders that may come to the node are deleted before, and those that are made meanwhile leave it out.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::reservation::{ReservedPlace, ReservedPlaceState as State};

use super::{
    context::PlacePod,
    handing_over::{HandingOver, PlaceKey},
    holder::holder_name,
};
use crate::reservation_object::ReservationObject;

/// The longest time for which others leave out a node; an owner that the scheduler refuses would keep them away for
/// ever.
const LONGEST: Duration = Duration::from_secs(60);

/// The time in which the owner of a place usually comes to its node.
const USUAL: Duration = Duration::from_secs(2);

/// Places that are being handed over.
#[derive(Clone, Debug, Default)]
pub(super) struct HandOverGate {
    begun: BTreeMap<PlaceKey, HandOver>,
}

/// A place whose holder goes.
#[derive(Clone, Debug)]
struct HandOver {
    node: String,
    since: Duration,
    /// The name of the place holder that is to come, beside the owners.
    next: String,
}

impl HandOverGate {
    /// Returns the gate with the places that a leader before may have begun to hand over.
    pub(super) fn of<'a>(reservations: impl Iterator<Item = &'a ReservationObject>, now: Duration) -> Self {
        let mut gate = Self::default();
        for reservation in reservations {
            for place in reservation.status.places.iter().filter(|place| !has_all(place)) {
                let next = holder_name(reservation, place.replica, place.number);
                gate.begin((reservation.name.clone(), place.replica), &place.node_name, next, now);
            }
        }
        gate
    }

    /// Notes that the place holder of a place goes, for its owners and for the next one to come.
    pub(super) fn begin(&mut self, place: PlaceKey, node: &str, next: String, now: Duration) {
        self.begun.insert(place, HandOver { node: node.to_owned(), since: now, next });
    }

    /// Notes for which replicas of a Reservation pods are still waited for.
    pub(super) fn keep(&mut self, reservation: &str, waiting: &BTreeSet<u32>) {
        self.begun.retain(|(name, replica), _| name != reservation || waiting.contains(replica));
    }

    /// Returns the nodes on which other places than this one are handed over: place holders leave them out.
    pub(super) fn nodes(&mut self, but: Option<&PlaceKey>, now: Duration) -> BTreeSet<String> {
        self.begun.retain(|_, begun| now.saturating_sub(begun.since) < LONGEST);
        let others = self.begun.iter().filter(|(place, _)| but != Some(*place));
        others.map(|(_, begun)| begun.node.clone()).collect()
    }

    /// Returns the places that are being handed over.
    pub(super) fn handing_over(&mut self, now: Duration) -> HandingOver {
        let nodes = self.nodes(None, now);
        let fresh = self.begun.iter().filter(|(_, begun)| now.saturating_sub(begun.since) < USUAL);
        HandingOver { nodes, fresh: fresh.map(|(place, begun)| (place.clone(), begun.node.clone())).collect() }
    }

    /// Returns the place holders that have no node and may come to this one. Those that are to come stay: the scheduler
    /// counts them among each other, and what they take was their former place holder's.
    pub(super) fn in_the_way<'a>(
        &self,
        waiting: impl Iterator<Item = &'a PlacePod>,
        node: &str,
    ) -> impl Iterator<Item = &'a PlacePod> {
        let next = self.begun.values().filter(|begun| begun.node == node).map(|begun| &*begun.next);
        let next: BTreeSet<&str> = next.collect();
        waiting.filter(move |pod| {
            let is_to_come = pod.status.nominated_node_name == node && next.contains(&*pod.metadata.name);
            pod.node().is_none() && !pod.is_ending() && !is_to_come && pod.may_come_to(node)
        })
    }
}

/// Returns the replicas of a Reservation for which pods are waited for; none of one that is gone.
pub(super) fn waiting(reservation: Option<&ReservationObject>) -> BTreeSet<u32> {
    let places = reservation.into_iter().flat_map(|it| &it.status.places);
    places.filter(|place| !has_all(place)).map(|place| place.replica).collect()
}

/// True if no pod is waited for: the owners are bound, and the rest is held or cannot be.
fn has_all(place: &ReservedPlace) -> bool {
    let is_settled = match place.state {
        State::Held | State::HandedOver | State::Refused => true,
        State::Asking => place.owners.is_empty(),
        State::HandingOver => false,
    };
    is_settled && place.owners.iter().all(|owner| owner.bound)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_are_left_out_until_owners_are_there_and_not_for_ever() {
        let (mut gate, now) = (HandOverGate::default(), Duration::from_secs(100));
        let own = ("r".to_owned(), 0);
        gate.begin(own.clone(), "a", "r-1".to_owned(), now);
        gate.begin(("q".to_owned(), 0), "b", "q-1".to_owned(), now);
        let nodes = |gate: &mut HandOverGate, but, now| gate.nodes(but, now).into_iter().collect::<Vec<_>>();
        assert_eq!(nodes(&mut gate, Some(&own), now), ["b"]);
        assert_eq!(nodes(&mut gate, None, now), ["a", "b"]);
        assert_eq!(gate.handing_over(now).fresh[0], (("q".to_owned(), 0), "b".to_owned()));
        assert!(gate.handing_over(now + USUAL).fresh.is_empty());
        gate.keep("r", &BTreeSet::from([0]));
        assert_eq!(nodes(&mut gate, None, now), ["a", "b"]);
        gate.keep("r", &BTreeSet::new());
        assert_eq!(nodes(&mut gate, None, now), ["b"]);
        assert_eq!(nodes(&mut gate, None, now + LONGEST), [""; 0]);
    }

    #[test]
    fn place_holders_that_are_to_come_to_the_node_are_not_in_the_way() {
        let mut gate = HandOverGate::default();
        gate.begin(("r".to_owned(), 0), "a", "r-1".to_owned(), Duration::ZERO);
        gate.begin(("q".to_owned(), 0), "b", "q-1".to_owned(), Duration::ZERO);
        let pod = |name: &str, nominated: &str| {
            let pod = json!({"metadata": {"name": name}, "status": {"nominatedNodeName": nominated}});
            serde_json::from_value::<PlacePod>(pod).unwrap()
        };
        let waiting = [pod("r-1", "a"), pod("q-1", "b"), pod("r-2", "a"), pod("t-0", "")];
        let gone: Vec<&str> = gate.in_the_way(waiting.iter(), "a").map(|pod| &*pod.metadata.name).collect();
        assert_eq!(gone, ["q-1", "r-2", "t-0"]);
        let waiting = [pod("r-1", "")];
        assert_eq!(gate.in_the_way(waiting.iter(), "a").count(), 1, "it may come to any node");
    }
}
