//! Quotas of the owners' namespace are counted before devices are promised.

use hostler_api::{ObjectKey, reservation::ReservationPhase as Phase};
use serde_json::json;

use super::world::{World, preempts, wants, wants_and};
use crate::hold::HoldEvent;

fn allow(world: &mut World, name: &str, devices: u32) {
    let hard = json!({format!("{name}"): devices.to_string()});
    let quota = serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).unwrap();
    world.server.facts.add_quota(ObjectKey::new("default", "q"), &quota);
    world.feed(HoldEvent::FactsChanged(world.server.facts.gains()));
}

const DEVICES: &str = "gpu.deviceclass.resource.k8s.io/devices";

#[test]
fn a_quota_is_counted_before_devices_are_promised_and_named_with_its_numbers() {
    let mut world = World::new(&[12]);
    allow(&mut world, DEVICES, 0);
    world.reserve("r", wants_and(2, "web", json!({"replicas": 2})));
    world.settle();
    let (reason, message) = world.condition("r", "Scheduled");
    assert_eq!((world.phase("r"), reason, world.held("r").len()), (Phase::Pending, "QuotaExceeded", 0));
    for said in ["ResourceQuota default/q", DEVICES, "hard 0", "used 0", "others 0", "4 are asked for"] {
        assert!(message.contains(said), "{message}");
    }
    world.check_rest();
    // It is noticed that more is allowed.
    allow(&mut world, DEVICES, 4);
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 4));
}

#[test]
fn reservations_of_one_namespace_share_its_quota_also_in_one_plan() {
    for name in [DEVICES, "count/resourceclaims.resource.k8s.io"] {
        let mut world = World::new(&[12]);
        allow(&mut world, name, 3);
        for (at, app) in ["web", "job"].into_iter().enumerate() {
            world.reserve(&format!("r{at}"), wants_and(1, app, json!({"replicas": 2})));
        }
        world.settle();
        assert_eq!((world.phase("r0"), world.phase("r1")), (Phase::Available, Phase::Pending));
        let message = world.condition("r1", "Scheduled").1;
        assert!(message.contains("hard 3, used 0, promised to others 2, and 2 are asked for"), "{message}");
        world.server.delete_reservation("r0");
        world.settle();
        assert_eq!(world.phase("r1"), Phase::Available);
    }
}

#[test]
fn what_owners_have_counts_once() {
    let mut world = World::new(&[4]);
    allow(&mut world, DEVICES, 2);
    world.reserve("r", wants_and(1, "web", json!({"replicas": 2, "allocateOnce": false})));
    world.settle();
    let value = world.value("r");
    world.pod("first", "web", 1, &value);
    assert!(world.schedule("first"));
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available);
    world.reserve("s", wants(1, "job"));
    world.settle();
    assert!(
        world.condition("s", "Scheduled").1.contains("used 1, promised to others 1"),
        "{:?}",
        world.condition("s", "Scheduled")
    );
}

#[test]
fn what_pods_that_make_room_have_counts_for_nothing() {
    let mut world = World::new(&[1]);
    allow(&mut world, DEVICES, 1);
    world.running("one", "db", 1, 0);
    world.reserve("r", preempts(1, "web"));
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available, "{:?}", world.condition("r", "Scheduled"));
}
