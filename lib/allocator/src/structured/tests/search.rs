//! The order of the search, alternatives, and limits.

use super::{support::*, *};

#[test]
fn the_first_devices_that_fit_are_taken_in_their_order() {
    let world = world().slice(slice(&devices(&["c", "a", "b"]))).requests(&[request(2)]);
    assert_eq!(world.chosen(), "c a");
}

#[test]
fn devices_that_others_hold_are_left_out() {
    let world = world().slice(slice(&devices(&["a", "b", "c"]))).held(&["a", "b"]).requests(&[request(1)]);
    assert_eq!(world.chosen(), "c");
}

#[test]
fn every_request_begins_with_the_first_device_again() {
    let world = world().slice(slice(&devices(&["a", "b"]))).requests(&[request(1)]).requests(&[request(1)]);
    assert_eq!(world.chosen(), "a | b");
}

#[test]
fn a_count_of_nothing_is_satisfied_by_nothing() {
    assert_eq!(world().requests(&[request(0)]).chosen(), "");
}

#[test]
fn without_claims_everything_fits() {
    assert_eq!(world().allocate().unwrap(), []);
}

#[test]
fn all_devices_are_those_of_every_pool_that_match() {
    let other = with(slice(&devices(&["c"])), &[("/spec/pool/name", json!("q")), ("/metadata/name", json!("t"))]);
    let world = world().slice(slice(&devices(&["a", "b"]))).slice(other).requests(&[all()]);
    assert_eq!(world.chosen(), "a b c");
}

#[test]
fn all_devices_must_be_free_and_there_must_be_some() {
    let held = world().slice(slice(&devices(&["a", "b"]))).held(&["b"]).requests(&[all()]);
    assert_eq!(held.no_fit(), "claim default/c0, request \"r\": it wants all of 2 devices that match: 1 allocated");
    assert_eq!(world().requests(&[all()]).no_fit(), "claim default/c0, request \"r\": the node has no devices");
}

fn first_available(alternatives: &[(&str, &str, i64)]) -> Value {
    let alternative = |(name, class, count): &(&str, &str, i64)| {
        json!({"name": name, "deviceClassName": class,
        "allocationMode": "ExactCount", "count": count})
    };
    json!({"name": "r", "firstAvailable": alternatives.iter().map(alternative).collect::<Vec<_>>()})
}

#[test]
fn the_first_alternative_that_can_be_had_is_taken() {
    let world = |alternatives| {
        world()
            .class(class("none", "false"))
            .slice(slice(&devices(&["a", "b"])))
            .requests(&[first_available(alternatives)])
    };
    assert_eq!(world(&[("many", "any", 3), ("two", "any", 2), ("one", "any", 1)]).chosen(), "r/two:a r/two:b");
    assert_eq!(
        world(&[("many", "any", 3), ("other", "none", 1)]).no_fit(),
        "claim default/c0, request \"r/many\": it wants 3 of 2 devices that match, and 2 can be had; request \
         \"r/other\": none of the node's 2 devices matches: 2 not selected by class none, selector #0 (false)"
    );
}

#[test]
fn a_long_selector_is_quoted_with_its_beginning_and_its_end() {
    let long = format!("{}false", "device.driver == 'first' && ".repeat(300));
    let refusal = world().class(class("none", &long)).slice(slice(&devices(&["a"])));
    let refusal = refusal.requests(&[json!({"name": "r", "exactly": {"deviceClassName": "none"}})]).no_fit();
    assert!(
        refusal.len() < 300 && refusal.contains("(device.driver == 'first'") && refusal.contains("false)"),
        "{refusal}"
    );
}

#[test]
fn an_earlier_choice_is_changed_where_what_follows_needs_it() {
    let alternatives = first_available(&[("two", "any", 2), ("one", "any", 1)]);
    let world = world().slice(slice(&devices(&["a", "b"]))).requests(&[alternatives]).requests(&[request(1)]);
    assert_eq!(world.chosen(), "r/one:a | b");
}

#[test]
fn a_claim_cannot_ask_for_more_than_it_can_hold() {
    assert_eq!(
        world().requests(&[request(33)]).fatal(),
        "claim default/c0: it asks for 33 devices, and a claim can hold 32"
    );
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("d{at:02}")).collect()
}

#[test]
fn alternatives_with_fewer_devices_keep_a_claim_below_its_limit() {
    let names = names(40);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let alternatives = first_available(&[("twenty", "any", 20), ("four", "any", 4)]);
    let second = with(first_available(&[("thirteen", "any", 13)]), &[("/name", json!("s"))]);
    let mut world = world().slice(slice(&devices(&names))).requests(&[alternatives, second]);
    let results = &world.allocate().unwrap()[0].devices.results;
    assert_eq!((results.len(), &*results[0].request, &*results[4].request), (17, "r/four", "s/thirteen"));
}

#[test]
fn the_search_is_given_up_after_so_many_steps_and_always_the_same() {
    let mut world = world().slice(slice(&devices(&["a", "b"]))).requests(&[request(2)]);
    world.allocate().unwrap();
    let steps = world.budget.used();
    // The request, two devices, the end of the request, of the claim, and of all claims.
    assert_eq!(steps, 5);
    world.budget = Budget::steps(steps);
    world.allocate().unwrap();
    world.budget = Budget::steps(steps - 1);
    assert_eq!(world.allocate().unwrap_err(), Refusal::OutOfBudget { steps: steps - 1 });
}

#[test]
fn within_a_request_combinations_are_tried_and_not_permutations() {
    let steps = |quirks: Quirks| {
        let mut world =
            world().slice(slice(&devices(&["a", "b", "c"]))).requests(&[request(2)]).requests(&[request(2)]);
        world.quirks = quirks;
        world.allocate().unwrap_err();
        world.budget.used()
    };
    assert!(steps(Quirks::none()) < steps(Quirks::none().with(Quirk::PermutationsWithinRequest)));
}
