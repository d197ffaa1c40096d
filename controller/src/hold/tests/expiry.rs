//! When Reservations end, and what is left of them.

use std::time::Duration;

use hostler_api::reservation::ReservationPhase as Phase;
use serde_json::json;

use super::world::{World, wants_and};
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
    let mut world = World::new(&[1, 1]);
    world.reserve("expired", wants_and(1, "web", json!({"ttl": "1m"})));
    world.settle();
    world.reserve("succeeded", wants_and(1, "web", json!({"ttl": "0"})));
    world.settle();
    let value = world.value("succeeded");
    world.pod("owner", "web", 1, &value);
    assert!(world.schedule("owner"));
    world.settle();
    assert_eq!((world.phase("expired"), world.phase("succeeded")), (Phase::Failed, Phase::Succeeded));
    world.settle_for(DAY - 600);
    assert_eq!(world.server.reservations.len(), 2);
    world.settle_for(600);
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

#[test]
fn one_that_is_deleted_goes_once_nothing_is_closed_for_it() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants_and(1, "web", json!({})));
    world.settle();
    let value = world.value("r");
    world.server.delete_reservation("r");
    while world.server.reservations.contains_key("r") {
        let is_closed = world.server.node_fences["a"].fences.iter().any(|fence| fence.value == value);
        assert!(is_closed || !world.server.reservations.is_empty());
        let is_done = world.deliver() || world.execute_next(0) || world.publish();
        if !is_done {
            let next = world.now + Duration::from_secs(1);
            world.tick(next);
        }
        world.check();
    }
    world.check_rest();
}
