//! Reservations that the controller cannot understand keep what they keep.

use hostler_api::reservation::ReservationPhase as Phase;
use serde_json::json;

use super::world::{DRIVER, World, settings, wants, wants_part};
use crate::hold::HoldSettings;

/// The one that leads next cannot understand `r`; then it can, or `r` is gone.
fn is_left_alone(mut world: World) {
    let before = (world.server.node_fences.clone(), world.server.rules.clone(), world.server.claims.clone());
    world.unreadable.insert("r".to_owned());
    world.restart();
    world.reserve("other", wants(1, "other"));
    world.settle();
    assert_ne!(world.phase("other"), Phase::Available, "there is nothing else");
    let after = (world.server.node_fences.clone(), world.server.rules.clone(), world.server.claims.clone());
    assert_eq!(before, after);
    world.unreadable.clear();
    world.server.delete_reservation("other");
    let object = world.get("r").clone();
    world.server.put(object);
    world.settle();
    world.check_rest();
    assert_eq!(world.phase("r"), Phase::Available);
}

#[test]
fn what_is_closed_for_one_that_cannot_be_understood_stays_closed() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants(1, "web"));
    world.settle();
    is_left_alone(world);
    let settings = HoldSettings { has_rules: true, ..settings() };
    let mut world = World::with(settings, "gpu.example.com", &[1]);
    world.reserve("r", wants(1, "web"));
    world.settle();
    assert_eq!(world.server.rules.len(), 1);
    is_left_alone(world);
}

#[test]
fn claims_that_stand_for_its_parts_stay_and_what_it_left_goes_once_it_is_gone() {
    let mut world = World::with(settings(), DRIVER, &[1]);
    world.share("a", "gpu-0", 8);
    world.reserve("r", wants_part(5, "web", json!({})));
    world.settle();
    assert_eq!(world.server.claims.len(), 1);
    world.unreadable.insert("r".to_owned());
    world.restart();
    world.settle();
    assert_eq!(world.server.claims.len(), 1);
    // Somebody else takes its finalizer away.
    world.change("r", |object| {
        object.finalizers.clear();
        object.is_deleting = true;
    });
    world.unreadable.clear();
    world.settle();
    assert!(world.server.claims.is_empty(), "{:?}", world.server.claims);
    world.check_rest();
}
