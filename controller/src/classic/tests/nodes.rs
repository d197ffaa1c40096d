//! What claims have of nodes, and what becomes of it when nodes change.

use hostler_api::classic::ClassicVersion;
use serde_json::{Value, json};

use super::{
    objects::slice,
    parameters::{create_parameters, immediate, messages, reference},
    world::World,
};
use crate::testkit::Dice;

fn worlds() -> impl Iterator<Item = World> {
    ClassicVersion::ALL.into_iter().map(World::new)
}

fn keep_pods_away(world: &mut World, node: &str, spec: Value) {
    world.server.edit("nodes", "", node, false, |node| node["spec"] = spec).unwrap();
}

#[test]
fn an_immediate_claim_is_allocated_where_pods_can_run() {
    for mut world in super::parameters::worlds() {
        for node in ["cordoned", "lost", "open", "tainted"] {
            world.node(node, 1);
        }
        keep_pods_away(&mut world, "cordoned", json!({"unschedulable": true}));
        let taint = |key: &str| json!({"taints": [{"key": key, "effect": "NoSchedule"}]});
        keep_pods_away(&mut world, "lost", taint("node.kubernetes.io/unreachable"));
        keep_pods_away(&mut world, "tainted", taint("example.org/fpga"));
        let request = json!({"requests": [{"name": "r", "deviceClassName": "card.hostler.dev"}]});
        create_parameters(&mut world, "claimparameters", "p", request);
        for (claim, expected) in
            [("one", Some("open/card/card-0")), ("two", Some("tainted/card/card-0")), ("three", None)]
        {
            immediate(&mut world, claim, reference("ClaimParameters", "p"));
            world.settle();
            assert_eq!(world.devices(claim).map(|devices| devices[0].clone()).as_deref(), expected, "{claim}");
        }
        keep_pods_away(&mut world, "cordoned", json!({}));
        world.settle();
        assert_eq!(world.devices("three").unwrap(), ["cordoned/card/card-0"], "once pods can run there");
        world.check_rest();
    }
}

#[test]
fn the_grants_of_allocated_claims_come_back_with_a_node_hardware_that_was_deleted() {
    for mut world in worlds() {
        world.node("a", 2);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
        let grants = world.grants();
        assert_eq!(grants.len(), 1);
        for is_restarted in [false, true] {
            world.server.delete("nodehardware", "", "a");
            world.settle();
            world
                .server
                .create("nodehardware", json!({"metadata": {"name": "a"}, "spec": {"nodeName": "a"}, "status": {}}));
            world.cards("a", 2);
            if is_restarted {
                world.restart();
            }
            world.settle();
            assert_eq!(world.grants(), grants, "restarted: {is_restarted}");
        }
        world.check_rest();
    }
}

#[test]
fn a_grant_stays_while_its_pool_is_not_offered() {
    for mut world in worlds() {
        world.node("a", 2);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
        let grants = world.grants();
        world.hardware("a", json!([]), true);
        world.settle();
        world.pod("q", &["c"]);
        assert_eq!(world.run(&mut Dice::new(1)).len(), 2, "the claim changes");
        assert_eq!(world.grants(), grants);
        world.cards("a", 2);
        world.settle();
        assert_eq!(world.grants(), grants);
        world.check_rest();
    }
}

#[test]
fn a_device_that_a_selector_cannot_be_evaluated_on_counts_against_its_own_node_alone() {
    for mut world in worlds() {
        for node in ["a", "b"] {
            world.node(node, 0);
        }
        let card = |attributes: Value| json!({"name": "card-0", "attributes": attributes});
        let silent = card(json!({"kind": {"string": "card"}}));
        let model = card(json!({"kind": {"string": "card"}, "model": {"string": "x"}}));
        world.hardware("a", json!([slice("a", "card", vec![silent])]), true);
        let selector = json!({"cel": {"expression": "device.attributes['hostler.dev'].model == 'x'"}});
        let requests = json!([{"name": "r", "deviceClassName": "card", "selectors": [selector]}]);
        world.claim_for("c", json!({"requests": requests}));
        world.pod("p", &["c"]);
        world.context("p", None, &["a"]);
        world.settle();
        assert!(messages(&world)[0].contains("failed to evaluate"), "where no node will do: {:?}", messages(&world));
        world.hardware("b", json!([slice("b", "card", vec![model])]), true);
        world.context("p", None, &["a", "b"]);
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
        assert_eq!(world.devices("c").unwrap(), ["b/card/card-0"]);
        if !world.is_devices() {
            world.server.delete("pods", "default", "p");
            world.control();
            world.server.delete("resourceclaims", "default", "c");
            world.settle();
            immediate(&mut world, "now", reference("ClaimParameters", "c"));
            world.settle();
            assert_eq!(world.devices("now").unwrap(), ["b/card/card-0"]);
        }
        world.check_rest();
    }
}
