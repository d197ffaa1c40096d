//! Pods say from which Reservation they have devices.

use hostler_api::reservation::{RESERVATION_ALLOCATED, ReservationPhase as Phase};
use serde_json::{Value, json};

use super::{
    cluster::key,
    world::{World, wants_and},
};
use crate::hold::{HoldWrite, PodWrite};

fn annotation(world: &World, pod: &str) -> Option<Value> {
    let text = world.server.pods[&key(pod)].is.annotations.get(RESERVATION_ALLOCATED)?;
    Some(serde_json::from_str(text).unwrap())
}

fn tries(world: &World) -> Vec<usize> {
    let is_try = |write: &HoldWrite| matches!(write, HoldWrite::Pod(PodWrite::Annotate { .. }));
    (0..world.writes.len()).filter(|at| is_try(&world.writes[*at])).collect()
}

#[test]
fn a_pod_that_was_given_devices_says_of_which_reservation_they_are() {
    let mut world = World::new(&[2]);
    world.reserve("r", wants_and(1, "web", json!({"allocateOnce": false})));
    world.settle();
    let (value, uid) = (world.value("r"), world.get("r").uid.clone());
    for pod in ["first", "second"] {
        world.pod(pod, "web", 1, &value);
        assert!(world.schedule(pod));
        world.settle();
        assert_eq!(annotation(&world, pod), Some(json!({"name": "r", "uid": uid})));
        world.check_rest();
        world.end_pod(pod);
        world.settle();
    }
    assert_eq!(tries(&world).len(), 2);
}

#[test]
fn without_the_right_to_write_it_all_goes_on_and_it_is_tried_ever_more_seldom() {
    let mut world = World::new(&[2]);
    for (name, app) in [("one", "web"), ("two", "job")] {
        world.reserve(name, wants_and(1, app, json!({"allocateOnce": false})));
    }
    world.settle();
    world.server.forbids_annotations = true;
    let values = ["one", "two"].map(|name| world.value(name));
    for (pod, app, value) in [("web", "web", &values[0]), ("job", "job", &values[1])] {
        world.pod(pod, app, 1, value);
        assert!(world.schedule(pod));
    }
    world.settle_for(3600);
    let refused = tries(&world).len();
    assert!((4..60).contains(&refused) && annotation(&world, "web").is_none(), "{refused} tries within an hour");
    // The role comes, or the server has read it.
    world.server.forbids_annotations = false;
    world.settle_for(301);
    assert!(annotation(&world, "web").is_some() && annotation(&world, "job").is_some());
    assert_eq!((world.phase("one"), world.phase("two")), (Phase::Available, Phase::Available));
}
