//! Parts of capacities, taints, access for administration, and what is written down.

use super::{support::*, *};

fn shared(name: &str, value: &str) -> Value {
    json!({"name": name, "allowMultipleAllocations": true, "capacity": {"memory": {"value": value}}})
}

fn part(name: &str, amount: &str) -> Value {
    with(request(1), &[("/name", json!(name)), ("/exactly/capacity", json!({"requests": {"memory": amount}}))])
}

#[test]
fn several_claims_hold_parts_of_a_device_for_as_long_as_they_last() {
    let world = || world().slice(slice(&json!([shared("a", "8"), shared("b", "8")])));
    assert_eq!(world().requests(&[part("r", "5")]).requests(&[part("r", "3"), part("s", "1")]).chosen(), "a | a s:b");
    let mut held = world();
    held.state.share("d", "p", "a", "1");
    held.state.consume("d", "p", "a", [("memory", &serde_json::from_value(json!("7")).unwrap())]);
    assert_eq!(held.requests(&[part("r", "2")]).chosen(), "b");
}

#[test]
fn a_request_without_an_amount_takes_all_of_it() {
    let world = world().slice(slice(&json!([shared("a", "8")]))).requests(&[request(1)]).requests(&[request(1)]);
    assert!(world.chosen().ends_with("the only matching device has less than all of memory free"));
}

#[test]
fn a_capacity_that_a_device_has_not_cannot_be_had() {
    let other = with(part("r", "1"), &[("/exactly/capacity", json!({"requests": {"other": "1"}}))]);
    let world = world().slice(slice(&json!([shared("a", "8")]))).requests(&[other]);
    assert!(world.chosen().ends_with("the only matching device has no capacity other"));
}

#[test]
fn a_device_that_is_not_shared_is_held_whole_whatever_is_asked_for() {
    let whole = with(shared("a", "8"), &[("/allowMultipleAllocations", json!(false))]);
    let world = || world().slice(slice(&json!([whole])));
    assert!(world().requests(&[part("r", "5"), part("s", "3")]).chosen().contains("taken by this pod"));
    assert!(world().requests(&[part("r", "9")]).chosen().ends_with("has less than 9 of memory"));
}

#[test]
fn a_refusal_names_the_capacity_and_the_amount_that_is_taken_of_it() {
    let device = |name: &str| {
        json!({"name": name, "allowMultipleAllocations": true, "capacity": {"cpus": {"value": "16",
            "requestPolicy": {"default": "2", "validRange": {"min": "2", "step": "2", "max": "12"}}}}})
    };
    let wants = |amount: &str| with(request(1), &[("/exactly/capacity", json!({"requests": {"cpus": amount}}))]);
    let world = |taken: &str, asked: &str| {
        let mut world = world().slice(slice(&json!([device("a"), device("b"), device("c")])));
        for name in ["a", "b", "c"] {
            world.state.share("d", "p", name, "1");
            world.state.consume("d", "p", name, [("cpus", &serde_json::from_value(json!(taken)).unwrap())]);
        }
        world.requests(&[wants(asked)])
    };
    let each = "claim default/c0, request \"r\": each of the 3 matching devices has";
    assert_eq!(world("10", "8").no_fit(), format!("{each} fewer than 8 cpus free"));
    // What is asked for is rounded up: seven may well be free.
    assert_eq!(world("9", "7").no_fit(), format!("{each} fewer than 8 cpus free"));
    assert_eq!(world("0", "14").no_fit(), format!("{each} cpus only in other amounts than 14"));
    let mut one_held = world("10", "8");
    one_held.state.hold("d", "p", "a");
    assert_eq!(
        one_held.no_fit(),
        "claim default/c0, request \"r\": it wants 1 of 3 devices that match, and 0 can be had: 1 allocated, \
         2 with fewer than 8 cpus free"
    );
}

#[test]
fn a_share_says_what_it_took_after_rounding() {
    let policy = json!({"default": "2", "validRange": {"min": "2", "step": "2"}});
    let device = with(shared("a", "8"), &[("/capacity/memory/requestPolicy", policy)]);
    let result = world().slice(slice(&json!([device]))).requests(&[part("r", "3")]).result();
    let result = &result["devices"]["results"][0];
    assert_eq!(result["consumedCapacity"], json!({"memory": "4"}));
    assert_eq!(result["shareID"].as_str().unwrap().len(), 36);
}

#[test]
fn where_parts_are_not_known_to_be_asked_for_them_is_fatal_or_does_not_matter() {
    let world = || world().without(Feature::ConsumableCapacity).slice(slice(&json!([shared("a", "8")])));
    assert_eq!(
        world().requests(&[part("r", "9")]).fatal(),
        "claim default/c0, request r: it wants parts of capacities, and feature DRAConsumableCapacity is off"
    );
    assert_eq!(world().quirk(Quirk::NoConsumableCapacity).requests(&[part("r", "9")]).chosen(), "a");
}

#[test]
fn all_of_shared_devices_are_those_with_enough_left() {
    let want_all = with(all(), &[("/exactly/capacity", json!({"requests": {"memory": "5"}}))]);
    let world = world().slice(slice(&json!([shared("a", "8"), shared("b", "4")])));
    assert_eq!(world.requests(&[want_all]).chosen(), "a");
}

#[test]
fn a_refusal_in_the_last_moment_leaves_nothing_behind_but_upstream() {
    let want_all = |name: &str| {
        with(all(), &[("/name", json!(name)), ("/exactly/capacity", json!({"requests": {"memory": "5"}}))])
    };
    let alternatives = json!({"name": "s", "firstAvailable": [
        {"name": "all", "deviceClassName": "any", "allocationMode": "All", "capacity": {"requests": {"memory": "5"}}},
        {"name": "one", "deviceClassName": "any", "capacity": {"requests": {"memory": "1"}}}]});
    let device = with(shared("a", "8"), &[("/attributes", json!({"x": {"int": 1}}))]);
    let other = json!({"name": "b", "allowMultipleAllocations": true, "attributes": {"x": {"int": 1}},
        "capacity": {"memory": {"value": "8"}}});
    let claim = json!({"requests": [want_all("r"), alternatives], "constraints": [{"distinctAttribute": "d/x", "requests": ["s"]}]});
    let world = || world().slice(slice(&json!([device, other]))).claim(&claim);
    assert_eq!(world().chosen(), "a b s/one:a");
    assert!(world().quirk(Quirk::LateRefusalKeeps).chosen().starts_with("claim default/c0"));
}

#[test]
fn a_taint_keeps_those_away_who_do_not_tolerate_it() {
    let taint = |effect: &str| json!([{"key": "k", "value": "v", "effect": effect}]);
    let device = |effect| json!([{"name": "a", "taints": taint(effect)}, {"name": "b"}]);
    let world = |effect| world().slice(slice(&device(effect))).requests(&[request(1)]);
    assert_eq!(world("NoSchedule").chosen(), "b");
    assert_eq!(world("NoExecute").chosen(), "b");
    assert_eq!(world("None").chosen(), "a");
    assert_eq!(world("None").quirk(Quirk::AnyTaintEffect).chosen(), "b");
    assert_eq!(world("NoSchedule").without(Feature::DeviceTaints).chosen(), "a");
    assert!(world("NoSchedule").held(&["b"]).chosen().ends_with("1 allocated, 1 with taint k=v:NoSchedule"));
}

#[test]
fn tolerations_are_of_the_request_and_are_written_down() {
    let tolerating = with(request(1), &[("/exactly/tolerations", json!([{"key": "k", "operator": "Exists"}]))]);
    let slice = slice(&json!([{"name": "a", "taints": [{"key": "k", "effect": "NoExecute"}]}]));
    let world = || world().slice(slice.clone()).requests(std::slice::from_ref(&tolerating));
    let result = world().result()["devices"]["results"][0].take();
    assert_eq!(result["tolerations"], json!([{"key": "k", "operator": "Exists"}]));
    let result = world().quirk(Quirk::NoTolerationsInResults).result()["devices"]["results"][0].take();
    assert!(result.get("tolerations").is_none());
}

fn admin(count: i64) -> Value {
    with(request(count), &[("/exactly/adminAccess", json!(true))])
}

#[test]
fn access_for_administration_takes_what_others_hold_but_nothing_twice() {
    let world = || world().slice(slice(&devices(&["a", "b"]))).held(&["a"]);
    assert_eq!(world().requests(&[admin(2)]).chosen(), "a b");
    assert!(world().requests(&[admin(3)]).chosen().contains("wants 3 of 2 devices"));
    assert_eq!(world().requests(&[admin(1)]).requests(&[admin(1)]).chosen(), "a | a");
    assert_eq!(world().requests(&[admin(1)]).result()["devices"]["results"][0]["adminAccess"], true);
    assert_eq!(
        world().without(Feature::AdminAccess).requests(&[admin(1)]).fatal(),
        "claim default/c0, request r: it wants access for administration, and feature DRAAdminAccess is off"
    );
}

#[test]
fn what_is_not_known_of_requests_and_classes_ends_the_attempt() {
    let nowhere = with(request(1), &[("/exactly/deviceClassName", json!("nowhere"))]);
    let half = with(request(1), &[("/exactly/allocationMode", json!("Half"))]);
    let strange = with(request(1), &[("/exactly/selectors", json!([{}]))]);
    let list = json!({"name": "r", "firstAvailable": [{"name": "x", "deviceClassName": "any"}]});
    for (request, expected) in [
        (nowhere, "there is no device class nowhere"),
        (half, "allocationMode \"Half\" is not known"),
        (strange, "selector #0: there is no CEL expression in it"),
        (json!({"name": "r"}), "it says neither exactly nor firstAvailable"),
        (json!({"name": "r", "exactly": {}}), "it names no device class"),
        (list, "it lists alternatives, and feature DRAPrioritizedList is off"),
    ] {
        let fatal = world().without(Feature::PrioritizedList).requests(&[request]).fatal();
        assert!(fatal.starts_with("claim default/c0, request r") && fatal.ends_with(expected), "{fatal}");
    }
}

#[test]
fn a_selector_that_is_no_selector_ends_the_attempt_when_it_is_needed() {
    let selecting = with(request(1), &[("/exactly/selectors", json!([{"cel": {"expression": "what?"}}]))]);
    assert!(world().requests(std::slice::from_ref(&selecting)).chosen().ends_with("the node has no devices"));
    let fatal = world().slice(slice(&devices(&["a"]))).requests(&[selecting]).fatal();
    assert!(fatal.starts_with("claim default/c0, selector #0: failed to compile \"what?\": "), "{fatal}");
}

fn parameters(value: i64) -> Value {
    json!({"driver": "d", "parameters": {"a": value}})
}

fn configured_class() -> DeviceClass {
    let spec = json!({"selectors": [], "config": [{"opaque": parameters(1)}]});
    serde_json::from_value(json!({"metadata": {"name": "any"}, "spec": spec})).unwrap()
}

#[test]
fn configuration_is_that_of_classes_once_and_then_that_of_the_claim() {
    let second = with(request(1), &[("/name", json!("s"))]);
    let third = with(request(1), &[("/name", json!("t")), ("/exactly/deviceClassName", json!("other"))]);
    let config = json!([
        {"requests": ["s", "t"], "opaque": parameters(2)},
        {"requests": ["unknown"], "opaque": parameters(3)},
        {"opaque": parameters(4)},
        {"requests": ["r", "s", "t"], "opaque": parameters(5)},
    ]);
    let claim = json!({"requests": [request(1), second, third], "config": config});
    let config = |quirks: Quirks| {
        let mut world = world().class(class("other", "true")).slice(slice(&devices(&["a", "b", "c"]))).claim(&claim);
        world.classes[0] = configured_class();
        world.quirks = quirks;
        let config = world.result()["devices"]["config"].take();
        let entry =
            |it: &Value| format!("{}{}", it["opaque"]["parameters"]["a"], it.get("requests").unwrap_or(&json!([])));
        config.as_array().unwrap().iter().map(entry).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(config(Quirks::none()), "1[\"r\",\"s\"] 2[\"s\",\"t\"] 4[] 5[]");
    let old = Quirks::none().with(Quirk::ConfigPerRequest);
    let all = "5[\"r\",\"s\",\"t\"]";
    assert_eq!(config(old), format!("1[\"r\",\"s\"] 2[\"s\",\"t\"] 2[\"s\",\"t\"] 4[] {all} {all} {all}"));
}

#[test]
fn the_allocation_says_on_which_nodes_it_is_good() {
    let selector =
        |key: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]});
    let without_node = |slice| with(slice, &[("/spec/nodeName", json!(null))]);
    let everywhere = with(without_node(slice(&devices(&["a"]))), &[("/spec/allNodes", json!(true))]);
    let result = |slice: &Value| {
        let mut world = world().slice(slice.clone()).requests(&[request(1)]);
        world.labels.insert("zone".to_owned(), "z".to_owned());
        world.result()["nodeSelector"].take()
    };
    assert_eq!(result(&everywhere), Value::Null);
    let here =
        json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]});
    assert_eq!(result(&slice(&devices(&["a"]))), here);
    let binding = with(everywhere.clone(), &[("/spec/devices/0/bindsToNode", json!(true))]);
    assert_eq!(result(&binding), here);
    let selected = with(without_node(slice(&devices(&["a"]))), &[("/spec/nodeSelector", selector("zone"))]);
    assert_eq!(result(&selected), selector("zone"));
    let each = with(
        everywhere,
        &[
            ("/spec/allNodes", json!(null)),
            ("/spec/perDeviceNodeSelection", json!(true)),
            ("/spec/devices/0/nodeSelector", selector("zone")),
        ],
    );
    assert_eq!(result(&each), selector("zone"));
}

#[test]
fn requirements_of_several_devices_are_joined() {
    let requirement = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let slice_with = |name: &str, requirements: &[Value]| {
        let selector = json!({"nodeSelectorTerms": [{"matchExpressions": requirements}]});
        with(
            slice(&devices(&[name])),
            &[
                ("/spec/nodeName", json!(null)),
                ("/spec/nodeSelector", selector),
                ("/metadata/name", json!(name)),
                ("/spec/pool/resourceSliceCount", json!(2)),
            ],
        )
    };
    let mut world = world().slice(slice_with("a", &[requirement("x", &["1", "2"]), requirement("y", &["1"])]));
    world = world
        .slice(slice_with("b", &[requirement("x", &["2", "1"]), requirement("z", &["1"])]))
        .requests(&[request(2)]);
    world.labels = ["x", "y", "z"].map(|key| (key.to_owned(), "1".to_owned())).into();
    let joined = [requirement("x", &["1", "2"]), requirement("y", &["1"]), requirement("z", &["1"])];
    assert_eq!(world.result()["nodeSelector"], json!({"nodeSelectorTerms": [{"matchExpressions": joined}]}));
}

#[test]
fn binding_conditions_are_those_of_the_device() {
    let device = json!([{"name": "a", "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}]);
    let result = world().slice(slice(&device)).requests(&[request(1)]).result()["devices"]["results"][0].take();
    assert_eq!(result["bindingConditions"], json!(["ready"]));
    assert_eq!(result["bindingFailureConditions"], json!(["failed"]));
}

#[test]
fn a_later_alternative_for_all_devices_loses_itself_in_old_allocators() {
    let alternatives = json!({"name": "s", "firstAvailable": [
        {"name": "none", "deviceClassName": "none", "allocationMode": "All"},
        {"name": "all", "deviceClassName": "any", "allocationMode": "All"}]});
    let world = || {
        world()
            .class(class("none", "false"))
            .slice(slice(&devices(&["a", "b"])))
            .requests(std::slice::from_ref(&alternatives))
    };
    assert_eq!(world().chosen(), "s/all:a s/all:b");
    assert!(world().quirk(Quirk::AllLosesAlternative).chosen().starts_with("claim"));
    // What matches the first one is taken for what matches the second.
    assert!(world().quirk(Quirk::SecondInheritsMatches).chosen().starts_with("claim"));
}
