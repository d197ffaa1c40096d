//! Labels of nodes that a class names in its `suitableNodes`.

use hostler_api::classic::ClassicVersion;
use serde_json::{Value, json};

use super::{super::event::ClassicWrite, world::World};
use crate::testkit::Dice;

const LABEL: &str = "hostler.dev/cards";

/// A class that suits nodes with this label only.
fn labelled(world: &mut World, label: &str) {
    let term = json!({"matchExpressions": [{"key": label, "operator": "In", "values": ["true"]}]});
    world.class("labelled", "card", json!({"suitableNodes": {"nodeSelectorTerms": [term]}}));
    if !world.is_devices() {
        let expression = "device.attributes['hostler.dev'].kind == 'card'";
        let selectors = json!([{"cel": {"expression": expression}}]);
        world
            .server
            .create("classparameters", json!({"metadata": {"name": "cards"}, "spec": {"selectors": selectors}}));
        let reference = json!({"apiGroup": "hostler.dev", "kind": "ClassParameters", "name": "cards"});
        world.server.edit("resourceclasses", "", "labelled", false, |it| it["parametersRef"] = reference).unwrap();
    }
}

fn label(world: &World, node: &str) -> Option<String> {
    world.server.get("nodes", "", node)?["metadata"]["labels"][LABEL].as_str().map(str::to_owned)
}

#[test]
fn nodes_are_labelled_as_long_as_they_have_devices_of_the_class() {
    for version in ClassicVersion::ALL {
        let mut world = World::new(version);
        labelled(&mut world, LABEL);
        world.node("a", 0);
        world.node("b", 1);
        let wrong = |node: &mut Value| node["metadata"]["labels"][LABEL] = json!("true");
        world.server.edit("nodes", "", "a", false, wrong).unwrap();
        world.settle();
        assert_eq!((label(&world, "a"), label(&world, "b").as_deref()), (None, Some("true")));
        world.claim_of_class("c", "labelled");
        world.pod("p", &["c"]);
        assert_eq!(world.run(&mut Dice::new(2)).len(), 1);
        assert_eq!(world.devices("c").unwrap(), ["b/card/card-0"]);
        assert_eq!(label(&world, "b").as_deref(), Some("true"), "it is there, if not free");
        world.cards("a", 1);
        world.settle();
        assert_eq!(label(&world, "a").as_deref(), Some("true"));
        world.hardware("a", json!([]), false);
        world.settle();
        assert_eq!(label(&world, "a").as_deref(), Some("true"), "what cannot be relied on changes nothing");
        world.hardware("a", json!([]), true);
        world.settle();
        assert_eq!(label(&world, "a"), None);
        assert_eq!(world.server.get("nodes", "", "a").unwrap()["metadata"]["labels"]["kubernetes.io/hostname"], "a");
        world.check_rest();
    }
}

#[test]
fn labels_of_a_class_that_was_deleted_go_and_no_others() {
    for version in ClassicVersion::ALL {
        for is_restarted in [false, true] {
            let mut world = World::new(version);
            labelled(&mut world, LABEL);
            world.node("a", 1);
            world.node("b", 0);
            let theirs = |node: &mut Value| node["metadata"]["labels"]["hostler.dev/rack"] = json!("true");
            world.server.edit("nodes", "", "a", false, theirs).unwrap();
            world.settle();
            assert_eq!(label(&world, "a").as_deref(), Some("true"));
            world.server.delete(if world.is_devices() { "deviceclasses" } else { "resourceclasses" }, "", "labelled");
            if is_restarted {
                world.restart();
            }
            world.settle();
            assert_eq!(label(&world, "a"), None);
            let labels = &world.server.get("nodes", "", "a").unwrap()["metadata"]["labels"];
            assert_eq!(labels["hostler.dev/rack"], "true", "somebody else wrote it");
            world.check_rest();
        }
    }
}

#[test]
fn labels_of_others_are_left_alone() {
    for version in ClassicVersion::ALL {
        let mut world = World::new(version);
        labelled(&mut world, "other.example/cards");
        world.node("a", 1);
        world.settle();
        let is_label = |write: &ClassicWrite| matches!(write, ClassicWrite::Labels { .. });
        assert!(!world.writes.iter().any(is_label));
    }
}
