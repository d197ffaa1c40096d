//! What people are told of Reservations in Events: what is news, and nothing again and again.

use hostler_api::reservation::ReservationPhase as Phase;
use serde_json::json;

use super::world::{DRIVER, World, asks, wants};
use crate::hold::{HoldEvent, HoldEventNote};

/// Why there are no devices, as people were told.
fn lacks(world: &World) -> Vec<&HoldEventNote> {
    world.notices.iter().filter(|notice| notice.reason == "Unschedulable").collect()
}

#[test]
fn why_there_are_no_devices_is_told_once_however_often_its_numbers_change() {
    let mut world = World::new(&[1]);
    let template = |number: usize| json!(format!("later-{number}"));
    let mut spec = wants(1, "web");
    spec["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = template(0);
    world.reserve("r", spec);
    world.settle();
    let first = world.condition("r", "Scheduled").1.to_owned();
    assert_eq!(lacks(&world).iter().map(|it| &it.message).collect::<Vec<_>>(), [&first]);
    assert!(lacks(&world)[0].is_warning && first.contains("later-0"), "{first}");
    for number in 1..5 {
        world.change("r", |object| {
            let mut spec = serde_json::to_value(&object.spec).unwrap();
            spec["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = template(number);
            object.spec = serde_json::from_value(spec).unwrap();
        });
        world.settle();
        assert!(world.condition("r", "Scheduled").1.contains(&format!("later-{number}")), "it is in the status");
        if number == 3 {
            world.restart();
        }
    }
    assert_eq!(lacks(&world).len(), 1, "and who leads next says it no second time: {:?}", world.notices);
}

#[test]
fn too_few_devices_are_said_to_be_too_few_and_told_once() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants(2, "web"));
    world.settle();
    for node in ["b", "c"] {
        world.node(node, DRIVER, 1);
        world.settle();
    }
    let words: Vec<&str> = lacks(&world).iter().map(|it| &*it.message).collect();
    assert_eq!(words, ["claim default/gpus, request r: not enough devices"]);
}

#[test]
fn another_reason_is_told_and_after_devices_were_there_so_is_the_same_one() {
    let mut world = World::new(&[1]);
    let mut spec = wants(1, "web");
    spec["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = json!("later");
    world.reserve("r", spec);
    world.settle();
    assert!(lacks(&world).len() == 1 && lacks(&world)[0].message.contains("later"), "{:?}", world.notices);
    let key = super::cluster::key("later");
    world.server.facts.add_template(key, serde_json::from_value(asks(1)).unwrap());
    world.edit_device("a", "gpu-0", |device| device.is_usable = false);
    world.feed(HoldEvent::FactsChanged(u64::MAX));
    world.settle();
    assert_eq!(lacks(&world).len(), 2, "{:?}", world.notices);
    for round in 1..3 {
        world.edit_device("a", "gpu-0", |device| device.is_usable = true);
        world.settle();
        assert_eq!(world.phase("r"), Phase::Available);
        let available =
            world.notices.iter().filter(|notice| notice.reason == "Available" && !notice.is_warning).count();
        assert_eq!(available, round);
        world.edit_device("a", "gpu-0", |device| device.is_usable = false);
        world.settle();
    }
}
