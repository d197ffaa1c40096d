//! What the helper library that classic controllers were made of got wrong. docs/classic-dra.md has the whole list; what is
//! a scenario of its own is tested there.

use std::time::Duration;

use hostler_api::classic::ClassicVersion;
use serde_json::{Value, json};

use super::{
    super::event::{ClassicCommand, ClassicWrite},
    server::finalizers,
    world::World,
};

#[test]
fn an_allocation_that_fails_leaves_no_finalizer_and_no_grant_behind() {
    for version in ClassicVersion::ALL {
        let mut world = World::new(version);
        world.node("a", 1);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.refuse("c", "a");
        world.context("p", Some("a"), &["a"]);
        world.settle();
        assert!(world.writes.iter().any(|write| matches!(write, ClassicWrite::Allocation(..))));
        assert!(finalizers(world.get_claim("c").unwrap()).is_empty() && world.grants().is_empty());
        world.server.delete("resourceclaims", "default", "c");
        assert!(world.get_claim("c").is_none(), "it goes at once");
    }
}

#[test]
fn what_is_said_already_in_another_order_is_not_written_again() {
    for version in ClassicVersion::ALL {
        let mut world = World::new(version);
        let nodes = ["a", "b", "d"];
        nodes.iter().for_each(|node| world.node(node, 0));
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", None, &nodes);
        world.settle();
        assert_eq!(world.writes.len(), 1);
        let turn =
            |context: &mut Value| context["status"]["resourceClaims"][0]["unsuitableNodes"] = json!(["d", "b", "a"]);
        let contexts = world.contexts();
        world.server.edit(contexts, "default", "p", true, turn).unwrap();
        world.context("p", None, &["d", "a", "b"]);
        world.settle();
        world.restart();
        world.settle();
        assert_eq!(world.writes.len(), 1);
    }
}

#[test]
fn while_nothing_changes_nobody_is_asked_and_nothing_is_written() {
    for version in ClassicVersion::ALL {
        let mut world = World::new(version);
        world.node("a", 0);
        for name in ["c", "d"] {
            world.claim(name, 1);
            world.pod(name, &[name]);
            world.context(name, None, &["a"]);
        }
        world.settle();
        assert_eq!((world.writes.len(), world.controller.wake), (2, None));
        for minute in 1..60 {
            world.tick(Duration::from_secs(60 * minute));
            assert!(world.controller.commands.is_empty() && world.controller.wake.is_none());
        }
        world.cards("a", 2);
        world.settle();
        assert_eq!(world.writes.len(), 4, "what changed is answered");
    }
}

#[test]
fn a_write_that_is_never_answered_holds_nobody_else_up() {
    for version in ClassicVersion::ALL {
        let mut world = World::new(version);
        world.node("a", 3);
        for name in ["c", "d"] {
            world.claim(name, 1);
            world.pod(name, &[name]);
        }
        world.context("c", Some("a"), &["a"]);
        while world.hear_or_go_on()
            || matches!(world.controller.commands.front(), Some(ClassicCommand::FetchPod(_))) && world.execute_next(0)
        {
        }
        let lost = world.controller.commands.pop_front().unwrap();
        assert!(matches!(lost, ClassicCommand::Write(ClassicWrite::Finalizers(..))), "{lost:?}");
        world.context("d", Some("a"), &["a"]);
        world.settle();
        assert!(world.devices("c").is_none());
        assert_eq!(world.devices("d").unwrap(), ["a/card/card-1"]);
    }
}
