//! Requests that are made anew under the name of one that is gone, as Kueue makes them: they are not refused by their own booking.

use std::time::Duration;

use hostler_api::provisioning::ProvisioningConditionType as Type;

use serde_json::json;

use super::world::{World, key, read};

const SECOND: Duration = Duration::from_secs(1);
const FOUND: &str = "True CapacityIsFound";

/// A request that is made anew at once, and takes a no for an answer.
fn ask_anew(world: &mut World, name: &str, pods: i64) {
    world.server.delete_request(&key(name));
    world.ask_with(name, pods, &[("noRetry", "true")]);
    world.settle();
}

/// `False CapacityIsNotFound`, and whether it has failed.
fn told(world: &World) -> (String, String) {
    (world.provisioned("a"), world.says("a", Type::Failed))
}

#[test]
fn a_request_that_is_made_anew_and_wants_no_retry_is_not_refused_by_its_own_booking() {
    let mut world = World::of(&[2]);
    world.ask("a", 2);
    world.settle();
    ask_anew(&mut world, "a", 2);
    assert_eq!((told(&world), world.kept()), ((String::new(), String::new()), 2));
    world.check_rest();
    world.pass(9 * SECOND);
    assert_eq!(told(&world), (String::new(), String::new()));
    world.pass(2 * SECOND);
    assert_eq!((told(&world), world.kept()), ((FOUND.to_owned(), String::new()), 2));
    world.check_rest();
}

#[test]
fn what_pods_have_used_of_the_earlier_booking_is_not_waited_for() {
    let mut world = World::of(&[3]);
    world.ask("a", 3);
    world.settle();
    let (device, _) = world.server.held().into_iter().next().unwrap();
    world.bind("p", "a", &device.0, device.1);
    ask_anew(&mut world, "a", 2);
    world.pass(11 * SECOND);
    assert_eq!(told(&world), (FOUND.to_owned(), String::new()));
    assert!(!world.server.held().contains_key(&device), "its pod has it");
    world.check_rest();
}

#[test]
fn devices_that_are_never_opened_are_not_waited_for_for_ever() {
    let mut world = World::of(&[1]);
    world.ask("a", 1);
    world.settle();
    world.is_kept = false;
    ask_anew(&mut world, "a", 1);
    world.pass(129 * SECOND);
    assert_eq!(told(&world), (String::new(), String::new()));
    world.pass(2 * SECOND);
    assert_eq!(told(&world).1, "True CapacityIsNotFound");
    world.check_rest();
}

#[test]
fn an_earlier_booking_that_is_seen_late_refuses_nothing_either() {
    let mut world = World::of(&[1]);
    world.ask("a", 1);
    world.settle();
    let unseen = std::mem::take(&mut world.server.reservations);
    world.is_kept = false;
    ask_anew(&mut world, "a", 1);
    assert_eq!(told(&world).0, "False BookingCapacity");
    world.server.reservations.extend(unseen);
    world.is_kept = true;
    world.settle();
    assert_eq!(told(&world), ("False BookingCapacity".to_owned(), String::new()));
    world.pass(11 * SECOND);
    assert_eq!((told(&world), world.kept()), ((FOUND.to_owned(), String::new()), 1));
    world.check_rest();
}

/// The watches of Reservations and of slices are separate: a slice may be seen as it was while its device was kept.
#[test]
fn a_taint_that_is_seen_for_longer_than_its_reservation_refuses_nothing_either() {
    let mut world = World::of(&[1]);
    world.ask("a", 1);
    world.settle();
    let value = world.server.reservations.values().next().unwrap().status.toleration_value.clone().unwrap();
    let slice = |taints: serde_json::Value| {
        read(json!({
            "metadata": {"name": "n0-gpu"},
            "spec": {
                "driver": "gpu.example", "nodeName": "n0", "devices": [{"name": "gpu-0", "taints": taints}],
                "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            },
        }))
    };
    world.server.facts.add_slice(slice(json!([{"key": "hostler.dev/held", "value": value, "effect": "NoSchedule"}])));
    ask_anew(&mut world, "a", 1);
    world.pass(11 * SECOND);
    assert!(world.server.reservations.is_empty());
    assert_eq!(told(&world), (String::new(), String::new()));
    world.server.facts.add_slice(slice(json!([])));
    world.settle();
    assert_eq!((told(&world), world.kept()), ((FOUND.to_owned(), String::new()), 1));
    world.check_rest();
}

#[test]
fn a_request_that_is_over_is_deleted_after_its_time_and_another_writer_s_is_not() {
    let mut world = World::of(&[1]);
    world.keep_for(3600 * SECOND);
    world.ask_with("a", 2, &[("noRetry", "true")]);
    world.ask("b", 1);
    world.settle();
    assert_eq!((told(&world).1.starts_with("True"), world.provisioned("b")), (true, FOUND.to_owned()));
    world.pass(3590 * SECOND);
    assert!(world.server.objects.requests.contains_key(&key("a")), "its time is not over");
    world.pass(20 * SECOND);
    assert!(!world.server.objects.requests.contains_key(&key("a")), "its time is over");
    // The booking of the other one ended after ten minutes.
    assert!(world.server.objects.requests.contains_key(&key("b")));
    world.pass(700 * SECOND);
    assert!(!world.server.objects.requests.contains_key(&key("b")));
}

#[test]
fn a_controller_that_begins_late_deletes_by_the_time_in_the_request() {
    let mut world = World::of(&[1]);
    world.keep_for(3600 * SECOND);
    world.ask_with("a", 2, &[("noRetry", "true")]);
    world.settle();
    world.pass(1800 * SECOND);
    world.restart();
    world.settle();
    world.pass(1790 * SECOND);
    assert!(world.server.objects.requests.contains_key(&key("a")));
    world.pass(20 * SECOND);
    assert!(!world.server.objects.requests.contains_key(&key("a")));
}
