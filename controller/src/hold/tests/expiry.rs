//! When Reservations end, and what is left of them.

use std::time::Duration;

use hostler_api::reservation::ReservationPhase as Phase;
use serde_json::json;

use super::world::{World, by_rules, wants_and};
use crate::hold::HoldEvent;

const DAY: u64 = 24 * 3600;

/// What has become of it after so many seconds.
fn after(spec: serde_json::Value, devices: usize, seconds: u64) -> (Phase, String) {
    let mut world = World::new(&[devices]);
    world.reserve("r", wants_and(1, "web", spec));
    world.settle_for(seconds);
    world.check_rest();
    (world.phase("r"), world.reason("r").to_owned())
}

#[test]
fn it_expires_when_its_time_is_over_and_not_before() {
    let expired = (Phase::Failed, "Expired".to_owned());
    let available = (Phase::Available, "Available".to_owned());
    assert_eq!(after(json!({"ttl": "10m"}), 1, 300), available);
    assert_eq!(after(json!({"ttl": "10m"}), 1, 620), expired);
    assert_eq!(after(json!({}), 1, DAY - 900), available);
    assert_eq!(after(json!({}), 1, DAY + 20), expired);
    assert_eq!(after(json!({"ttl": "0"}), 1, 3 * DAY), available);
    // An hour after the world began, less the thousand seconds that it is old.
    let expires = json!({"ttl": "0", "expires": "2027-01-15T09:00:00Z"});
    assert_eq!(after(expires.clone(), 1, 2000), available);
    assert_eq!(after(expires, 1, 3000), expired);
}

#[test]
fn the_time_at_which_it_expires_goes_before_how_long_it_lasts_by_itself() {
    let expired = (Phase::Failed, "Expired".to_owned());
    let available = (Phase::Available, "Available".to_owned());
    let soon = json!({"expires": "2027-01-15T09:00:00Z"});
    assert_eq!(after(soon.clone(), 1, 2000), available);
    assert_eq!(after(soon, 1, 3000), expired);
    // Later than a day, which is how long one lasts that says nothing.
    let late = json!({"expires": "2027-01-17T08:00:00Z"});
    assert_eq!(after(late.clone(), 1, 2 * DAY - 2000), available);
    assert_eq!(after(late, 1, 2 * DAY), expired);
    // Years ago is over, however many.
    for long_ago in ["1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z"] {
        assert_eq!(after(json!({"expires": long_ago}), 1, 10), expired, "{long_ago}");
    }
}

#[test]
fn one_that_never_got_devices_expires_as_well() {
    assert_eq!(after(json!({"ttl": "10m"}), 0, 620), (Phase::Failed, "Expired".to_owned()));
}

#[test]
fn one_that_waits_for_pods_to_go_expires_as_well() {
    let mut world = World::new(&[1]);
    world.pod("old", "web", 1, "");
    world.schedule("old");
    world.reserve("r", wants_and(1, "web", json!({"preAllocation": true, "ttl": "10m"})));
    world.settle();
    assert_eq!(world.phase("r"), Phase::Waiting);
    world.settle_for(600);
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Failed, "Expired"));
    world.check_rest();
    assert_eq!(world.has("old"), ["a/gpu-0"], "who has it keeps it");
}

#[test]
fn all_that_are_over_are_deleted_after_a_day() {
    let mut world = World::new(&[1, 1, 1]);
    world.reserve("expired", wants_and(1, "web", json!({"ttl": "1m"})));
    world.settle();
    world.reserve("succeeded", wants_and(1, "web", json!({"ttl": "0"})));
    world.settle();
    let value = world.value("succeeded");
    world.pod("owner", "web", 1, &value);
    assert!(world.schedule("owner"));
    world.settle();
    world.reserve("lost", wants_and(1, "web", json!({"ttl": "0"})));
    world.settle();
    let node = world.get("lost").status.node_name.clone().unwrap();
    world.server.remove_node(&node);
    world.server.remove_slice(&node);
    world.settle();
    let over = [("expired", "Expired"), ("succeeded", "Succeeded"), ("lost", "NodeLost")];
    for (name, reason) in over {
        assert!(world.phase(name).is_over(), "{name}");
        assert_eq!(world.reason(name), reason);
    }
    world.settle_for(DAY - 900);
    assert_eq!(world.server.reservations.len(), over.len());
    world.settle_for(900);
    assert!(world.server.reservations.is_empty());
    world.check_rest();
}

#[test]
fn a_clock_that_jumps_expires_nothing_early() {
    for skew in [3 * 86_400, -3 * 86_400] {
        let mut world = World::new(&[1]);
        world.reserve("r", wants_and(1, "web", json!({"ttl": "10m"})));
        world.settle();
        world.skew = skew;
        world.settle_for(300);
        assert_eq!(world.phase("r"), Phase::Available, "{skew}");
        world.skew = 0;
        world.settle_for(600);
        assert_eq!(world.phase("r"), Phase::Failed, "{skew}");
    }
}

#[test]
fn a_new_leader_whose_clock_is_ahead_expires_and_deletes_nothing_early() {
    for is_silent in [false, true] {
        let mut world = World::new(&[1, 1]);
        world.reserve("over", wants_and(1, "web", json!({"ttl": "1m"})));
        world.settle();
        world.reserve("r", wants_and(1, "web", json!({"ttl": "10m"})));
        world.settle();
        assert_eq!((world.phase("over"), world.phase("r")), (Phase::Failed, Phase::Available));
        (world.is_silent, world.skew) = (is_silent, 3 * 86_400);
        world.restart();
        world.settle();
        assert_eq!(world.phase("r"), Phase::Available, "{is_silent}");
        assert!(world.server.reservations.contains_key("over"), "{is_silent}");
        let time = world.true_time();
        world.feed(HoldEvent::ServerTime(time));
        world.settle_for(600);
        assert_eq!(world.phase("r"), Phase::Failed, "{is_silent}");
    }
}

/// One step after the other, until one that is deleted is gone: as long as anything is closed for it, it is there.
fn goes_only_when_nothing_is_closed() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants_and(1, "web", json!({})));
    world.settle();
    let value = world.value("r");
    let is_closed = |world: &World| {
        let mut fences = world.server.node_fences["a"].fences.iter();
        fences.any(|fence| fence.value == value) || world.server.rules.values().any(|rule| rule.value == value)
    };
    assert!(is_closed(&world));
    world.server.delete_reservation("r");
    let is_there = |world: &World| world.server.reservations.contains_key("r");
    let mut was_open = false;
    while is_there(&world) {
        if !(world.deliver() || world.execute_next(0) || world.publish()) {
            let next = world.now + Duration::from_secs(1);
            world.tick(next);
        }
        was_open |= is_there(&world) && !is_closed(&world);
        assert!(is_there(&world) || !is_closed(&world), "it is gone, and its device is closed");
        world.check();
    }
    assert!(was_open, "first it is opened, then it goes");
    world.check_rest();
}

#[test]
fn one_that_is_deleted_goes_once_nothing_is_closed_for_it() {
    goes_only_when_nothing_is_closed();
    by_rules(goes_only_when_nothing_is_closed);
}
