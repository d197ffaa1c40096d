//! Claims that take more work than there is for one pod.

use std::time::Duration;

use hostler_api::classic::ClassicVersion;
use serde_json::{Value, json};

use super::{
    objects::slice,
    parameters::messages,
    world::{DRIVER, World},
};
use crate::testkit::Dice;

/// A node of which each slot has several cards.
fn slotted_node(world: &mut World, name: &str, slots: usize) {
    let card = |at: usize| {
        let slot = format!("{name}-{}", at % slots);
        json!({"name": format!("card-{at}"), "attributes": {"kind": {"string": "card"}, "slot": {"string": slot}}})
    };
    world.node(name, 0);
    world.hardware(name, json!([slice(name, "card", (0..32).map(card).collect())]), true);
}

/// A claim for nine cards of nine slots: where there are eight, a search that goes on until it knows takes years.
fn pigeonhole() -> Value {
    let request = |at: usize| json!({"name": format!("r{at}"), "deviceClassName": "card", "count": 1});
    let requests: Vec<Value> = (0..9).map(request).collect();
    json!({"requests": requests, "constraints": [{"distinctAttribute": format!("{DRIVER}/slot")}]})
}

/// More nodes than the box of one pod has room for.
fn crowded_world(version: ClassicVersion) -> (World, Vec<String>) {
    let mut world = World::new(version);
    let nodes: Vec<String> = (0..64).map(|at| format!("n{at:02}")).collect();
    nodes.iter().for_each(|node| slotted_node(&mut world, node, 8));
    world.claim_for("hard", pigeonhole());
    world.pod("greedy", &["hard"]);
    (world, nodes)
}

fn ask(world: &mut World, selected: Option<&str>, nodes: &[String]) {
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    world.context("greedy", selected, &nodes);
}

/// Lets happen what is to happen within that time.
fn settle_for(world: &mut World, time: Duration) {
    let until = world.now + time;
    loop {
        if world.deliver() || world.execute_next(0) {
            continue;
        }
        let Some(wake) = world.controller.wake.filter(|wake| *wake <= until) else { break };
        world.tick(wake);
    }
    world.doze(until - world.now);
}

#[test]
fn claims_that_take_too_much_work_are_left_alone_for_a_while_and_others_have_their_turn() {
    for version in ClassicVersion::ALL {
        let (mut world, mut nodes) = crowded_world(version);
        ask(&mut world, None, &nodes);
        settle_for(&mut world, Duration::from_secs(1));
        assert_eq!(world.unsuitable("greedy", "hard").unwrap().len(), 64);
        // There is a node for it now, and everybody who waits is looked at.
        slotted_node(&mut world, "a", 9);
        nodes.push("a".to_owned());
        ask(&mut world, Some("a"), &nodes);
        settle_for(&mut world, Duration::from_secs(5));
        assert_eq!(world.devices("hard"), None, "it was cut short a moment ago");
        world.claim("honest", 1);
        world.pod("modest", &["honest"]);
        world.context("modest", Some("n00"), &["n00"]);
        settle_for(&mut world, Duration::from_secs(1));
        assert_eq!(world.devices("honest").map(|devices| devices.len()), Some(1));
        settle_for(&mut world, Duration::from_secs(10));
        assert_eq!(world.devices("hard").map(|devices| devices.len()), Some(9));
        assert_eq!(world.run(&mut Dice::new(1)).len(), 2);
        world.check_rest();
    }
}

#[test]
fn nodes_that_were_not_reached_are_told_as_such() {
    let (mut world, nodes) = crowded_world(ClassicVersion::V1Alpha2);
    ask(&mut world, None, &nodes);
    settle_for(&mut world, Duration::from_secs(1));
    // It was told of the others that they are unsuitable, so they are looked at first.
    slotted_node(&mut world, "z", 8);
    ask(&mut world, None, &["z".to_owned()]);
    settle_for(&mut world, Duration::from_secs(90));
    let told = "no node will do, not z: not decided: the claims take more work than there is for one pod";
    assert!(messages(&world).iter().any(|message| message.starts_with(told)), "{:?}", messages(&world));
}
