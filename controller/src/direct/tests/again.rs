//! The scheduler frees what it was given (race 11).

use hostler_api::{
    reservation::{ReservationConditionType as Type, ReservationPhase},
    resource::ResourceClaimStatus,
};

use super::{
    super::attempt::Attempt,
    world::{DirectWorld, devices_of},
};
use crate::{reservation_object::ReservationObject, testkit::Fate};

/// A pod with two claims that is let go to node `a`, which the scheduler does not bind it to. On `b` there are devices as well.
fn taken_back() -> DirectWorld {
    let mut world = DirectWorld::without_pods(&[2, 2]);
    world.pod("p", &["one", "two"]);
    world.full.insert("a");
    world
}

fn placed(world: &DirectWorld) -> (String, String) {
    let own = world.own("p");
    let placed = own.status.condition(Type::Placed);
    placed.map(|it| (it.reason.clone(), it.message.clone())).unwrap_or_default()
}

/// The scheduler frees all claims of the pod, and gives it nothing by itself.
fn only_frees(world: &mut DirectWorld) {
    let claims: Vec<_> = world.server.claims.values().filter(|claim| claim.is_allocated()).cloned().collect();
    for mut claim in claims {
        assert!(devices_of(&claim).iter().all(|it| world.full.contains(&*it.0)), "it would have bound it there");
        claim.status = ResourceClaimStatus::default();
        world.put(claim);
    }
}

#[test]
fn what_the_scheduler_takes_back_is_planned_anew_on_another_node() {
    let mut world = taken_back();
    world.is_idle = true;
    world.until("the gate is gone", |world| world.writes.last() == Some(&"gates"));
    assert_eq!(world.given("p"), ["a/gpu-0", "a/gpu-1"]);
    only_frees(&mut world);
    world.until("it has others", |world| world.given("p").len() == 2);
    assert_eq!(world.given("p"), ["b/gpu-0", "b/gpu-1"]);
    let (reason, message) = placed(&world);
    assert!(reason == "PlannedAgain" && message.contains("try 2") && message.contains("on a;"), "{reason}: {message}");
    world.is_idle = false;
    world.settle();
    assert_eq!(world.node("p").as_deref(), Some("b"));
    world.check_nothing_is_kept();
    assert!(world.writes.len() <= 18, "few writes: {:?}", world.writes);
}

#[test]
fn where_the_scheduler_finds_another_node_by_itself_nothing_is_in_its_way() {
    let mut world = taken_back();
    world.settle();
    assert_eq!(world.node("p").as_deref(), Some("b"));
    world.check_nothing_is_kept();
}

#[test]
fn a_claim_that_is_left_keeps_what_it_has_until_the_scheduler_frees_it_as_well() {
    let mut world = taken_back();
    world.is_idle = true;
    world.until("the gate is gone", |world| world.writes.last() == Some(&"gates"));
    world.is_idle = false;
    world.schedule();
    world.is_idle = true;
    assert_eq!(world.given("p"), ["a/gpu-1"], "one at a time");
    let before = world.writes.len();
    (0..10).for_each(|_| world.round());
    assert_eq!(world.writes[before..], ["reservation_status"], "it is said, and waited for");
    assert_eq!((world.given("p").len(), placed(&world).0.as_str()), (1, "TakenBack"));
    // There is no other node for which it would free the second one, and this one is fine again.
    world.full.clear();
    world.until("it is given the same", |world| world.given("p").len() == 2);
    assert_eq!(world.given("p"), ["a/gpu-0", "a/gpu-1"]);
    world.is_idle = false;
    world.settle();
    assert_eq!(world.node("p").as_deref(), Some("a"));
}

#[test]
fn when_no_node_is_left_all_are_tried_again_after_longer_and_longer_pauses() {
    let mut world = taken_back();
    world.full.insert("b");
    world.is_idle = true;
    let mut tried = Vec::new();
    let began = world.kept.now();
    while tried.len() < 5 {
        world.until("it is given something", |world| {
            world.given("p").len() == 2 && !world.cx("p").pod.unwrap().is_gated()
        });
        tried.push((world.given("p")[0].clone(), (world.kept.now() - began).as_secs()));
        only_frees(&mut world);
    }
    let nodes: Vec<&str> = tried.iter().map(|(device, _)| &device[..1]).collect();
    assert_eq!(nodes[..2], ["a", "b"]);
    assert!(nodes[2..].contains(&"a") && nodes[2..].contains(&"b"), "{tried:?}");
    let pauses: Vec<u64> = tried.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    assert!(pauses[3] >= 40 && pauses[0] < 20, "they grow: {tried:?}");
    world.until("it is said", |world| placed(world).1.contains("all nodes are tried again"));
    world.full.remove("b");
    world.is_idle = false;
    world.settle();
    assert_eq!(world.node("p").as_deref(), Some("b"));
    world.check_nothing_is_kept();
}

#[test]
fn a_claim_that_never_had_anything_is_not_taken_back() {
    let mut world = taken_back();
    world.full.clear();
    // Somebody takes the gate away by hand, before anything was given.
    world.is_idle = true;
    let is_available = |own: &ReservationObject| own.status.phase == ReservationPhase::Available;
    world.until("it is kept", |world| world.kept.reservations().any(is_available));
    let pod = world.server.pods.values_mut().next().unwrap();
    pod.spec.scheduling_gates.clear();
    world.until("it is given what was kept", |world| world.given("p").len() == 2);
    assert_eq!(Attempt::of(&world.own("p")), Attempt::default());
}

#[test]
fn deaths_at_any_write_and_at_the_next_do_no_harm_while_the_scheduler_takes_back() {
    for first in 0..18 {
        for fates in Fate::TWO_DEATHS {
            let mut world = taken_back();
            world.is_idle = true;
            world.fates.extend([(first, fates[0]), (first + 1, fates[1])]);
            world.until("the gate is gone", |world| !world.cx("p").pod.unwrap().is_gated());
            only_frees(&mut world);
            world.until("it has others", |world| world.given("p").len() == 2);
            assert_eq!(world.given("p"), ["b/gpu-0", "b/gpu-1"], "{first} {fates:?}");
            world.is_idle = false;
            world.settle();
            world.check_nothing_is_kept();
        }
    }
}

#[test]
fn a_pod_that_goes_while_it_is_planned_anew_leaves_nothing() {
    for at in 6..=12 {
        let mut world = taken_back();
        world.is_idle = true;
        world.until("the gate is gone", |world| !world.cx("p").pod.unwrap().is_gated());
        only_frees(&mut world);
        world.until("so many writes", |world| world.writes.len() >= at);
        world.delete_pod("p");
        world.settle();
        world.check_nothing_is_kept();
    }
}
