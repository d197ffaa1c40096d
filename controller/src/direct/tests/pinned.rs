//! Claims of a gated pod that somebody else has given devices.

use hostler_api::reservation::ReservationConditionType as Type;

use super::{
    super::context::DirectStep,
    world::{DirectWorld, key},
};

/// A pod with two claims, of which the second has a device of this node already.
fn pinned(devices: &[usize], node: &str) -> DirectWorld {
    let mut world = DirectWorld::without_pods(devices);
    world.pod("p", &["own", "shared"]);
    give_elsewhere(&mut world, "p-shared", node, "gpu-0");
    world
}

fn give_elsewhere(world: &mut DirectWorld, claim: &str, node: &str, device: &str) {
    world.pod("other", &["unused"]);
    let mut other = world.server.pods.remove(&key("other")).unwrap();
    other.spec.node_name = Some(node.to_owned());
    let claim = world.server.claims[&key(claim)].clone();
    world.give(claim, &(node.to_owned(), device.to_owned()), &other);
    world.server.pods.insert(key("other"), other);
}

#[test]
fn a_claim_that_has_devices_keeps_the_pod_where_they_are() {
    let mut world = pinned(&[2, 2], "b");
    world.settle();
    assert_eq!(world.given("p"), ["b/gpu-1", "b/gpu-0"]);
    assert_eq!(world.node("p").as_deref(), Some("b"));
    world.check_nothing_is_kept();
}

#[test]
fn where_there_is_nothing_left_beside_it_the_reservation_says_which_claim_it_is() {
    let mut world = pinned(&[2, 1], "b");
    world.until("it is said", |world| {
        world.kept.reservations().next().is_some_and(|own| own.status.condition(Type::Placed).is_some())
    });
    let own = world.own("p");
    let placed = own.status.condition(Type::Placed).unwrap();
    assert_eq!(placed.reason, "Pinned");
    assert!(placed.message.contains("p-shared on node b"), "{}", placed.message);
    (0..20).for_each(|_| world.round());
    assert_eq!(world.given("p"), ["b/gpu-0"], "nothing on another node");
}

#[test]
fn two_claims_on_two_nodes_are_refused_with_their_names() {
    let mut world = pinned(&[2, 2], "b");
    give_elsewhere(&mut world, "p-own", "a", "gpu-1");
    let DirectStep::Refuse(why) = world.look("p") else { panic!("{:?}", world.look("p")) };
    assert!(why.contains("claim p-own has devices on node a and claim p-shared on node b"), "{why}");
}

#[test]
fn a_claim_that_is_given_something_else_meanwhile_takes_the_others_along() {
    let mut world = DirectWorld::without_pods(&[2, 3]);
    world.pod("p", &["own", "shared"]);
    world.is_idle = true;
    world.until("one of them is given", |world| !world.given("p").is_empty());
    assert_eq!(world.given("p"), ["a/gpu-0"]);
    give_elsewhere(&mut world, "p-shared", "b", "gpu-2");
    world.is_idle = false;
    world.settle();
    assert_eq!(world.given("p"), ["b/gpu-0", "b/gpu-2"]);
    assert_eq!(world.node("p").as_deref(), Some("b"));
    world.check_nothing_is_kept();
}
