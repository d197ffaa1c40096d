//! What devices of a claim must have in common, or must not.

use super::{support::*, *};

/// A device with attributes of the driver.
fn device(name: &str, attributes: &Value) -> Value {
    json!({"name": name, "attributes": attributes})
}

fn numa(name: &str, node: i64) -> Value {
    device(name, &json!({"numa": {"int": node}}))
}

fn constrained(constraint: &Value, requests: &[Value]) -> Value {
    json!({"requests": requests, "constraints": [constraint]})
}

#[test]
fn a_matched_attribute_has_one_value_on_all_devices() {
    let slice = slice(&json!([numa("a", 0), numa("b", 1), numa("c", 1)]));
    let claim = constrained(&json!({"matchAttribute": "d/numa"}), &[request(2)]);
    assert_eq!(world().slice(slice.clone()).claim(&claim).chosen(), "b c");
    let claim = constrained(&json!({"matchAttribute": "d/numa"}), &[request(3)]);
    assert_eq!(
        world().slice(slice).claim(&claim).no_fit(),
        "claim default/c0, request \"r\": it wants 3 of 3 devices that match, and 2 can be had: 1 against constraint \
         matchAttribute \"d/numa\" (request r has 1)"
    );
}

#[test]
fn a_device_without_the_attribute_meets_no_constraint() {
    let slice = slice(&json!([{"name": "a"}, numa("b", 1)]));
    for kind in ["matchAttribute", "distinctAttribute"] {
        let claim = constrained(&json!({kind: "d/numa"}), &[request(1)]);
        assert_eq!(world().slice(slice.clone()).claim(&claim).chosen(), "b");
    }
}

#[test]
fn a_refusal_names_the_two_requests_that_have_nothing_in_common() {
    let model =
        |name: &str, numa: i64, model: &str| device(name, &json!({"numa": {"int": numa}, "model": {"string": model}}));
    let of_model = |name: &str, model: &str| {
        let selector = json!([{"cel": {"expression": format!("device.attributes['d'].model == '{model}'")}}]);
        with(request(1), &[("/name", json!(name)), ("/exactly/selectors", selector)])
    };
    let requests = [of_model("nic", "n"), of_model("gpu", "g")];
    let claim = constrained(&json!({"matchAttribute": "d/numa"}), &requests);
    let apart = [model("a", 0, "n"), model("b", 1, "n"), model("c", 2, "g"), model("d", 3, "g")];
    assert_eq!(
        world().slice(slice(&json!(apart))).claim(&claim).no_fit(),
        "claim default/c0, request \"gpu\": it wants 1 of 2 devices that match, and 0 can be had: 2 against constraint \
         matchAttribute \"d/numa\" (request nic can only have 0, 1, request gpu only 2, 3)"
    );
    // Devices that others hold are not to be had.
    let world = || {
        world().slice(slice(&json!(apart))).slice(with(
            slice(&json!([model("e", 1, "g")])),
            &[("/metadata/name", json!("t")), ("/spec/pool/name", json!("q"))],
        ))
    };
    assert_eq!(world().claim(&claim).chosen(), "nic:b gpu:e");
    let mut held = world().claim(&claim);
    held.state.hold("d", "q", "e");
    assert!(held.no_fit().ends_with("(request nic can only have 0, 1, request gpu only 2, 3)"));
}

#[test]
fn a_refusal_names_the_values_that_are_not_to_come_again() {
    let other = with(request(1), &[("/name", json!("s"))]);
    let slice = slice(&json!([numa("a", 7), numa("b", 7)]));
    let claim = constrained(&json!({"distinctAttribute": "d/numa"}), &[request(1), other]);
    assert!(
        world()
            .slice(slice)
            .claim(&claim)
            .no_fit()
            .ends_with("1 against constraint distinctAttribute \"d/numa\" (request r has 7)")
    );
}

#[test]
fn a_constraint_is_about_the_requests_that_it_names() {
    let other = with(request(1), &[("/name", json!("s"))]);
    let slice = slice(&json!([numa("a", 0), numa("b", 1), numa("c", 0)]));
    let constraint = |names: Value| json!({"matchAttribute": "d/numa", "requests": names});
    let claim = constrained(&constraint(json!(["r"])), &[request(1), other.clone()]);
    assert_eq!(world().slice(slice.clone()).claim(&claim).chosen(), "a s:b");
    let claim = constrained(&constraint(json!(["r", "s"])), &[request(1), other]);
    assert_eq!(world().slice(slice).claim(&claim).chosen(), "a s:c");
}

#[test]
fn a_constraint_may_name_an_alternative() {
    let alternatives = |name: &str| json!({"name": "s", "firstAvailable": [{"name": name, "deviceClassName": "any"}]});
    let slice = slice(&json!([numa("a", 0), numa("b", 1), numa("c", 0)]));
    let constraint = json!({"matchAttribute": "d/numa", "requests": ["r", "s/x"]});
    let world = |name| world().slice(slice.clone()).claim(&constrained(&constraint, &[request(1), alternatives(name)]));
    assert_eq!(world("x").chosen(), "a s/x:c");
    assert_eq!(world("y").chosen(), "a s/y:b");
}

#[test]
fn the_domain_of_the_driver_may_be_left_out_and_no_other() {
    let slice = slice(&json!([
        device("a", &json!({"numa": {"int": 0}})),
        device("b", &json!({"d/numa": {"int": 0}})),
        device("c", &json!({"e/numa": {"int": 0}})),
    ]));
    let chosen = |name: &str, count| {
        let claim = constrained(&json!({"matchAttribute": name}), &[request(count)]);
        world().slice(slice.clone()).claim(&claim).chosen()
    };
    assert_eq!(chosen("d/numa", 2), "a b");
    assert_eq!(chosen("e/numa", 1), "c");
    assert!(chosen("numa", 2).ends_with("2 against constraint matchAttribute \"numa\" (without the attribute)"));
}

#[test]
fn values_of_different_types_are_never_equal() {
    let slice = slice(&json!([
        device("a", &json!({"x": {"string": "1.0.0"}})),
        device("b", &json!({"x": {"version": "1.0.0"}})),
        device("c", &json!({"x": {"int": 1}})),
        device("d", &json!({"x": {"string": "1.0.0"}})),
    ]));
    let chosen = |kind: &str, count| {
        let claim = constrained(&json!({kind: "d/x"}), &[request(count)]);
        world().without(Feature::ListTypeAttributes).slice(slice.clone()).claim(&claim).chosen()
    };
    assert_eq!(chosen("matchAttribute", 2), "a d");
    assert_eq!(chosen("distinctAttribute", 3), "a b c");
}

#[test]
fn a_distinct_attribute_has_another_value_on_each_device() {
    let slice = slice(&json!([numa("a", 0), numa("b", 1), numa("c", 0), numa("d", 2)]));
    let claim = constrained(&json!({"distinctAttribute": "d/numa"}), &[request(3)]);
    assert_eq!(world().slice(slice.clone()).claim(&claim).chosen(), "a b d");
    // Upstream remembers only the last device of a request.
    assert_eq!(world().quirk(Quirk::DistinctForgets).slice(slice).claim(&claim).chosen(), "a b c");
}

#[test]
fn the_oldest_allocators_compare_distinct_attributes_by_identity() {
    let slice = slice(&json!([numa("a", 0), numa("b", 0)]));
    let claim = constrained(&json!({"distinctAttribute": "d/numa"}), &[request(2)]);
    assert_eq!(
        world()
            .without(Feature::ListTypeAttributes)
            .quirk(Quirk::DistinctByIdentity)
            .slice(slice)
            .claim(&claim)
            .chosen(),
        "a b"
    );
}

#[test]
fn lists_match_where_they_share_a_value_and_are_distinct_where_they_share_none() {
    let slice = slice(&json!([
        device("a", &json!({"x": {"ints": [1, 2]}})),
        device("b", &json!({"x": {"ints": [2, 3]}})),
        device("c", &json!({"x": {"ints": [3, 4]}})),
        device("e", &json!({"x": {"int": 2}})),
        device("f", &json!({"x": {"ints": []}})),
    ]));
    let claim = |kind: &str, count| constrained(&json!({kind: "d/x"}), &[request(count)]);
    let world = || world().slice(slice.clone());
    assert_eq!(world().claim(&claim("matchAttribute", 3)).chosen(), "a b e");
    assert_eq!(world().claim(&claim("distinctAttribute", 2)).chosen(), "a c");
}

#[test]
fn what_devices_have_in_common_grows_again_when_one_is_given_back_but_not_upstream() {
    let slice = slice(&json!([
        device("a", &json!({"x": {"ints": [1, 2]}})),
        device("b", &json!({"x": {"ints": [1]}})),
        device("c", &json!({"x": {"ints": [2]}})),
        device("e", &json!({"x": {"ints": [2]}})),
    ]));
    let claim = constrained(&json!({"matchAttribute": "d/x"}), &[request(3)]);
    assert_eq!(world().slice(slice.clone()).claim(&claim).chosen(), "a c e");
    let upstream = world().quirk(Quirk::CommonValuesStayNarrow).slice(slice).claim(&claim);
    assert!(upstream.chosen().starts_with("claim default/c0"));
}

#[test]
fn all_devices_against_a_constraint_end_the_attempt() {
    let claim = constrained(&json!({"matchAttribute": "d/numa"}), &[all()]);
    assert_eq!(
        world().slice(slice(&json!([numa("a", 0), numa("b", 1)]))).claim(&claim).fatal(),
        "claim default/c0, request r: it asks for all devices, and constraint matchAttribute \"d/numa\" does not allow \
         d/p/b"
    );
}

#[test]
fn a_constraint_without_an_attribute_ends_the_attempt() {
    let fatal = "claim default/c0, constraint #0: it names no attribute that this version knows";
    assert_eq!(world().claim(&constrained(&json!({}), &[request(1)])).fatal(), fatal);
    let distinct = constrained(&json!({"distinctAttribute": "d/x"}), &[request(1)]);
    assert_eq!(world().quirk(Quirk::NoDistinctAttribute).claim(&distinct).fatal(), fatal);
}
