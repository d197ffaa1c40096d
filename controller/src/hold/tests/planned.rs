//! Devices that were planned for a Reservation when it was made.

use hostler_api::reservation::ReservationPhase as Phase;
use serde_json::{Value, json};

use super::world::{World, wants, wants_and};

fn planned(pods: u32, count: usize, devices: &[(&str, &str)]) -> Value {
    let device = |(node, device): &(&str, &str)| json!({"nodeName": node, "driver": super::world::DRIVER, "pool": node, "device": device});
    let devices: Vec<Value> = devices.iter().map(device).collect();
    wants_and(count, "web", json!({"replicas": pods, "plannedDevices": devices}))
}

#[test]
fn planned_devices_are_kept_though_a_new_plan_would_choose_others() {
    let mut world = World::new(&[2, 2]);
    world.reserve("r", planned(1, 1, &[("b", "gpu-1")]));
    world.settle();
    assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["b/gpu-1".to_owned()]));
    world.check_rest();
}

/// A plan for all pods of a request places the large ones first. Reservations come one after the other: each of them planned anew
/// would take the room of the next.
#[test]
fn each_of_several_reservations_leaves_the_devices_of_the_others() {
    let mut world = World::new(&[3, 2]);
    world.reserve("small", planned(2, 1, &[("b", "gpu-0"), ("b", "gpu-1")]));
    world.settle();
    world.reserve("large", planned(1, 3, &[("a", "gpu-0"), ("a", "gpu-1"), ("a", "gpu-2")]));
    world.settle();
    assert_eq!(world.held("small"), ["b/gpu-0", "b/gpu-1"]);
    assert_eq!(world.held("large"), ["a/gpu-0", "a/gpu-1", "a/gpu-2"]);
    world.check_rest();
}

#[test]
fn others_are_chosen_where_planned_devices_are_taken_gone_or_too_few() {
    for devices in [&[("a", "gpu-0")][..], &[("a", "gpu-7")], &[("nowhere", "gpu-0")]] {
        let mut world = World::new(&[1, 2]);
        world.running("old", "db", 1, 0);
        assert_eq!(world.has("old"), ["a/gpu-0"]);
        world.reserve("r", planned(1, 2, devices));
        world.settle();
        assert_eq!(world.phase("r"), Phase::Available, "{devices:?}");
        assert_eq!(world.held("r"), ["b/gpu-0", "b/gpu-1"], "{devices:?}");
        world.check_rest();
    }
}

#[test]
fn a_plan_is_followed_once_and_not_when_a_device_of_it_is_lost() {
    let mut world = World::new(&[1, 1]);
    world.reserve("r", planned(1, 1, &[("b", "gpu-0")]));
    world.settle();
    assert_eq!(world.held("r"), ["b/gpu-0"]);
    world.edit_device("b", "gpu-0", |device| device.is_usable = false);
    world.settle();
    assert_eq!(world.held("r"), ["a/gpu-0"]);
    world.check_rest();
}

/// A plan is no reason to pass those that have waited for longer.
#[test]
fn an_older_reservation_has_its_turn_before_a_younger_one_with_a_plan() {
    let mut world = World::new(&[1]);
    world.edit_device("a", "gpu-0", |device| device.is_usable = false);
    world.reserve("old", wants(1, "web"));
    world.settle();
    assert_eq!(world.phase("old"), Phase::Pending);
    world.reserve("young", planned(1, 1, &[("a", "gpu-0")]));
    world.edit_device("a", "gpu-0", |device| device.is_usable = true);
    world.settle();
    assert_eq!((world.held("old"), world.held("young")), (vec!["a/gpu-0".to_owned()], Vec::new()));
    world.check_rest();
}
