//! Parameters, and claims that are allocated as soon as they exist.

use hostler_api::classic::ClassicVersion;
use serde_json::{Value, json};

use super::{
    super::event::EventReason,
    server::finalizers,
    world::{DRIVER, World},
};
use crate::testkit::Dice;

/// One world for each version with ResourceClasses.
pub(super) fn worlds() -> impl Iterator<Item = World> {
    [ClassicVersion::V1Alpha1, ClassicVersion::V1Alpha2].into_iter().map(World::new)
}

pub(super) fn reference(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "hostler.dev", "kind": kind, "name": name})
}

pub(super) fn immediate(world: &mut World, name: &str, parameters: Value) {
    let spec = json!({"resourceClassName": "card", "allocationMode": "Immediate", "parametersRef": parameters});
    world.server.create("resourceclaims", json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}));
}

pub(super) fn create_parameters(world: &mut World, resource: &str, name: &str, spec: Value) {
    let namespace = if resource == "claimparameters" { "default" } else { "" };
    world.server.create(resource, json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec}));
}

pub(super) fn messages(world: &World) -> Vec<&str> {
    world.notices.iter().map(|notice| notice.message.as_str()).collect()
}

#[test]
fn an_immediate_claim_is_allocated_without_a_pod_and_shared_by_those_that_come() {
    for mut world in worlds() {
        world.node("a", 0);
        world.node("b", 1);
        create_parameters(
            &mut world,
            "claimparameters",
            "p",
            json!({"requests": [{"name": "r", "deviceClassName": "card.hostler.dev"}]}),
        );
        immediate(&mut world, "c", reference("ClaimParameters", "p"));
        world.settle();
        assert_eq!(world.devices("c").unwrap(), ["b/card/card-0"]);
        assert!(world.get_claim("c").unwrap()["status"]["reservedFor"].is_null());
        world.pod("one", &["c"]);
        world.pod("two", &["c"]);
        assert_eq!(world.run(&mut Dice::new(1)).len(), 2);
        world.check_rest();
    }
}

#[test]
fn a_reference_to_parameters_of_another_api_group_says_so() {
    for mut world in worlds() {
        world.node("a", 1);
        let theirs = json!({"apiGroup": "gpu.example.com", "kind": "ClaimParameters", "name": "p"});
        immediate(&mut world, "c", theirs);
        world.settle();
        let said = messages(&world).concat();
        assert!(said.contains("spec.parametersRef.apiGroup") && said.contains("gpu.example.com"), "{said}");
        assert!(said.ends_with("name a ClaimParameters of hostler.dev"), "{said}");
    }
}

#[test]
fn missing_parameters_are_told_once_and_mended_parameters_work_at_once() {
    for mut world in worlds() {
        world.node("a", 1);
        immediate(&mut world, "c", reference("ClaimParameters", "p"));
        world.pod("p", &["c"]);
        world.context("p", Some("a"), &["a"]);
        world.settle();
        world.cards("a", 2);
        world.settle();
        let missing = "field spec.parametersRef: there is no ClaimParameters default/p; create it";
        assert_eq!(messages(&world), [missing]);
        create_parameters(&mut world, "claimparameters", "p", json!({"requests": [{"name": "r"}]}));
        world.settle();
        world.cards("a", 1);
        world.settle();
        let [_, wrong] = messages(&world)[..] else { panic!("{:?}", messages(&world)) };
        assert!(wrong.starts_with("field spec.requests[0].deviceClassName: neither it nor"), "{wrong}");
        assert!(world.writes.is_empty());
        let mend = |it: &mut Value| it["spec"]["requests"][0]["deviceClassName"] = json!("card.hostler.dev");
        world.server.edit("claimparameters", "default", "p", false, mend).unwrap();
        world.settle();
        assert_eq!(world.devices("c").unwrap(), ["a/card/card-0"]);
        assert_eq!(world.notices.len(), 2);
        assert!(world.notices.iter().all(|notice| notice.reason == EventReason::Failed));
    }
}

#[test]
fn parameters_that_cannot_be_understood_are_told_with_their_field() {
    for mut world in worlds() {
        world.node("a", 1);
        create_parameters(&mut world, "claimparameters", "p", json!({"requests": [{"name": "r", "count": "many"}]}));
        create_parameters(&mut world, "classparameters", "q", json!({}));
        immediate(&mut world, "c", reference("ClaimParameters", "p"));
        immediate(&mut world, "d", json!({"apiGroup": "hostler.dev", "kind": "Wish", "name": "p"}));
        world.settle();
        let [of_c, of_d] = messages(&world)[..] else { panic!("{:?}", messages(&world)) };
        assert!(of_c.contains("ClaimParameters default/p") && of_c.contains("; correct it"), "{of_c}");
        assert!(of_d.ends_with("name a ClaimParameters of hostler.dev"), "{of_d}");
        assert!(world.writes.is_empty());
    }
}

#[test]
fn a_class_that_becomes_ours_has_its_claims_served() {
    for mut world in worlds() {
        world.node("a", 1);
        let parameters = json!({"driverName": "other.example", "parametersRef": reference("ClassParameters", "all")});
        let mut class = json!({"metadata": {"name": "later"}});
        class.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
        world.server.create("resourceclasses", class);
        let selector = json!({"cel": {"expression": "device.attributes['hostler.dev'].kind == 'card'"}});
        let config = json!({"opaque": {"driver": DRIVER, "parameters": {"apiVersion": "hostler.dev/v1alpha1", "kind": "FpgaConfig"}}});
        create_parameters(&mut world, "classparameters", "all", json!({"selectors": [selector], "config": [config]}));
        let spec = json!({"resourceClassName": "later", "allocationMode": "Immediate"});
        world.server.create("resourceclaims", json!({"metadata": {"name": "c", "namespace": "default"}, "spec": spec}));
        world.settle();
        assert!(world.devices("c").is_none() && world.notices.is_empty());
        world.server.edit("resourceclasses", "", "later", false, |it| it["driverName"] = json!(DRIVER)).unwrap();
        world.settle();
        assert_eq!(world.devices("c").unwrap(), ["a/card/card-0"]);
        let allocation = world.get_claim("c").unwrap()["status"]["allocation"].to_string();
        assert!(allocation.contains("FpgaConfig") && allocation.contains("FromClass"), "{allocation}");
        world.server.delete("resourceclaims", "default", "c");
        world.settle();
        assert!(world.get_claim("c").is_none() && world.grants().is_empty());
    }
}

#[test]
fn a_claim_that_must_not_be_shared_is_not() {
    for mut world in worlds() {
        world.node("a", 1);
        let requests = json!([{"name": "r", "deviceClassName": "card.hostler.dev"}]);
        create_parameters(&mut world, "claimparameters", "p", json!({"shareable": false, "requests": requests}));
        immediate(&mut world, "c", reference("ClaimParameters", "p"));
        world.pod("one", &["c"]);
        world.pod("two", &["c"]);
        assert_eq!(world.run(&mut Dice::new(1)).len(), 1);
    }
}

#[test]
fn parameters_of_1_30_are_understood() {
    let mut world = World::new(ClassicVersion::V1Alpha2);
    world.node("a", 2);
    let request = |name: &str| {
        let selector = format!("attributes.string[\"kind\"] == \"{name}\"");
        json!({"namedResources": {"selector": selector}})
    };
    let requests = json!([{"driverName": DRIVER, "requests": [request("card"), request("card")]}]);
    let meta = json!({"name": "made", "namespace": "default"});
    let from = json!({"apiGroup": "v.example", "kind": "Wish", "name": "w"});
    world.server.create(
        "resourceclaimparameters",
        json!({"metadata": meta, "shareable": true, "generatedFrom": from, "driverRequests": requests}),
    );
    immediate(&mut world, "c", from);
    world.settle();
    assert_eq!(world.devices("c").unwrap(), ["a/card/card-0", "a/card/card-1"], "{:?}", world.notices);
}

#[test]
fn a_class_with_structured_parameters_is_the_schedulers() {
    let mut world = World::new(ClassicVersion::V1Alpha2);
    world.node("a", 1);
    world.server.edit("resourceclasses", "", "card", false, |it| it["structuredParameters"] = json!(true)).unwrap();
    world.claim("c", 1);
    world.pod("p", &["c"]);
    world.context("p", Some("a"), &["a"]);
    world.settle();
    assert!(world.writes.is_empty() && world.notices.is_empty());
}

#[test]
fn what_a_node_would_have_to_be_told_must_not_be_too_much() {
    for mut world in worlds() {
        world.node("a", 1);
        let text = json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "FakeConfig", "text": "x".repeat(9_000)});
        let config = json!({"opaque": {"driver": DRIVER, "parameters": text}});
        let requests = json!([{"name": "r", "deviceClassName": "card.hostler.dev"}]);
        create_parameters(
            &mut world,
            "claimparameters",
            "p",
            json!({"requests": requests, "config": [config, config]}),
        );
        immediate(&mut world, "c", reference("ClaimParameters", "p"));
        world.settle();
        assert!(messages(&world)[0].contains("16384 are allowed"), "{:?}", messages(&world));
        assert!(world.writes.is_empty() && finalizers(world.get_claim("c").unwrap()).is_empty());
    }
}

#[test]
fn a_selector_that_cannot_be_understood_is_told_and_mended_it_works_at_once() {
    for mut world in worlds() {
        world.node("a", 1);
        world.node("b", 1);
        let selector = |expression: &str| json!([{"cel": {"expression": expression}}]);
        let request =
            json!({"name": "r", "deviceClassName": "card.hostler.dev", "selectors": selector("device.attributes[")});
        create_parameters(&mut world, "claimparameters", "p", json!({"requests": [request]}));
        immediate(&mut world, "c", reference("ClaimParameters", "p"));
        world.settle();
        world.cards("b", 2);
        world.settle();
        let [message] = messages(&world)[..] else { panic!("{:?}", messages(&world)) };
        assert!(message.contains("device.attributes["), "{message}");
        assert!(world.writes.is_empty());
        let mend = |it: &mut Value| it["spec"]["requests"][0]["selectors"] = selector("true");
        world.server.edit("claimparameters", "default", "p", false, mend).unwrap();
        world.settle();
        assert_eq!(world.devices("c").unwrap(), ["a/card/card-0"]);
    }
}

#[test]
fn what_only_the_controller_says_is_not_taken_from_users() {
    let mut world = World::new(ClassicVersion::V1Alpha3);
    world.node("a", 1);
    let parameters = json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "ResourceHandle", "node": "a",
        "results": [{"request": "r", "driver": DRIVER, "pool": "a/card", "device": "card-0"}]});
    let config = json!([{"opaque": {"driver": DRIVER, "parameters": parameters}}]);
    world.claim_for("c", json!({"requests": [{"name": "r", "deviceClassName": "card"}], "config": config}));
    world.pod("p", &["c"]);
    world.context("p", Some("a"), &["a"]);
    world.settle();
    let [message] = messages(&world)[..] else { panic!("{:?}", messages(&world)) };
    assert!(message.starts_with("field spec.devices.config[0].opaque.parameters.kind: ResourceHandle is"), "{message}");
    assert!(world.writes.is_empty());
}
