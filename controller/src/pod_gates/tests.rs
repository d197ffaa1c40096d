//! Pods are gated where they wait for something, and always let go.

mod random;
mod table;
mod world;

use hostler_api::{core::PodSchedulingGate, reservation::ReservationPhase as Phase};
use serde_json::json;

use self::world::{GatesWorld, request};
use super::waits::WaitRules;
use crate::{places::tests::world::key, testkit::Fate};

fn kept(more: &serde_json::Value) -> GatesWorld {
    let mut world = GatesWorld::new(&[3000]);
    world.places.reserve("r", "3", more);
    world.until("it is kept", |world| world.places.phase("r") == Some(Phase::Available));
    world
}

#[test]
fn the_scheduler_first_sees_an_owner_when_its_place_is_free() {
    let mut world = kept(&json!({}));
    for stranger in 0..4 {
        world.pod(&format!("s{stranger}"), "", "1");
    }
    world.pod("p", "r", "3");
    assert!(world.is_gated("p") && !world.is_gated("s0"), "strangers wait for nothing");
    for _ in 0..40 {
        world.round();
        let pod = &world.places.server.pods[&key("p")];
        assert!(pod.refusal().is_none(), "the scheduler has tried it in vain: {}", world.places.told());
    }
    assert_eq!(world.places.node("p").as_deref(), Some("a"));
    let affinity = world.affinity("p").unwrap();
    assert_eq!((affinity.preferred[0].weight, affinity.required), (100, None));
    assert_eq!(world.places.phase("r"), Some(Phase::Succeeded));
}

#[test]
fn an_owner_of_a_restricted_reservation_can_go_nowhere_else() {
    let mut world = kept(&json!({"allocatePolicy": "Restricted"}));
    world.pod("p", "r", "3");
    world.until("it is bound", |world| world.places.node("p").is_some());
    let affinity = world.affinity("p").unwrap();
    assert_eq!((affinity.required.unwrap().name(), affinity.preferred.len()), (Some("a"), 0));
}

#[test]
fn owners_of_a_shared_place_wait_for_their_part_and_one_for_which_nothing_is_left_does_not() {
    let mut world = kept(&json!({"allocateOnce": false}));
    for (owner, cpu) in [("p", "1"), ("q", "1500m"), ("t", "1")] {
        world.pod(owner, "r", cpu);
    }
    let gated = |world: &GatesWorld| ["p", "q", "t"].map(|owner| world.is_gated(owner));
    assert_eq!(gated(&world), [true, true, false]);
    world.until("both are bound", |world| ["p", "q"].iter().all(|owner| world.places.node(owner).is_some()));
    assert_eq!(world.places.node("t"), None);
}

#[test]
fn an_owner_waits_for_a_place_that_is_being_asked_for_until_the_scheduler_finds_none() {
    let mut world = GatesWorld::new(&[3000]);
    world.places.reserve("r", "4", &json!({}));
    let is_asked_for = |world: &GatesWorld| !world.places.reservation("r").unwrap().status.places.is_empty();
    world.until("the place is asked for", is_asked_for);
    world.pod("p", "r", "3");
    assert!(world.is_gated("p"));
    world.until("it goes where there is room", |world| world.places.node("p").is_some());
    assert_eq!((world.affinity("p"), world.places.phase("r")), (None, Some(Phase::Pending)));
}

#[test]
fn pods_of_a_reservation_that_is_deleted_are_let_go() {
    for rounds in 0..8 {
        let mut world = kept(&json!({}));
        world.pod("p", "r", "3");
        for _ in 0..rounds {
            world.places.control();
        }
        let it = world.places.reservation("r").unwrap();
        let version = crate::testkit::over(&it.uid, &it.version);
        world.places.kept.delete("r", &version);
        world.until("it is gone", |world| world.places.reservation("r").is_none());
        world.until("the pod goes anywhere", |world| world.places.node("p").is_some());
    }
}

#[test]
fn pods_are_let_go_when_gates_are_switched_off() {
    let mut world = kept(&json!({}));
    world.pod("p", "r", "2");
    assert!(world.is_gated("p"));
    world.rules = WaitRules::default();
    world.release();
    assert!(!world.is_gated("p"));
}

#[test]
fn without_the_webhook_an_owner_is_given_its_place_as_before() {
    let mut world = kept(&json!({}));
    world.has_webhook = false;
    world.pod("s", "", "1");
    world.pod("p", "r", "3");
    assert!(!world.is_gated("p"));
    world.until("it is bound", |world| world.places.node("p").is_some());
}

#[test]
fn a_pod_that_another_gate_holds_back_is_given_its_place_once_that_is_gone() {
    let mut world = kept(&json!({}));
    let hold = |pod: &mut crate::places::PlacePod| {
        pod.spec.scheduling_gates.push(PodSchedulingGate { name: "other".to_owned() });
    };
    world.pod_with("p", "r", "3", hold);
    assert!(world.is_gated("p"));
    (0..20).for_each(|_| world.round());
    assert!(world.places.server.pods[&key("p")].status.nominated_node_name.is_empty(), "nothing is begun for it");
    let mut pod = world.places.server.pods[&key("p")].clone();
    pod.spec.scheduling_gates.retain(|gate| gate.name != "other");
    world.places.server.put(pod);
    world.until("it is bound", |world| world.places.node("p").is_some());
}

#[test]
fn a_pod_waits_for_the_decision_on_its_request_and_a_minute_for_one_that_is_not_there() {
    let consumer = |pod: &mut crate::places::PlacePod| {
        pod.annotate("autoscaling.x-k8s.io/consume-provisioning-request", "n");
    };
    let mut world = GatesWorld::new(&[3000]);
    world.pod_with("p", "", "1", consumer);
    world.requests.insert(key("n"), request("n", &[("Provisioned", "False")]));
    (0..100).for_each(|_| world.round());
    assert!(world.is_gated("p"), "it is not decided");
    world.requests.insert(key("n"), request("n", &[("Provisioned", "True")]));
    world.until("it is bound", |world| world.places.node("p").is_some());
    world.requests.clear();
    world.pod_with("q", "", "1", consumer);
    let before = world.now();
    assert!(world.is_gated("q"));
    world.until("it is bound", |world| world.places.node("q").is_some());
    let took = (world.now() - before).as_secs();
    assert!((60..70).contains(&took), "{took} s");
}

#[test]
fn deaths_at_any_two_writes_leave_no_pod_gated() {
    for first in 0..14 {
        for fates in Fate::TWO_DEATHS {
            let mut world = GatesWorld::new(&[3000, 3000]);
            world.places.reserve("r", "2", &json!({}));
            world.places.fates.extend([(first, fates[0]), (first + 1, fates[1])]);
            world.until("it is kept", |world| world.places.phase("r") == Some(Phase::Available));
            (0..6).for_each(|stranger| world.pod(&format!("s{stranger}"), "", "1"));
            world.places.schedule();
            world.pod("p", "r", "2");
            world.until("the owner is bound", |world| world.places.node("p").is_some());
            world.until("nothing is left", |world| {
                let is_clear = world.places.reservation("r").is_none_or(|it| it.status.places.is_empty());
                world.places.holders() == 0 && is_clear
            });
        }
    }
}
