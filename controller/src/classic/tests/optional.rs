//! Devices that a claim can do without, and a claim that a pod names twice.

use std::collections::BTreeSet;

use hostler_api::classic::ClassicVersion;
use serde_json::{Value, json};

use super::world::World;
use crate::testkit::Dice;

fn worlds() -> impl Iterator<Item = World> {
    ClassicVersion::ALL.into_iter().map(World::new)
}

fn set(nodes: &[&str]) -> BTreeSet<String> {
    nodes.iter().map(|node| (*node).to_owned()).collect()
}

/// A claim for as many cards as there are, up to so many.
fn optional(world: &mut World, name: &str, cards: usize) {
    let request = json!({"name": "r", "deviceClassName": "card", "count": cards, "optional": true});
    world.claim_for(name, json!({"requests": [request]}));
}

/// Lets happen what happens at once.
fn answer(world: &mut World) {
    while world.hear_or_go_on() || world.execute_next(0) {}
}

#[test]
fn an_optional_device_is_no_requirement_where_the_node_that_has_it_cannot_be_used() {
    for is_cordoned in [false, true] {
        for mut world in worlds() {
            world.node("a", 1);
            world.node("b", 1);
            world.node("none", 0);
            world.claim("taken", 1);
            world.pod("first", &["taken"]);
            world.context("first", Some("b"), &["b"]);
            assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
            optional(&mut world, "c", 1);
            world.pod("p", &["c"]);
            world.context("p", None, &["a", "b", "none"]);
            answer(&mut world);
            assert_eq!(world.unsuitable("p", "c"), Some(set(&["b", "none"])), "a node with a card comes first");
            if is_cordoned {
                world.server.edit("nodes", "", "a", false, |it| it["spec"] = json!({"unschedulable": true})).unwrap();
            } else {
                world.server.edit("nodes", "", "a", true, |it| it["status"] = json!({"isFull": true})).unwrap();
            }
            if world.server.version == ClassicVersion::V1Alpha1 {
                // Its kubelets refuse a claim without devices.
                world.server.delete("pods", "default", "first");
                world.control();
            }
            assert!(world.run(&mut Dice::new(1)).contains("p"), "{:?}", world.server.version);
            world.check_rest();
        }
    }
}

#[test]
fn optional_devices_are_counted_one_by_one() {
    for mut world in worlds() {
        world.node("a", 1);
        world.node("b", 2);
        optional(&mut world, "c", 2);
        world.pod("p", &["c"]);
        world.context("p", None, &["a", "b"]);
        answer(&mut world);
        assert_eq!(world.unsuitable("p", "c"), Some(set(&["a"])), "two are more than one");
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
        assert_eq!(world.devices("c").unwrap(), ["b/card/card-0", "b/card/card-1"]);
        world.check_rest();
    }
}

#[test]
fn a_claim_of_optional_devices_alone_waits_where_kubelets_refuse_it_without_any() {
    for mut world in worlds() {
        let must_wait = world.server.version == ClassicVersion::V1Alpha1;
        world.node("a", 1);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
        optional(&mut world, "d", 2);
        world.pod("q", &["d"]);
        assert_eq!(world.run(&mut Dice::new(1)).contains("q"), !must_wait);
        assert_eq!(world.devices("d").is_none(), must_wait);
        if must_wait {
            let notice = world.notices.last().unwrap();
            assert!(notice.message.contains("kubelets before 1.28"), "{}", notice.message);
            world.server.delete("pods", "default", "p");
            world.control();
            world.settle();
            assert!(world.run(&mut Dice::new(1)).contains("q"), "a card is free again");
            assert_eq!(world.devices("d").unwrap(), ["a/card/card-0"]);
        }
        world.check_rest();
    }
}

#[test]
fn each_claim_that_must_have_a_device_gets_one_before_another_one_gets_more() {
    for mut world in worlds() {
        world.node("a", 2);
        optional(&mut world, "c", 3);
        optional(&mut world, "d", 2);
        world.pod("p", &["c", "d"]);
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
        let counts = ["c", "d"].map(|claim| world.devices(claim).unwrap().len());
        let expected = if world.server.version == ClassicVersion::V1Alpha1 { [1, 1] } else { [2, 0] };
        assert_eq!(counts, expected);
        world.check_rest();
    }
}

#[test]
fn a_claim_that_a_pod_names_twice_is_asked_for_once() {
    for mut world in worlds() {
        world.node("a", 1);
        world.claim("c", 1);
        world.pod("p", &["c", "c"]);
        let rename = |pod: &mut Value| pod["spec"]["resourceClaims"][1]["name"] = json!("again");
        world.server.edit("pods", "default", "p", false, rename).unwrap();
        world.context("p", None, &["a"]);
        world.settle();
        assert_eq!(world.unsuitable("p", "c"), Some(set(&[])));
        assert_eq!(world.unsuitable("p", "again"), Some(set(&[])));
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
        assert_eq!(world.devices("c").unwrap(), ["a/card/card-0"]);
        world.check_rest();
    }
}
