//! How claims are written anew. The allocator is asked what such a claim is given.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::structured::{AllocatedState, Allocator, Budget, NodeFacts, SliceIndex};
use hostler_api::{
    KubernetesVersion,
    reservation::ReservationAllocatePolicy::{self, Aligned, Restricted},
    resource::{DeviceClass, ResourceClaim, ResourceSlice},
};
use serde_json::{Value, json};

use crate::webhook::rewrite::{HeldClaims, Rewrite, rewrite, tolerates_held};

const VALUE: &str = "0123456789abcdef";

fn held_claims(policy: ReservationAllocatePolicy) -> HeldClaims {
    let classes = BTreeMap::from([("gpu".to_owned(), true), ("nic".to_owned(), false)]);
    let values = vec![VALUE.to_owned()];
    HeldClaims { values, policy, unrestricted: BTreeSet::new(), has_room: true, classes, has_alternatives: true }
}

fn spec(requests: Value) -> Value {
    json!({ "devices": { "requests": requests } })
}

fn exactly(name: &str, class: &str, more: Value) -> Value {
    let mut exactly = json!({ "deviceClassName": class });
    for (field, value) in more.as_object().unwrap() {
        exactly[field] = value.clone();
    }
    json!({ "name": name, "exactly": exactly })
}

/// The spec as the patch makes it.
fn patched(spec: &Value, rewrite: &Rewrite) -> Value {
    let mut claim = json!({ "spec": spec });
    for operation in &rewrite.patch {
        assert_eq!(operation["op"], "replace");
        *claim.pointer_mut(operation["path"].as_str().unwrap()).unwrap() = operation["value"].clone();
    }
    claim["spec"].take()
}

/// A device `held-N` is kept for VALUE, one `other` for somebody else, and one `free-N` for nobody.
fn slice(devices: &[&str]) -> ResourceSlice {
    let device = |name: &&str| {
        let mut device = json!({ "name": name });
        let value = if name.starts_with("held") { VALUE } else { "ffffffffffffffff" };
        if !name.starts_with("free") {
            device["taints"] = json!([{ "key": "hostler.dev/held", "value": value, "effect": "NoSchedule" }]);
            device["attributes"] = json!({ "hostler.dev/heldFor": { "string": value } });
        }
        device
    };
    let devices: Vec<Value> = devices.iter().map(device).collect();
    let pool = json!({ "name": "n", "generation": 1, "resourceSliceCount": 1 });
    let spec = json!({ "driver": "hostler.dev", "nodeName": "n", "pool": pool, "devices": devices });
    serde_json::from_value(json!({ "metadata": { "name": "s" }, "spec": spec })).unwrap()
}

/// What a claim is given of these devices: `request=device`.
fn given(spec: &Value, devices: &[&str]) -> Option<Vec<String>> {
    let class = |name: &str| -> DeviceClass {
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": {} })).unwrap()
    };
    let allocator = Allocator::for_version(KubernetesVersion::V1_36, [class("gpu"), class("nic"), class("other")]);
    let claim: ResourceClaim = serde_json::from_value(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "c" }, "spec": spec,
    }))
    .unwrap();
    let (slices, labels) = ([slice(devices)], BTreeMap::new());
    let index = SliceIndex::new(&slices);
    let pools = allocator.gather(NodeFacts { name: "n", labels: &labels }, &index).unwrap();
    let claims = allocator.compile([&claim]);
    let found = allocator.find(&pools, &AllocatedState::default(), &claims, &mut Budget::unlimited()).unwrap()?;
    let results = &found[0].devices.results;
    Some(results.iter().map(|it| format!("{}={}", it.request, it.device)).collect())
}

fn led(policy: ReservationAllocatePolicy, spec: &Value) -> Value {
    let rewrite = rewrite(spec, &held_claims(policy));
    assert!(rewrite.warnings.is_empty(), "{:?}", rewrite.warnings);
    patched(spec, &rewrite)
}

#[test]
fn what_is_kept_is_taken_first_and_others_otherwise() {
    let claim = spec(json!([exactly("r", "gpu", json!({}))]));
    assert_eq!(given(&claim, &["held-0", "free-0"]).unwrap(), ["r=free-0"], "as it was");
    let claim = led(Aligned, &claim);
    assert_eq!(given(&claim, &["free-0", "held-0"]).unwrap(), ["r/held=held-0"]);
    assert_eq!(given(&claim, &["other", "free-0"]).unwrap(), ["r/any=free-0"]);
    assert_eq!(given(&claim, &["other"]), None);
}

#[test]
fn what_is_kept_and_others_go_together_where_that_is_not_enough() {
    let claim = led(Aligned, &spec(json!([exactly("r", "gpu", json!({ "count": 2 }))])));
    assert_eq!(given(&claim, &["held-0", "held-1", "free-0"]).unwrap(), ["r/held=held-0", "r/held=held-1"]);
    assert_eq!(given(&claim, &["held-0", "free-0"]).unwrap(), ["r/any=held-0", "r/any=free-0"]);
}

#[test]
fn who_may_take_only_what_is_kept_gets_nothing_else() {
    let claim = led(Restricted, &spec(json!([exactly("r", "gpu", json!({ "count": 2 }))])));
    assert_eq!(given(&claim, &["free-0", "free-1", "held-0"]), None);
    assert_eq!(given(&claim, &["free-0", "held-0", "other", "held-1"]).unwrap(), ["r=held-0", "r=held-1"]);
}

#[test]
fn selectors_of_the_request_count_as_before() {
    let selector = json!([{ "cel": { "expression": "false" } }]);
    for policy in [Aligned, Restricted] {
        let claim = led(policy, &spec(json!([exactly("r", "gpu", json!({ "selectors": selector }))])));
        assert_eq!(given(&claim, &["held-0", "free-0"]), None, "{policy:?}");
    }
}

#[test]
fn alternatives_stay_in_their_order_behind_what_is_kept() {
    let never = json!([{ "cel": { "expression": "false" } }]);
    let alternatives = json!([
        { "name": "a", "deviceClassName": "gpu", "selectors": never },
        { "name": "b", "deviceClassName": "gpu", "count": 2 },
        { "name": "c", "deviceClassName": "other" },
    ]);
    let claim = spec(json!([{ "name": "r", "firstAvailable": alternatives }]));
    let aligned = led(Aligned, &claim);
    let names = |spec: &Value| -> Vec<String> {
        let all = spec["devices"]["requests"][0]["firstAvailable"].as_array().unwrap().clone();
        all.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&aligned), ["held-a", "held-b", "a", "b", "c"]);
    assert_eq!(given(&aligned, &["free-0", "held-0", "held-1"]).unwrap(), ["r/held-b=held-0", "r/held-b=held-1"]);
    assert_eq!(given(&aligned, &["free-0", "held-0"]).unwrap(), ["r/b=free-0", "r/b=held-0"]);
    assert_eq!(given(&aligned, &["free-0"]).unwrap(), ["r/c=free-0"]);
    let restricted = led(Restricted, &claim);
    assert_eq!(names(&restricted), ["a", "b", "c"]);
    assert_eq!(given(&restricted, &["free-0", "free-1"]).unwrap(), ["r/c=free-0"], "of that class nothing is kept");
    assert_eq!(given(&restricted, &["free-0", "held-0", "held-1"]).unwrap(), ["r/b=held-0", "r/b=held-1"]);
}

#[test]
fn where_there_is_no_room_who_may_take_only_what_is_kept_takes_that_or_others_but_not_both() {
    let full = HeldClaims { has_room: false, ..held_claims(Restricted) };
    let given_of = |request: Value, devices: &[&str]| {
        let claim = spec(json!([request]));
        given(&patched(&claim, &rewrite(&claim, &full)), devices)
    };
    let two = || exactly("r", "gpu", json!({ "count": 2 }));
    assert_eq!(given_of(two(), &["free-0", "free-1"]).unwrap(), ["r/any=free-0", "r/any=free-1"]);
    assert_eq!(given_of(two(), &["free-0", "held-0"]), None, "not one of each");
    assert_eq!(given_of(two(), &["free-0", "held-0", "held-1"]).unwrap(), ["r/held=held-0", "r/held=held-1"]);
    let alternatives =
        json!({ "name": "r", "firstAvailable": [{ "name": "a", "deviceClassName": "gpu", "count": 2 }] });
    assert_eq!(given_of(alternatives.clone(), &["free-0", "held-0"]), None);
    assert_eq!(given_of(alternatives, &["free-0", "free-1"]).unwrap(), ["r/a=free-0", "r/a=free-1"]);
    // What cannot be written so stays as it is.
    for request in [exactly("r", "nic", json!({})), exactly("r", "gpu", json!({ "allocationMode": "All" }))] {
        let rewrite = rewrite(&spec(json!([request])), &full);
        assert!(rewrite.patch.is_empty() && rewrite.warnings.is_empty(), "{rewrite:?}");
    }
}

#[test]
fn constraints_and_configurations_mean_the_same_requests() {
    let opaque = json!({ "driver": "hostler.dev", "parameters": {} });
    let mut claim = spec(json!([
        exactly("r", "gpu", json!({})),
        { "name": "s", "firstAvailable": [{ "name": "a", "deviceClassName": "gpu" }] },
    ]));
    claim["devices"]["constraints"] = json!([{ "requests": ["r", "s/a"], "matchAttribute": "hostler.dev/x" }]);
    claim["devices"]["config"] =
        json!([{ "requests": ["r"], "opaque": opaque }, { "requests": ["s/a"], "opaque": opaque }]);
    let led = led(Aligned, &claim);
    assert_eq!(led["devices"]["constraints"][0]["requests"], json!(["r", "s/a", "s/held-a"]));
    assert_eq!(led["devices"]["config"][0]["requests"], json!(["r"]));
    assert_eq!(led["devices"]["config"][1]["requests"], json!(["s/a", "s/held-a"]));
    assert_eq!(given(&led, &["held-0", "held-1"]), None, "no device has what they must have in common");
}

#[test]
fn what_cannot_be_written_so_tolerates_what_is_kept_and_somebody_is_told() {
    let tolerations = |count: usize| -> Value {
        (0..count).map(|at| json!({ "key": format!("k{at}"), "operator": "Exists" })).collect()
    };
    let selectors: Value = (0..32).map(|_| json!({ "cel": { "expression": "true" } })).collect();
    let many: Value = (0..5).map(|at| json!({ "name": format!("a{at}"), "deviceClassName": "gpu" })).collect();
    let twice = json!([{ "name": "a", "deviceClassName": "gpu" }, { "name": "held-a", "deviceClassName": "gpu" }]);
    for (request, policy, warning) in [
        (exactly("r", "gpu", json!({ "allocationMode": "All" })), Restricted, "all devices of a node"),
        (exactly("r", "nic", json!({})), Aligned, "devices of other drivers"),
        (exactly("r", "nic", json!({})), Restricted, "devices of other drivers"),
        (exactly("r", "gpu", json!({ "selectors": selectors })), Restricted, "no room for another selector"),
        (exactly("r", "gpu", json!({ "selectors": selectors })), Aligned, "no room for another selector"),
        (json!({ "name": "r", "firstAvailable": many }), Aligned, "no room for more alternatives"),
        (json!({ "name": "r", "firstAvailable": twice }), Aligned, "no room for more alternatives"),
        (exactly("r", "gpu", json!({ "later": 1 })), Aligned, "no alternatives"),
    ] {
        let claim = spec(json!([request]));
        let rewrite = rewrite(&claim, &held_claims(policy));
        assert!(
            rewrite.warnings.iter().any(|it| it.starts_with("request r: ") && it.contains(warning)),
            "{:?}",
            rewrite.warnings
        );
        let mut with_class = patched(&claim, &rewrite);
        assert!(tolerates_held(&with_class), "{with_class}");
        with_class["devices"]["requests"][0]["exactly"]["selectors"].take();
        let is_alternative = request["firstAvailable"].is_array();
        let devices = if is_alternative { vec!["held-0"] } else { vec!["held-0", "held-1"] };
        if is_alternative {
            assert_eq!(given(&patched(&claim, &rewrite), &devices).unwrap().len(), 1);
        }
    }
    let full = spec(json!([exactly("r", "gpu", json!({ "tolerations": tolerations(16) }))]));
    let none = rewrite(&full, &held_claims(Aligned));
    assert!(none.patch.is_empty() && none.warnings[0].contains("16 tolerations"), "{none:?}");
    let room = spec(json!([exactly("r", "gpu", json!({ "tolerations": tolerations(15) }))]));
    assert_eq!(given(&led(Restricted, &room), &["held-0"]).unwrap(), ["r=held-0"]);
}

#[test]
fn all_devices_of_a_node_are_all_with_what_is_kept() {
    let claim = led(Aligned, &spec(json!([exactly("r", "gpu", json!({ "allocationMode": "All" }))])));
    assert_eq!(given(&claim, &["held-0", "free-0"]).unwrap(), ["r=held-0", "r=free-0"]);
}

#[test]
fn before_alternatives_are_there_for_good_what_is_kept_is_only_tolerated() {
    let old = HeldClaims { has_alternatives: false, ..held_claims(Aligned) };
    let claim = spec(json!([exactly("r", "gpu", json!({}))]));
    let rewrite = rewrite(&claim, &old);
    assert!(rewrite.warnings[0].contains("1.36"), "{:?}", rewrite.warnings);
    assert_eq!(given(&patched(&claim, &rewrite), &["held-0"]).unwrap(), ["r=held-0"]);
}

#[test]
fn what_has_nothing_to_do_with_what_is_kept_stays_as_it_is() {
    let other = exactly("o", "other", json!({}));
    let admin = exactly("a", "gpu", json!({ "adminAccess": true }));
    let claim = spec(json!([other, admin, exactly("r", "gpu", json!({}))]));
    for policy in [Aligned, Restricted] {
        let led = led(policy, &claim);
        assert_eq!(led["devices"]["requests"][0], other);
        assert_eq!(led["devices"]["requests"][1], admin);
        assert_ne!(led["devices"]["requests"][2], claim["devices"]["requests"][2]);
    }
    assert!(rewrite(&spec(json!([other])), &held_claims(Aligned)).patch.is_empty());
    for broken in
        [json!(null), json!({}), json!({ "devices": { "requests": "x" } }), spec(json!([1, { "exactly": 2 }]))]
    {
        assert!(rewrite(&broken, &held_claims(Aligned)).patch.is_empty(), "{broken}");
    }
}

#[test]
fn whoever_names_a_value_himself_is_seen() {
    let with = |toleration: Value| spec(json!([exactly("r", "gpu", json!({ "tolerations": [toleration] }))]));
    assert!(tolerates_held(&with(json!({ "key": "hostler.dev/held", "value": "x" }))));
    assert!(tolerates_held(&with(json!({ "operator": "Exists" }))));
    assert!(!tolerates_held(&with(json!({ "key": "other", "operator": "Exists" }))));
    let alternative = json!({ "name": "a", "deviceClassName": "gpu", "tolerations": [{ "key": "hostler.dev/held" }] });
    assert!(tolerates_held(&spec(json!([{ "name": "r", "firstAvailable": [alternative] }]))));
}
