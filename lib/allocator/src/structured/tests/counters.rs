//! Counters that devices share.

use super::{support::*, *};

/// A slice with counters of pool `p`, which has two slices.
fn counters(sets: &Value) -> Value {
    let counters =
        with(slice(&json!([])), &[("/metadata/name", json!("counters")), ("/spec/sharedCounters", sets.clone())]);
    with(counters, &[("/spec/pool/resourceSliceCount", json!(2))])
}

fn partitions(devices: &Value) -> Value {
    with(slice(devices), &[("/spec/pool/resourceSliceCount", json!(2))])
}

fn memory(amount: &str) -> Value {
    json!([{"name": "card", "counters": {"memory": {"value": amount}}}])
}

fn partition(name: &str, amount: &str) -> Value {
    json!({"name": name, "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": amount}}}]})
}

#[test]
fn devices_are_taken_for_as_long_as_their_counters_last() {
    let slices = partitions(&json!([partition("a", "6"), partition("b", "5"), partition("c", "4")]));
    let world = || world().slice(counters(&memory("10"))).slice(slices.clone());
    assert_eq!(world().requests(&[request(2)]).chosen(), "a c");
    assert_eq!(
        world().requests(&[request(3)]).no_fit(),
        "claim default/c0, request \"r\": it wants 3 of 3 devices that match, and 2 can be had: 1 without enough counters \
         left"
    );
    assert_eq!(world().held(&["a"]).requests(&[request(1)]).chosen(), "c");
}

#[test]
fn where_others_hold_more_than_there_is_nothing_is_left() {
    let slices = partitions(&json!([partition("a", "6"), partition("b", "6"), partition("c", "0")]));
    let world = world().slice(counters(&memory("10"))).slice(slices).held(&["a", "b"]);
    assert!(world.requests(&[request(1)]).chosen().contains("1 without enough counters left"));
}

#[test]
fn a_device_that_is_refused_gives_its_counters_back_but_not_upstream() {
    let tainted = with(partition("a", "6"), &[("/taints", json!([{"key": "k", "effect": "NoSchedule"}]))]);
    let slices = partitions(&json!([tainted, partition("b", "6")]));
    let world = || world().slice(counters(&memory("10"))).slice(slices.clone()).requests(&[request(1)]);
    assert_eq!(world().chosen(), "b");
    assert!(world().quirk(Quirk::RefusedKeepsCounters).chosen().starts_with("claim default/c0"));
}

#[test]
fn where_counters_are_not_known_their_devices_cannot_be_had() {
    let world = world().without(Feature::PartitionableDevices).slice(slice(&json!([partition("a", "1")])));
    assert!(world.requests(&[request(1)]).chosen().contains("1 with counters, which are off"));
}

#[test]
fn pools_with_the_same_name_share_what_is_known_upstream() {
    let other = |slice| with(slice, &[("/spec/driver", json!("e"))]);
    let renamed = |slice, name| with(slice, &[("/metadata/name", json!(name))]);
    let partitions = partitions(&json!([partition("a", "6")]));
    let world = || {
        let world = world().slice(counters(&memory("10"))).slice(partitions.clone());
        let world = world.slice(renamed(other(counters(&memory("10"))), "ec"));
        world.slice(renamed(other(partitions.clone()), "ep")).requests(&[request(2)])
    };
    assert_eq!(world().chosen(), "a a");
    assert!(world().quirk(Quirk::CountersByPoolName).chosen().contains("1 without enough counters left"));
}

#[test]
fn counters_of_a_shared_device_are_taken_once() {
    let shared = |name| {
        with(
            partition(name, "6"),
            &[("/allowMultipleAllocations", json!(true)), ("/capacity", json!({"x": {"value": "10"}}))],
        )
    };
    let part = with(request(2), &[("/exactly/capacity", json!({"requests": {"x": "5"}}))]);
    let world = || world().slice(counters(&memory("10"))).slice(partitions(&json!([shared("a"), shared("b")])));
    let each = [
        with(part.clone(), &[("/exactly/count", json!(1))]),
        with(part, &[("/exactly/count", json!(1)), ("/name", json!("s"))]),
    ];
    assert_eq!(world().requests(&each).chosen(), "a s:a");
    assert!(world().quirk(Quirk::SharedRecounts).requests(&each).chosen().starts_with("claim"));
}

#[test]
fn a_shared_device_without_capacities_takes_its_counters_again_after_it_was_given_back_but_not_upstream() {
    let numbered = |device: Value, x: i64| with(device, &[("/attributes", json!({"x": {"int": x}}))]);
    let shared = with(partition("a", "6"), &[("/allowMultipleAllocations", json!(true))]);
    let slices = partitions(&json!([numbered(shared, 1), numbered(partition("b", "6"), 2)]));
    let selector = json!([{"cel": {"expression": "device.attributes['d'].x == 1"}}]);
    let only_a = with(request(1), &[("/name", json!("s")), ("/exactly/selectors", selector)]);
    let claim = json!({"requests": [request(1), only_a], "constraints": [{"distinctAttribute": "d/x"}]});
    let world = || world().slice(counters(&memory("10"))).slice(slices.clone()).claim(&claim);
    assert!(world().no_fit().starts_with("claim default/c0, request \"s\""));
    assert_eq!(world().quirk(Quirk::UseSeenByAmounts).chosen(), "b s:a");
}

#[test]
fn counters_in_the_slice_of_the_devices_count_there_in_old_allocators() {
    let slice =
        with(slice(&json!([partition("a", "6"), partition("b", "6")])), &[("/spec/sharedCounters", memory("10"))]);
    let world = world().quirk(Quirk::CountersPerSlice).slice(slice);
    assert!(world.requests(&[request(2)]).chosen().contains("1 without enough counters left"));
}

#[test]
fn devices_for_other_nodes_take_counters_too() {
    let other = with(
        partitions(&json!([partition("x", "6")])),
        &[("/spec/nodeName", json!("m")), ("/metadata/name", json!("t")), ("/spec/pool/resourceSliceCount", json!(3))],
    );
    let three = |slice| with(slice, &[("/spec/pool/resourceSliceCount", json!(3))]);
    let world = world().slice(three(counters(&memory("10")))).slice(three(partitions(&json!([partition("a", "6")]))));
    assert!(world.slice(other).held(&["x"]).requests(&[request(1)]).chosen().contains("without enough counters"));
}
