//! Which Reservation a pod is led to.

use std::collections::BTreeMap;

use hostler_api::{
    Quantity,
    core::Toleration,
    reservation::{OwnerCandidate, RESERVATION_ORDER},
};
use serde_json::{Value, json};

use super::{
    server::read,
    world::{World, wants},
};
use crate::{
    hold::{OfferedReservation, ReservationOffer, open_reservations},
    reservation_object::ReservationObject,
};

const GPUS: &str = "gpu.deviceclass.resource.k8s.io/devices";

/// An available Reservation that keeps so many devices, of which so many are taken.
fn reservation(name: &str, all: u64, taken: u64, more: Value) -> ReservationObject {
    let mut world = World::new(&[]);
    world.reserve(name, wants(1, "web"));
    let mut object = world.get(name).clone();
    let mut spec = serde_json::to_value(&object.spec).unwrap();
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    object.spec = read(spec);
    let status =
        json!({"phase": "Available", "allocatable": {GPUS: all.to_string()}, "allocated": {GPUS: taken.to_string()}});
    object.status = read(status);
    object
}

/// The name of the one that a pod with label app=web is led to that wants so many.
fn chosen(all: &[ReservationObject], count: u64) -> Option<String> {
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let wants = BTreeMap::from([(GPUS.to_owned(), Quantity::whole(count))]);
    let (annotations, tolerations) = (BTreeMap::new(), Vec::<Toleration>::new());
    let pod = OwnerCandidate {
        namespace: "default",
        name: "p",
        uid: "u",
        labels: &labels,
        annotations: &annotations,
        controller: None,
    };
    let offer = ReservationOffer { pod, tolerations: &tolerations, wants: &wants };
    let offered = all.iter().map(|reservation| {
        let capacity = BTreeMap::from([(GPUS.to_owned(), Quantity::whole(8))]);
        let capacity =
            if reservation.status.allocatable.is_empty() { capacity } else { reservation.status.allocatable.clone() };
        OfferedReservation { reservation, capacity }
    });
    open_reservations(offered, &offer).first().map(|it| it.reservation.name.clone())
}

#[test]
fn the_one_of_which_most_is_taken_comes_first_and_ties_are_stable() {
    let one = reservation("one", 8, 2, json!({}));
    let two = reservation("two", 8, 6, json!({}));
    let three = reservation("three", 8, 6, json!({}));
    assert_eq!(chosen(&[one.clone(), two.clone()], 1).unwrap(), "two");
    assert_eq!(chosen(&[two.clone(), three.clone()], 1).unwrap(), "three", "the names decide");
    assert_eq!(chosen(&[three.clone(), two.clone()], 1).unwrap(), "three");
    let older = ReservationObject { created: std::time::Duration::ZERO, ..two };
    assert_eq!(chosen(&[older, three], 1).unwrap(), "two");
}

#[test]
fn an_order_goes_before_everything_else_and_zero_is_none() {
    let with = |name: &str, order: &str, taken| {
        let object = reservation(name, 8, taken, json!({}));
        ReservationObject { labels: [(RESERVATION_ORDER.to_owned(), order.to_owned())].into(), ..object }
    };
    let all = [with("first", "1", 0), with("second", "2", 7), with("zero", "0", 7)];
    assert_eq!(chosen(&all, 1).unwrap(), "first");
    assert_eq!(chosen(&all[1..], 1).unwrap(), "second");
}

#[test]
fn nobody_is_led_to_one_that_is_closed_tainted_or_somebody_elses() {
    for more in [
        json!({"unschedulable": true}),
        json!({"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}),
        json!({"owners": [{"object": {"name": "other"}}]}),
        json!({"owners": []}),
    ] {
        assert_eq!(chosen(&[reservation("r", 8, 0, more.clone())], 1), None, "{more}");
    }
    assert!(chosen(&[reservation("r", 8, 0, json!({}))], 1).is_some());
}

#[test]
fn an_owner_is_led_where_nothing_is_left_or_closed_yet_and_to_one_with_room_before() {
    let full = || reservation("full", 8, 8, json!({}));
    assert_eq!(chosen(&[full()], 1).unwrap(), "full", "a device may come back");
    let with_room = reservation("room", 8, 0, json!({}));
    let first = ReservationObject { labels: [(RESERVATION_ORDER.to_owned(), "1".to_owned())].into(), ..full() };
    assert_eq!(chosen(&[first, with_room], 1).unwrap(), "room");
    for phase in ["Pending", "Waiting"] {
        let mut closing = reservation("closing", 8, 0, json!({}));
        closing.status.phase = read(json!(phase));
        closing.status.allocatable.clear();
        assert_eq!(chosen(&[closing], 1).unwrap(), "closing", "{phase}");
    }
    for phase in ["Succeeded", "Failed"] {
        let mut over = reservation("over", 8, 0, json!({}));
        over.status.phase = read(json!(phase));
        assert_eq!(chosen(&[over], 1), None, "{phase}");
    }
}

#[test]
fn a_restricted_one_takes_who_fits_as_a_whole_and_an_aligned_one_who_fits_in_part() {
    for (policy, expected) in [("Restricted", None), ("Aligned", Some("r".to_owned()))] {
        assert_eq!(chosen(&[reservation("r", 4, 2, json!({"allocatePolicy": policy}))], 5), expected, "{policy}");
    }
}
