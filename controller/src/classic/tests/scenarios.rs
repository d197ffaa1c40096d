//! Single behaviours, on every version of the API where it matters.

use std::{collections::BTreeSet, time::Duration};

use hostler_api::classic::ClassicVersion;
use serde_json::{Value, json};

use super::{
    super::event::{ClassicCommand, ClassicEvent, ClassicWrite},
    server::finalizers,
    world::{DRIVER, FINALIZER, World},
};
use crate::testkit::{Dice, Fate};

/// One world for each version.
fn worlds() -> impl Iterator<Item = World> {
    ClassicVersion::ALL.into_iter().map(World::new)
}

fn set(nodes: &[&str]) -> BTreeSet<String> {
    nodes.iter().map(|node| (*node).to_owned()).collect()
}

fn consumers(world: &World, claim: &str) -> Vec<String> {
    let list = world.get_claim(claim).unwrap()["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    list.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

fn request_deallocation(world: &mut World, claim: &str) {
    let change = |object: &mut Value| {
        object["status"]["reservedFor"] = Value::Null;
        object["status"]["deallocationRequested"] = json!(true);
    };
    world.server.edit("resourceclaims", "default", claim, true, change).unwrap();
}

/// A claim with one card on node `a`, for a pod that is bound there.
fn allocated(world: &mut World) {
    world.node("a", 2);
    world.claim("c", 1);
    world.pod("p", &["c"]);
    assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
    assert_eq!(world.devices("c").unwrap(), ["a/card/card-0"]);
}

#[test]
fn what_is_not_ours_is_never_touched() {
    for mut world in worlds() {
        world.node("a", 1);
        let spec = if world.is_devices() {
            json!({"controller": "other.example", "devices": {"requests": [{"name": "r", "deviceClassName": "card"}]}})
        } else {
            world
                .server
                .create("resourceclasses", json!({"metadata": {"name": "other"}, "driverName": "other.example"}));
            json!({"resourceClassName": "other"})
        };
        let meta = json!({"name": "c", "namespace": "default", "finalizers": ["other.example/deletion-protection"]});
        world.server.create("resourceclaims", json!({"metadata": meta, "spec": spec}));
        world.pod("p", &["c", "missing"]);
        world.context("p", Some("a"), &["a"]);
        world.settle();
        world.server.delete("resourceclaims", "default", "c");
        world.settle();
        assert!(world.writes.is_empty(), "{:?}", world.writes);
        assert_eq!(finalizers(world.get_claim("c").unwrap()), ["other.example/deletion-protection"]);
    }
}

#[test]
fn what_others_allocated_and_who_else_keeps_a_claim_is_left_alone() {
    for mut world in worlds() {
        world.node("a", 1);
        world.claim("c", 1);
        let keep = |object: &mut Value| object["metadata"]["finalizers"] = json!(["example.com/keep"]);
        world.server.edit("resourceclaims", "default", "c", false, keep).unwrap();
        let results = json!([{"request": "cards", "driver": "other.example", "pool": "p", "device": "d"}]);
        let theirs = match world.server.version {
            ClassicVersion::V1Alpha3 => json!({"allocation": {"devices": {"results": results}}}),
            ClassicVersion::V1Alpha2 => json!({"driverName": "other.example",
                "allocation": {"resourceHandles": [{"driverName": "other.example", "data": "theirs"}]}}),
            ClassicVersion::V1Alpha1 => {
                json!({"driverName": "other.example", "allocation": {"resourceHandle": "theirs"}})
            }
        };
        world.server.edit("resourceclaims", "default", "c", true, |object| object["status"] = theirs).unwrap();
        world.pod("p", &["c"]);
        world.context("p", Some("a"), &["a"]);
        world.settle();
        request_deallocation(&mut world, "c");
        world.server.delete("resourceclaims", "default", "c");
        world.settle();
        assert!(world.writes.is_empty() && world.notices.is_empty(), "{:?}", world.writes);
    }
}

#[test]
fn finalizers_of_others_stay() {
    for mut world in worlds() {
        world.node("a", 1);
        world.claim("c", 1);
        let keep = |object: &mut Value| object["metadata"]["finalizers"] = json!(["example.com/keep"]);
        world.server.edit("resourceclaims", "default", "c", false, keep).unwrap();
        world.pod("p", &["c"]);
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
        assert_eq!(finalizers(world.get_claim("c").unwrap()), ["example.com/keep", FINALIZER]);
        world.server.delete("pods", "default", "p");
        world.control();
        world.settle();
        assert_eq!(finalizers(world.get_claim("c").unwrap()), ["example.com/keep"]);
    }
}

#[test]
fn a_deleted_claim_is_taken_back_whichever_write_fails_once() {
    for version in ClassicVersion::ALL {
        for (at, fate) in
            (0..3).flat_map(|at| [Fate::Conflict, Fate::FailBefore, Fate::FailAfter].map(|fate| (at, fate)))
        {
            let mut world = World::new(version);
            allocated(&mut world);
            world.server.delete("pods", "default", "p");
            world
                .server
                .edit("resourceclaims", "default", "c", true, |it| it["status"]["reservedFor"] = Value::Null)
                .unwrap();
            world.server.delete("resourceclaims", "default", "c");
            world.fates.plan(at, fate);
            world.settle();
            assert!(world.get_claim("c").is_none(), "write {at} {fate:?}");
            assert!(world.grants().is_empty());
            world.check_rest();
        }
    }
}

#[test]
fn allocation_and_request_are_cleared_in_one_write_and_the_finalizer_after_that() {
    for mut world in worlds() {
        allocated(&mut world);
        let before = world.writes.len();
        request_deallocation(&mut world, "c");
        world.settle();
        let kinds: Vec<&ClassicWrite> = world.writes[before..].iter().collect();
        assert!(
            matches!(
                kinds[..],
                [ClassicWrite::Deallocation(_), ClassicWrite::Finalizers(..), ClassicWrite::Grants { .. }]
            ),
            "{kinds:?}"
        );
        let claim = world.get_claim("c").unwrap();
        assert!(claim["status"]["allocation"].is_null() && claim["status"]["deallocationRequested"].is_null());
        assert!(finalizers(claim).is_empty());
        world.check_rest();
    }
}

#[test]
fn a_request_to_take_back_what_is_still_in_flight_stops_it() {
    for mut world in worlds() {
        world.node("a", 1);
        world.claim("c", 1);
        let mark = |object: &mut Value| object["metadata"]["finalizers"] = json!([FINALIZER, "other/keep"]);
        world.server.edit("resourceclaims", "default", "c", false, mark).unwrap();
        let id = super::server::id("resourceclaims", "default", "c");
        world.server.objects.get_mut(&id).unwrap().json["status"]["deallocationRequested"] = json!(true);
        world.restart();
        world.settle();
        let claim = world.get_claim("c").unwrap();
        assert!(claim["status"]["deallocationRequested"].is_null());
        assert_eq!(finalizers(claim), ["other/keep"]);
    }
}

#[test]
fn a_claim_that_somebody_uses_is_left_alone_even_if_it_is_deleted() {
    for mut world in worlds() {
        allocated(&mut world);
        let before = world.writes.len();
        world.server.delete("resourceclaims", "default", "c");
        world.settle();
        assert_eq!(world.writes.len(), before);
        world.server.delete("pods", "default", "p");
        world.control();
        world.settle();
        assert!(world.get_claim("c").is_none());
        world.check_rest();
    }
}

#[test]
fn negotiations_of_pods_that_are_not_theirs_are_ignored() {
    for mut world in worlds() {
        world.node("a", 1);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", Some("a"), &["a"]);
        world.server.delete("pods", "default", "p");
        world.settle();
        world.pod("p", &["c"]);
        world.settle();
        let contexts = world.contexts();
        world.server.edit(contexts, "default", "p", false, |it| it["spec"]["potentialNodes"] = json!(["b"])).unwrap();
        world.settle();
        assert!(world.writes.is_empty(), "{:?}", world.writes);
    }
}

#[test]
fn a_negotiation_that_asks_nothing_is_not_answered() {
    for mut world in worlds() {
        world.node("a", 1);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", None, &[]);
        world.settle();
        assert!(world.writes.is_empty());
        assert!(world.controller.commands.is_empty());
    }
}

#[test]
fn every_waiting_claim_gets_an_entry_even_an_empty_one() {
    for mut world in worlds() {
        world.node("a", 2);
        world.node("b", 1);
        world.claim("one", 1);
        world.claim("two", 2);
        world.pod("p", &["one", "two"]);
        world.pod("q", &["one"]);
        world.context("p", None, &["a", "b"]);
        world.context("q", None, &["a", "b"]);
        world.settle();
        let (one, two) = (world.unsuitable("p", "one").unwrap(), world.unsuitable("p", "two").unwrap());
        assert_eq!(&one | &two, set(&["a", "b"]), "together they are too much for both");
        assert_eq!(world.unsuitable("q", "one"), Some(set(&[])));
        assert_eq!(world.writes.len(), 2);
        world.check_rest();
    }
}

#[test]
fn a_good_selected_node_gets_finalizer_grant_and_allocation_with_the_pod_in_it() {
    for mut world in worlds() {
        world.node("a", 1);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", Some("a"), &["a"]);
        world.settle();
        assert!(
            matches!(
                world.writes[..],
                [ClassicWrite::Finalizers(..), ClassicWrite::Grants { .. }, ClassicWrite::Allocation(..)]
            ),
            "{:?}",
            world.writes
        );
        assert_eq!(consumers(&world, "c"), ["p"]);
        assert_eq!(world.devices("c").unwrap(), ["a/card/card-0"]);
        assert_eq!(world.grants().len(), 1);
        world.check_rest();
    }
}

#[test]
fn a_selected_node_is_checked_though_it_is_not_among_the_potential_ones() {
    for mut world in worlds() {
        world.node("a", 0);
        world.node("b", 1);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", Some("b"), &["a"]);
        world.settle();
        assert_eq!(world.devices("c").unwrap(), ["b/card/card-0"]);
    }
}

#[test]
fn a_bad_selected_node_is_told_and_nothing_is_allocated() {
    for mut world in worlds() {
        world.node("a", 0);
        world.node("b", 1);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", Some("a"), &["a", "b"]);
        world.settle();
        assert_eq!(world.unsuitable("p", "c"), Some(set(&["a"])));
        assert_eq!(world.writes.len(), 1);
        assert!(finalizers(world.get_claim("c").unwrap()).is_empty());
    }
}

#[test]
fn earlier_unsuitable_nodes_stay_until_they_are_good_again() {
    for mut world in worlds() {
        for (node, cards) in [("a", 0), ("b", 0), ("d", 1)] {
            world.node(node, cards);
        }
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", None, &["a", "d"]);
        world.settle();
        assert_eq!(world.unsuitable("p", "c"), Some(set(&["a"])));
        world.context("p", None, &["b", "d"]);
        world.settle();
        assert_eq!(world.unsuitable("p", "c"), Some(set(&["a", "b"])));
        world.cards("a", 1);
        world.settle();
        assert_eq!(world.unsuitable("p", "c"), Some(set(&["b"])));
        world.server.delete("nodehardware", "", "d");
        world.settle();
        assert_eq!(world.unsuitable("p", "c"), Some(set(&["b", "d"])));
    }
}

#[test]
fn of_too_many_nodes_the_selected_one_is_kept_then_potential_then_earlier_ones() {
    let mut world = World::new(ClassicVersion::V1Alpha3);
    let names: Vec<String> = (0..300).map(|at| format!("n{at:03}")).collect();
    names.iter().for_each(|name| world.node(name, 0));
    world.claim("c", 1);
    world.pod("p", &["c"]);
    let first: Vec<&str> = names[..100].iter().map(String::as_str).collect();
    world.context("p", None, &first);
    world.settle();
    let second: Vec<&str> = names[200..300].iter().map(String::as_str).collect();
    world.context("p", Some("n150"), &second);
    world.settle();
    let told = world.unsuitable("p", "c").unwrap();
    assert_eq!(told.len(), 128);
    assert!(told.contains("n150") && second.iter().all(|node| told.contains(*node)));
    assert_eq!(told.iter().filter(|node| first.contains(&node.as_str())).count(), 27);
    world.check_rest();
}

#[test]
fn if_the_second_claim_of_a_pod_fails_the_first_is_taken_back_and_another_node_works() {
    for mut world in worlds() {
        world.node("a", 2);
        world.claim("one", 1);
        world.claim("two", 1);
        world.pod("p", &["one", "two"]);
        world.schedule("p", &mut Dice::new(3));
        world.settle();
        world.schedule("p", &mut Dice::new(3));
        world.refuse("two", "a");
        world.settle();
        assert!(world.devices("one").is_some() && world.devices("two").is_none());
        assert_eq!(world.unsuitable("p", "two"), Some(set(&["a"])));
        world.node("b", 2);
        assert_eq!(world.run(&mut Dice::new(3)).len(), 1);
        assert!(
            world.devices("one").unwrap()[0].starts_with("b/") && world.devices("two").unwrap()[0].starts_with("b/")
        );
        world.check_rest();
    }
}

#[test]
fn if_the_other_drivers_claim_fails_ours_is_taken_back_exactly_once() {
    let mut world = World::new(ClassicVersion::V1Alpha3);
    world.node("a", 1);
    world.node("b", 1);
    world.claim("ours", 1);
    let devices = json!({"requests": [{"name": "r", "deviceClassName": "card"}]});
    world.claim_of("theirs", json!({"controller": "other.example", "devices": devices}));
    world.pod("p", &["ours", "theirs"]);
    world.context("p", Some("a"), &["a"]);
    world.settle();
    assert!(world.devices("ours").is_some());
    let theirs = |it: &mut Value| {
        let mut entries = it["status"]["resourceClaims"].as_array().cloned().unwrap_or_default();
        entries.push(json!({"name": "theirs", "unsuitableNodes": ["a"]}));
        it["status"]["resourceClaims"] = json!(entries);
    };
    world.server.edit("podschedulingcontexts", "default", "p", true, theirs).unwrap();
    // The selected node is cleared first, then ours is to go.
    for _ in 0..2 {
        world.schedule("p", &mut Dice::new(1));
        world.settle();
    }
    assert!(world.devices("ours").is_none());
    let deallocations = world.writes.iter().filter(|write| matches!(write, ClassicWrite::Deallocation(_)));
    assert_eq!(deallocations.count(), 1);
    assert!(world.unsuitable("p", "theirs").is_some(), "entries of others stay");
}

#[test]
fn a_claim_that_two_pods_want_on_different_nodes_is_allocated_once_and_shared() {
    for mut world in worlds() {
        world.node("a", 1);
        world.node("b", 1);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.pod("q", &["c"]);
        world.context("p", Some("a"), &["a", "b"]);
        world.context("q", Some("b"), &["a", "b"]);
        world.settle();
        let allocations = world.writes.iter().filter(|write| matches!(write, ClassicWrite::Allocation(..)));
        assert_eq!(allocations.count(), 1);
        assert_eq!(world.run(&mut Dice::new(5)).len(), 2);
        let mut both = consumers(&world, "c");
        both.sort();
        assert_eq!(both, ["p", "q"]);
        world.check_rest();
    }
}

#[test]
fn a_pod_that_is_on_its_node_already_is_served() {
    for mut world in worlds() {
        world.node("a", 1);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.server.edit("pods", "default", "p", false, |pod| pod["spec"]["nodeName"] = json!("a")).unwrap();
        world.control();
        world.settle();
        assert_eq!(world.devices("c").unwrap(), ["a/card/card-0"]);
        assert_eq!(consumers(&world, "c"), ["p"]);
    }
}

#[test]
fn reserving_can_be_left_to_the_scheduler() {
    for version in ClassicVersion::ALL {
        let mut world = World::new(version);
        world.settings.reserves_for_pods = false;
        world.restart();
        world.node("a", 1);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", Some("a"), &["a"]);
        world.settle();
        assert!(world.devices("c").is_some() && consumers(&world, "c").is_empty());
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
        assert_eq!(consumers(&world, "c"), ["p"]);
    }
}

#[test]
fn a_claim_that_is_deleted_while_it_is_allocated_goes_at_any_moment() {
    for version in ClassicVersion::ALL {
        for steps in 0..12 {
            let mut world = World::new(version);
            world.node("a", 1);
            world.claim("c", 1);
            world.pod("p", &["c"]);
            world.context("p", Some("a"), &["a"]);
            while world.hear_or_go_on() {}
            for _ in 0..steps {
                let _ = world.execute_next(0) || world.deliver();
            }
            world.server.delete("resourceclaims", "default", "c");
            world.settle();
            world.server.delete("pods", "default", "p");
            world.control();
            world.settle();
            assert!(world.get_claim("c").is_none(), "after {steps} steps");
            assert!(world.grants().is_empty());
            world.check_rest();
        }
    }
}

#[test]
fn others_that_write_the_same_objects_all_the_time_delay_and_spoil_nothing() {
    for version in ClassicVersion::ALL {
        let mut world = World::new(version);
        for at in (0..60).filter(|at| at % 3 != 2) {
            world.fates.plan(at, Fate::Conflict);
        }
        world.node("a", 2);
        world.claim("c", 1);
        world.claim("d", 1);
        world.pod("p", &["c", "d"]);
        assert_eq!(world.run(&mut Dice::new(9)).len(), 1);
        assert!(world.notices.is_empty(), "{:?}", world.notices);
        world.check_rest();
    }
}

#[test]
fn only_nodes_that_suit_the_class_are_given() {
    for mut world in worlds() {
        let term = json!({"matchExpressions": [{"key": "cards", "operator": "Exists"}]});
        world.class("labelled", "card", json!({"suitableNodes": {"nodeSelectorTerms": [term]}}));
        world.node("a", 1);
        world.node("b", 1);
        let labels = |node: &mut Value| node["metadata"]["labels"]["cards"] = json!("yes");
        world.server.edit("nodes", "", "b", false, labels).unwrap();
        world.claim_of_class("c", "labelled");
        world.pod("p", &["c"]);
        world.context("p", None, &["a", "b"]);
        world.settle();
        assert_eq!(world.unsuitable("p", "c"), Some(set(&["a"])));
        assert_eq!(world.run(&mut Dice::new(2)).len(), 1);
        assert_eq!(world.devices("c").unwrap(), ["b/card/card-0"]);
    }
}

#[test]
fn after_a_node_is_shut_down_its_claims_are_taken_back_without_its_word() {
    for mut world in worlds() {
        allocated(&mut world);
        world.node("b", 1);
        world.hardware("a", json!([]), false);
        world.server.delete("nodes", "", "a");
        world.server.delete("pods", "default", "p");
        world.control();
        world.settle();
        assert!(world.devices("c").is_none() && world.grants().is_empty());
        world.pod("again", &["c"]);
        assert_eq!(world.run(&mut Dice::new(4)).len(), 1);
        assert_eq!(world.devices("c").unwrap(), ["b/card/card-0"]);
        world.check_rest();
    }
}

#[test]
fn where_the_gate_is_off_it_is_said_and_nothing_is_left_behind() {
    let mut world = World::new(ClassicVersion::V1Alpha3);
    world.node("a", 1);
    world.claim("c", 1);
    world.server.is_gate_on = false;
    world.pod("p", &["c"]);
    world.context("p", Some("a"), &["a"]);
    world.settle();
    let [notice] = &world.notices[..] else { panic!("{:?}", world.notices) };
    assert!(notice.message.contains("DRAControlPlaneController"), "{}", notice.message);
    assert!(world.devices("c").is_none() && world.grants().is_empty());
    assert!(finalizers(world.get_claim("c").unwrap()).is_empty());
}

#[test]
fn a_claim_on_the_network_goes_to_another_node_once_its_pod_is_gone() {
    for mut world in worlds() {
        for node in ["a", "b"] {
            world.node(node, 0);
        }
        world.server.create("nodehardware", json!({"metadata": {"name": "switch"}, "spec": {}, "status": {}}));
        let anywhere = json!({"nodeSelectorTerms": [{"matchExpressions":
            [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a", "b"]}]}]});
        let slice = json!({"driver": DRIVER, "nodeSelector": anywhere,
            "pool": {"name": "switch/card", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "far", "attributes": {"kind": {"string": "card"}}}]});
        world.hardware("switch", json!([slice]), true);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", Some("a"), &["a", "b"]);
        world.settle();
        assert_eq!(world.devices("c").unwrap(), ["switch/card/far"]);
        assert!(world.get_claim("c").unwrap()["status"]["allocation"].to_string().contains(r#"["a"]"#));
        world.server.delete("pods", "default", "p");
        world.control();
        world.settle();
        assert!(world.devices("c").is_none());
        world.server.edit("nodes", "", "a", false, |node| node["spec"] = json!({"unschedulable": true})).unwrap();
        world.pod("q", &["c"]);
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
        assert!(world.get_claim("c").unwrap()["status"]["allocation"].to_string().contains(r#"["b"]"#));
        world.check_rest();
    }
}

#[test]
fn optional_devices_are_preferred_and_done_without_where_no_node_has_them() {
    for mut world in worlds() {
        world.node("a", 0);
        world.node("b", 2);
        let request = json!({"name": "r", "deviceClassName": "card", "count": 3, "optional": true});
        for claim in ["c", "d"] {
            world.claim_for(claim, json!({"requests": [request.clone()]}));
        }
        world.pod("p", &["c"]);
        world.context("p", None, &["a", "b"]);
        while world.hear_or_go_on() || world.execute_next(0) {}
        assert_eq!(world.unsuitable("p", "c"), Some(set(&["a"])), "while b has some");
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
        assert_eq!(world.devices("c").unwrap().len(), 2, "as many as there are");
        if world.server.version == ClassicVersion::V1Alpha1 {
            // Its kubelets refuse a claim without devices.
            continue;
        }
        world.pod("q", &["d"]);
        world.context("q", None, &["a", "b"]);
        world.settle();
        assert_eq!(world.unsuitable("q", "d"), Some(set(&[])), "now none has any");
        assert_eq!(world.run(&mut Dice::new(1)).len(), 2);
        assert_eq!(world.devices("d").unwrap().len(), 0);
        assert!(world.get_claim("d").unwrap()["status"]["allocation"].to_string().contains("absent"));
        world.check_rest();
    }
}

#[test]
fn a_pod_that_fits_nowhere_says_why_and_is_answered_when_there_is_something() {
    for mut world in worlds() {
        world.node("a", 0);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", None, &["a"]);
        world.settle();
        let [notice] = &world.notices[..] else { panic!("{:?}", world.notices) };
        assert_eq!(notice.reason.as_str(), "WaitingForDevices");
        assert!(notice.message.starts_with("no node will do, not a: claim default/c"), "{}", notice.message);
        world.cards("a", 1);
        world.settle();
        assert_eq!(world.unsuitable("p", "c"), Some(set(&[])));
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
    }
}

#[test]
fn a_selected_node_that_changes_never_moves_what_is_on_its_way() {
    for mut world in worlds() {
        world.node("a", 1);
        world.node("b", 1);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", Some("a"), &["a", "b"]);
        while world.hear_or_go_on() || world.writes.is_empty() && world.execute_next(0) {}
        world.context("p", Some("b"), &["a", "b"]);
        world.settle();
        assert_eq!(world.devices("c").unwrap(), ["a/card/card-0"]);
        let allocations = world.writes.iter().filter(|write| matches!(write, ClassicWrite::Allocation(..)));
        assert_eq!(allocations.count(), 1);
    }
}

#[test]
fn a_device_that_another_controller_gave_away_meanwhile_is_not_given_twice() {
    for mut world in worlds() {
        world.node("a", 2);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", Some("a"), &["a"]);
        while world.hear_or_go_on() || world.writes.is_empty() && world.execute_next(0) {}
        let theirs = json!({"namespace": "default", "name": "x", "claimVersion": "1", "devices":
            [{"request": "r", "driver": DRIVER, "pool": "a/card", "device": "card-0"}]});
        world.server.edit("nodehardware", "", "a", false, |it| it["spec"]["claims"]["theirs"] = theirs).unwrap();
        while world.hear_or_go_on() || world.execute_next(0) {
            let is_theirs = world.grants().contains(&"a theirs".to_owned());
            let is_ours = world.devices("c").is_some_and(|devices| devices == ["a/card/card-0"]);
            assert!(!(is_theirs && is_ours));
        }
        world.settle();
        assert!(world.devices("c").is_some());
        assert_eq!(world.grants().len(), 1, "what was given to a claim that is not there is given back");
        world.check_rest();
    }
}

#[test]
fn a_device_that_was_given_away_before_our_finalizer_was_written_is_not_given_twice() {
    for mut world in worlds() {
        world.node("a", 2);
        world.claim("c", 1);
        world.pod("p", &["c"]);
        world.context("p", Some("a"), &["a"]);
        // The finalizer is about to be written: a device is chosen, and nobody was told.
        while world.hear_or_go_on()
            || !matches!(world.controller.commands.front(), Some(ClassicCommand::Write(_))) && world.execute_next(0)
        {
        }
        let theirs = json!({"namespace": "default", "name": "x", "claimVersion": "1", "devices":
            [{"request": "r", "driver": DRIVER, "pool": "a/card", "device": "card-0"}]});
        world.server.edit("nodehardware", "", "a", false, |it| it["spec"]["claims"]["theirs"] = theirs).unwrap();
        while world.hear_or_go_on() || world.execute_next(0) {
            let is_theirs = world.grants().contains(&"a theirs".to_owned());
            let is_ours = world.devices("c").is_some_and(|devices| devices == ["a/card/card-0"]);
            assert!(!(is_theirs && is_ours), "{:?}", world.grants());
        }
        world.settle();
        assert!(world.devices("c").is_some());
        world.check_rest();
    }
}

#[test]
fn what_another_controller_gave_is_kept_until_it_is_known_that_nobody_relies_on_it() {
    for mut world in worlds() {
        world.node("a", 1);
        world.claim("c", 1);
        let uid = world.get_claim("c").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        while world.hear_or_go_on() || world.execute_next(0) {}
        let mark = |object: &mut Value| object["metadata"]["finalizers"] = json!([FINALIZER]);
        let marked = world.server.edit("resourceclaims", "default", "c", false, mark).unwrap();
        let theirs = json!({"namespace": "default", "name": "c", "claimVersion": marked["metadata"]["resourceVersion"],
            "devices": [{"request": "r", "driver": DRIVER, "pool": "a/card", "device": "card-0"}]});
        let grant = |it: &mut Value| it["spec"]["claims"][uid] = theirs;
        let hardware = world.server.edit("nodehardware", "", "a", false, grant).unwrap();
        // News of the one come before news of the other.
        let source = world.dialect.source(&hardware).unwrap();
        world.feed(ClassicEvent::Source(Box::new(source)));
        assert!(world.writes.is_empty() && world.controller.commands.is_empty());
        world.settle();
        assert!(matches!(world.writes[..], [ClassicWrite::Finalizers(..), ClassicWrite::Grants { .. }]));
        assert!(world.grants().is_empty());
        world.check_rest();
    }
}

#[test]
fn nothing_is_decided_before_everything_is_known() {
    for mut world in worlds() {
        allocated(&mut world);
        let writes = world.writes.len();
        let mut core = super::super::core::ClassicCore::new(world.settings.clone());
        let claim = world.dialect.claim(world.get_claim("c").unwrap()).unwrap();
        let bare = super::super::model::ClassicClaim { allocation: None, consumers: Vec::new(), ..claim };
        let commands = core.step(world.now, ClassicEvent::Claim(Box::new(bare)));
        assert!(commands.is_empty() && writes == world.writes.len());
        assert!(!core.step(world.now, ClassicEvent::Synced).is_empty());
    }
}

/// How long it takes until something is so.
fn time_until(world: &mut World, is_so: impl Fn(&World) -> bool) -> Duration {
    let began = world.now;
    for _ in 0..100_000 {
        if is_so(world) {
            return world.now - began;
        }
        if !world.deliver() && !world.execute_next(0) {
            let at = world.now + Duration::from_millis(5);
            world.tick(at);
        }
    }
    panic!("it never is so");
}

#[test]
fn a_card_that_gets_free_is_offered_at_once_however_many_were_allocated_before() {
    for mut world in worlds() {
        allocated(&mut world);
        world.node("b", 40);
        world.claim("next", 2);
        world.pod("q", &["next"]);
        world.context("q", None, &["a"]);
        world.settle();
        assert_eq!(world.unsuitable("q", "next"), Some(set(&["a"])));
        for at in 0..40 {
            let (claim, pod) = (format!("other-{at}"), format!("pod-{at}"));
            world.claim(&claim, 1);
            world.pod(&pod, &[&claim]);
            world.context(&pod, Some("b"), &["b"]);
            let began = world.now;
            time_until(&mut world, |world| {
                world.devices(&claim).is_some() && world.now - began > Duration::from_secs(1)
            });
        }
        request_deallocation(&mut world, "c");
        let took = time_until(&mut world, |world| world.unsuitable("q", "next") == Some(set(&[])));
        assert!(took < Duration::from_millis(300), "{took:?}");
    }
}
