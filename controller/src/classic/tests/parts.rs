//! What the allocator brings with it: parts of devices, devices that lie together, and several claims on one node.

use hostler_api::classic::ClassicVersion;
use serde_json::{Value, json};

use super::{
    objects::{cpus, memory, slice},
    world::World,
};
use crate::testkit::Dice;

/// A request for some CPUs.
fn some_cpus(amount: &str) -> Value {
    json!({"name": "cpus", "deviceClassName": "cpu", "capacity": {"requests": {"cpus": amount}}})
}

fn card(name: &str, numa_node: i64) -> Value {
    json!({"name": name, "attributes": {"kind": {"string": "card"}, "numa": {"int": numa_node}}})
}

#[test]
fn parts_of_a_device_are_given_to_several_claims_and_never_more_than_there_is() {
    for version in ClassicVersion::ALL {
        let mut world = World::new(version);
        world.node("a", 0);
        world.hardware("a", json!([slice("a", "cpu", vec![cpus("numa-0", 0)])]), true);
        for (name, amount) in [("c", "5"), ("d", "2"), ("e", "2")] {
            world.claim_for(name, json!({"requests": [some_cpus(amount)]}));
            world.pod(name, &[name]);
        }
        assert_eq!(world.run(&mut Dice::new(1)).len(), 2);
        let taken = |world: &World| ["c", "d", "e"].iter().filter(|name| world.devices(name).is_some()).count();
        assert_eq!(taken(&world), 2);
        world.restart();
        world.settle();
        assert_eq!(world.run(&mut Dice::new(1)).len(), 2, "what is held is known after a restart");
        world.server.delete("pods", "default", "c");
        assert_eq!(world.run(&mut Dice::new(1)).len(), 2);
        assert!(world.devices("c").is_none() && world.devices("e").is_some());
        world.check_rest();
    }
}

#[test]
fn parts_of_memory_are_given_in_steps_and_never_more_than_there_is() {
    let some_memory = |amount: &str| json!({"name": "memory", "deviceClassName": "memory", "capacity": {"requests": {"memory": amount}}});
    for version in ClassicVersion::ALL {
        let mut world = World::new(version);
        world.node("a", 0);
        world.hardware("a", json!([slice("a", "memory", vec![memory("numa-0", 0), memory("numa-1", 1)])]), true);
        // A sum of 30 GiB of 32, and yet the last one fits on no node: of each, 14 GiB are taken.
        for (name, amount) in [("c", "13Gi"), ("d", "14336Mi"), ("e", "3Gi")] {
            world.claim_for(name, json!({"requests": [some_memory(amount)]}));
            world.pod(name, &[name]);
            world.run(&mut Dice::new(1));
        }
        let consumed = |world: &World, name: &str| {
            let claim = world.dialect.claim(world.get_claim(name).unwrap()).unwrap();
            let devices = claim.allocation.map(|it| it.devices.unwrap()).unwrap_or_default();
            serde_json::to_value(devices).unwrap()[0]["consumedCapacity"]["memory"].clone()
        };
        assert_eq!((consumed(&world, "c"), consumed(&world, "d")), (json!("14Gi"), json!("14Gi")));
        assert!(world.devices("e").is_none());
        let grants = world.server.get("nodehardware", "", "a").unwrap()["spec"]["claims"].to_string();
        assert_eq!(grants.matches("\"memory\":\"14Gi\"").count(), 2, "{grants}");
        world.restart();
        world.settle();
        assert!(world.devices("e").is_none(), "what is held is known after a restart");
        world.server.delete("pods", "default", "c");
        world.run(&mut Dice::new(1));
        assert_eq!(consumed(&world, "e"), json!("4Gi"));
        world.check_rest();
    }
}

#[test]
fn devices_of_a_claim_are_on_one_numa_node_where_it_says_so() {
    for version in ClassicVersion::ALL {
        let mut world = World::new(version);
        for node in ["a", "b"] {
            world.node(node, 0);
        }
        // On a there are a card and free CPUs, but not together.
        let halves = |node: &str, of_card: i64| {
            let cpus = slice(node, "cpu", vec![cpus("numa-0", 0), cpus("numa-1", 1)]);
            json!([cpus, slice(node, "card", vec![card("card-0", of_card)])])
        };
        world.hardware(
            "a",
            json!([slice("a", "cpu", vec![cpus("numa-0", 0)]), slice("a", "card", vec![card("far", 1)])]),
            true,
        );
        world.hardware("b", halves("b", 1), true);
        let requests = json!([some_cpus("6"), {"name": "card", "deviceClassName": "card"}]);
        let constraints = json!([{"requests": ["cpus", "card"], "matchAttribute": "hostler.dev/numa"}]);
        world.claim_for("c", json!({"requests": requests, "constraints": constraints}));
        world.pod("p", &["c"]);
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
        assert_eq!(world.devices("c").unwrap(), ["b/cpu/numa-1", "b/card/card-0"]);
        world.check_rest();
    }
}

#[test]
fn all_claims_of_a_pod_are_had_on_one_node_or_none_is() {
    for version in ClassicVersion::ALL {
        let mut world = World::new(version);
        for (node, slices) in [
            ("a", json!([slice("a", "cpu", vec![cpus("numa-0", 0)])])),
            ("b", json!([slice("b", "card", vec![card("card-0", 0)])])),
        ] {
            world.node(node, 0);
            world.hardware(node, slices, true);
        }
        world.claim_for("c", json!({"requests": [some_cpus("2")]}));
        world.claim("d", 1);
        world.pod("p", &["c", "d"]);
        world.context("p", None, &["a", "b"]);
        world.settle();
        assert!(world.run(&mut Dice::new(2)).is_empty());
        assert!(world.devices("c").is_none() && world.devices("d").is_none());
        world.node("both", 0);
        let both =
            json!([slice("both", "cpu", vec![cpus("numa-0", 0)]), slice("both", "card", vec![card("card-0", 0)])]);
        world.hardware("both", both, true);
        world.settle();
        assert_eq!(world.run(&mut Dice::new(2)).len(), 1);
        assert_eq!(world.devices("c").unwrap(), ["both/cpu/numa-0"]);
        assert_eq!(world.devices("d").unwrap(), ["both/card/card-0"]);
        world.check_rest();
    }
}
