//! Configuration for the node, in classes, parameters and claims: what is wrong with it is told before anything is allocated.

use hostler_api::classic::ClassicVersion;
use serde_json::{Value, json};

use super::{
    parameters::{create_parameters, immediate, messages, reference, worlds},
    world::{DRIVER, World},
};

/// What can be wrong with a configuration: what it says, the field of it, and what is said of that.
const MISTAKES: [(&str, &str, &str); 4] = [
    (r#"{"spread": "wide"}"#, "spread", "\"wide\" is not one of packed, cores, l3, numa"),
    (r#"{"spraed": "l3"}"#, "spraed", "there is no such field; did you mean spread?"),
    (r#"{"kind": "CPUConfig"}"#, "kind", "\"CPUConfig\" is not one of CpuConfig"),
    (r#"{"apiVersion": "v1"}"#, "apiVersion", "\"v1\" is not known; write hostler.dev/v1alpha1"),
];

fn parameters(fields: &str) -> Value {
    let mut all = json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "CpuConfig"});
    let fields: Value = serde_json::from_str(fields).unwrap();
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    all
}

fn config(parameters: &Value) -> Value {
    let other = json!({"opaque": {"driver": "other.example", "parameters": {"kind": "Any"}}});
    json!([other, {"opaque": {"driver": DRIVER, "parameters": parameters}}])
}

fn requests() -> Value {
    json!([{"name": "r", "deviceClassName": "card.hostler.dev"}])
}

/// The configuration is wrong in all ways one after the other, and mended in the end: each is told once, with its field.
fn is_told_until_it_is_mended(world: &mut World, mut write: impl FnMut(&mut World, &Value), of: &str) {
    for (at, (fields, field, expected)) in MISTAKES.into_iter().enumerate() {
        write(world, &parameters(fields));
        world.settle();
        world.cards("a", 1 + at % 2);
        world.settle();
        let told = messages(world);
        assert_eq!(told.len(), at + 1, "{told:?}");
        let expected = format!("field spec.config[1].opaque.parameters.{field} {of}: {expected}");
        assert!(told[at].contains(&expected), "{}", told[at]);
        assert!(world.writes.is_empty());
    }
    write(world, &parameters(r#"{"spread": "l3"}"#));
    world.settle();
    assert_eq!(world.devices("c").unwrap(), ["a/card/card-0"]);
    assert_eq!(world.notices.len(), MISTAKES.len());
}

#[test]
fn a_claims_configuration_that_no_node_would_take_is_told_until_it_is_mended() {
    for mut world in worlds() {
        world.node("a", 1);
        create_parameters(&mut world, "claimparameters", "p", json!({"requests": requests()}));
        let write = |world: &mut World, it: &Value| {
            let edit = |object: &mut Value| object["spec"]["config"] = config(it);
            world.server.edit("claimparameters", "default", "p", false, edit).unwrap();
            if world.get_claim("c").is_none() {
                immediate(world, "c", reference("ClaimParameters", "p"));
            }
        };
        is_told_until_it_is_mended(&mut world, write, "of ClaimParameters default/p");
    }
}

#[test]
fn a_classs_configuration_that_no_node_would_take_is_told_until_it_is_mended() {
    for mut world in worlds() {
        world.node("a", 1);
        create_parameters(&mut world, "classparameters", "of-class", json!({}));
        let named = |it: &mut Value| it["parametersRef"] = reference("ClassParameters", "of-class");
        world.server.edit("resourceclasses", "", "card", false, named).unwrap();
        create_parameters(&mut world, "claimparameters", "p", json!({"requests": requests()}));
        let write = |world: &mut World, it: &Value| {
            let edit = |object: &mut Value| object["spec"]["config"] = config(it);
            world.server.edit("classparameters", "", "of-class", false, edit).unwrap();
            if world.get_claim("c").is_none() {
                immediate(world, "c", reference("ClaimParameters", "p"));
            }
        };
        is_told_until_it_is_mended(&mut world, write, "of ClassParameters of-class");
    }
}

#[test]
fn parameters_of_a_class_that_are_missing_or_of_another_kind_are_told_and_then_served() {
    for mut world in worlds() {
        world.node("a", 1);
        let class = |world: &mut World, kind: &str| {
            let named = |it: &mut Value| it["parametersRef"] = reference(kind, "q");
            world.server.edit("resourceclasses", "", "card", false, named).unwrap();
        };
        class(&mut world, "ClassParameters");
        create_parameters(&mut world, "claimparameters", "p", json!({"requests": requests()}));
        immediate(&mut world, "c", reference("ClaimParameters", "p"));
        world.settle();
        class(&mut world, "Wish");
        world.settle();
        let expected = [
            "field parametersRef of ResourceClass card: field spec.parametersRef: there is no ClassParameters q; create it",
            "field parametersRef of ResourceClass card: field spec.parametersRef: there is no Wish q that can be \
             understood; name a ClassParameters of hostler.dev",
        ];
        assert_eq!(messages(&world), expected);
        assert!(world.writes.is_empty());
        class(&mut world, "ClassParameters");
        create_parameters(&mut world, "classparameters", "q", json!({}));
        world.settle();
        assert_eq!(world.devices("c").unwrap(), ["a/card/card-0"]);
        assert_eq!(world.notices.len(), 2);
    }
}

#[test]
fn vendor_parameters_of_1_30_are_told_with_their_field_and_mended_they_work() {
    let mut world = World::new(ClassicVersion::V1Alpha2);
    world.node("a", 2);
    let requests = |vendor: Value| {
        let selector = json!({"selector": "attributes.string[\"kind\"] == \"card\""});
        let other = json!({"driverName": "other.example", "vendorParameters": {"kind": "Any"}, "requests": []});
        json!([other, {"driverName": DRIVER, "requests": [{"namedResources": selector, "vendorParameters": vendor}]}])
    };
    let meta = json!({"name": "made", "namespace": "default"});
    let wrong = requests(parameters(r#"{"smt": "off"}"#));
    world
        .server
        .create("resourceclaimparameters", json!({"metadata": meta, "shareable": true, "driverRequests": wrong}));
    let reference = json!({"apiGroup": "resource.k8s.io", "kind": "ResourceClaimParameters", "name": "made"});
    immediate(&mut world, "c", reference);
    world.settle();
    let [message] = messages(&world)[..] else { panic!("{:?}", messages(&world)) };
    let field = "field driverRequests[1].requests[0].vendorParameters.smt of ResourceClaimParameters default/made: ";
    assert!(message.starts_with(field), "{message}");
    let mend = |it: &mut Value| it["driverRequests"] = requests(parameters(r#"{"smt": "isolated"}"#));
    world.server.edit("resourceclaimparameters", "default", "made", false, mend).unwrap();
    world.settle();
    assert_eq!(world.devices("c").unwrap(), ["a/card/card-0"], "{:?}", world.notices);
}

#[test]
fn in_1_31_a_device_class_is_mended_and_a_claim_is_made_anew() {
    let mut world = World::new(ClassicVersion::V1Alpha3);
    world.node("a", 1);
    let class = |world: &mut World, it: &Value| {
        let edit = |object: &mut Value| object["spec"]["config"] = config(it);
        world.server.edit("deviceclasses", "", "card", false, edit).unwrap();
    };
    class(&mut world, &parameters(r#"{"irqs": true}"#));
    let of_claim = |fields: &str| json!({"requests": [{"name": "r", "deviceClassName": "card"}], "config": config(&parameters(fields))});
    world.claim_for("c", of_claim("{}"));
    world.pod("p", &["c"]);
    world.context("p", Some("a"), &["a"]);
    world.settle();
    let field = "field spec.config[1].opaque.parameters.irqs of DeviceClass card: true is not one of shared, avoid";
    assert_eq!(messages(&world), [field]);
    class(&mut world, &parameters("{}"));
    world.settle();
    assert_eq!(world.devices("c").unwrap(), ["a/card/card-0"]);
    world.claim_for("d", of_claim(r#"{"irqs": true}"#));
    world.pod("q", &["d"]);
    world.context("q", Some("a"), &["a"]);
    world.settle();
    let field =
        "field spec.devices.config[1].opaque.parameters.irqs: true is not one of shared, avoid; make the claim anew";
    assert_eq!(messages(&world)[1..], [field]);
    assert!(world.devices("d").is_none());
}
