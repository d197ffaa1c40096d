//! Which devices a node can use, and in which order.

use super::{support::*, *};

fn named(name: &str, slice: Value) -> Value {
    with(slice, &[("/metadata/name", json!(name))])
}

fn of_pool(pool: &str, slice: Value) -> Value {
    with(slice, &[("/spec/pool/name", json!(pool)), ("/metadata/name", json!(pool))])
}

fn of(generation: i64, count: i64, slice: Value) -> Value {
    with(slice, &[("/spec/pool/generation", json!(generation)), ("/spec/pool/resourceSliceCount", json!(count))])
}

#[test]
fn pools_come_by_driver_and_name_and_slices_by_name() {
    let slices = |world: super::support::World| {
        let second = of(1, 2, named("b", slice(&devices(&["p1"]))));
        let first = of(1, 2, named("a", slice(&devices(&["p2"]))));
        let driver = with(of_pool("x", slice(&devices(&["c1"]))), &[("/spec/driver", json!("c"))]);
        world
            .slice(of_pool("q", slice(&devices(&["q1"]))))
            .slice(second)
            .slice(first)
            .slice(driver)
            .requests(&[request(4)])
    };
    assert_eq!(slices(world()).chosen(), "c1 p2 p1 q1");
    assert_eq!(slices(world().quirk(Quirk::SlicesAsListed)).chosen(), "c1 p1 p2 q1");
}

#[test]
fn pools_with_binding_conditions_come_last() {
    let binding = slice(&json!([{"name": "a", "bindingConditions": ["ready"]}]));
    let world = || world().slice(binding.clone()).slice(of_pool("q", slice(&devices(&["b"])))).requests(&[request(2)]);
    assert_eq!(world().chosen(), "b a");
    assert_eq!(world().quirk(Quirk::BindingPoolsAnywhere).chosen(), "a b");
    assert!(world().without(Feature::DeviceBindingConditions).chosen().starts_with("claim"));
}

#[test]
fn only_the_newest_generation_counts() {
    let old = of(1, 1, named("old", slice(&devices(&["a"]))));
    let new = of(2, 1, named("new", slice(&devices(&["b"]))));
    assert_eq!(world().slice(old.clone()).slice(new.clone()).requests(&[request(1)]).chosen(), "b");
    assert_eq!(world().slice(new).slice(old).requests(&[request(1)]).chosen(), "b");
}

#[test]
fn a_pool_that_is_about_to_be_replaced_is_none() {
    let old = of(1, 2, named("old", slice(&devices(&["a"]))));
    let new = with(of(2, 2, named("new", slice(&devices(&["b"])))), &[("/spec/nodeName", json!("m"))]);
    assert_eq!(
        world().slice(old).slice(new).requests(&[request(1)]).no_fit(),
        "claim default/c0, request \"r\": the node has no devices"
    );
}

#[test]
fn devices_of_an_incomplete_pool_cannot_be_had() {
    let world = || world().slice(of(1, 2, slice(&devices(&["a"])))).requests(&[request(1)]);
    let mut incomplete = world();
    let Err(Refusal::NoFit(reason)) = incomplete.allocate() else { panic!() };
    assert_eq!(reason.pools, ["pool d/p is incomplete: some of its slices are missing"]);
    assert_eq!(world().quirk(Quirk::IncompletePoolsUsed).chosen(), "a");
}

#[test]
fn slices_for_other_nodes_complete_a_pool_but_not_in_old_allocators() {
    let other = with(of(1, 2, named("t", slice(&devices(&["b"])))), &[("/spec/nodeName", json!("m"))]);
    let world = || world().slice(of(1, 2, slice(&devices(&["a"])))).slice(other.clone()).requests(&[request(1)]);
    assert_eq!(world().chosen(), "a");
    assert!(world().quirk(Quirk::CompleteOnNode).chosen().starts_with("claim"));
}

#[test]
fn a_pool_with_two_devices_of_one_name_is_invalid() {
    let world = || {
        let invalid = of_pool("q", slice(&devices(&["b", "a", "b"])));
        world().slice(slice(&devices(&["a"]))).slice(invalid)
    };
    assert_eq!(world().requests(&[request(1)]).chosen(), "a");
    let mut two = world().requests(&[request(2)]);
    let Err(Refusal::NoFit(reason)) = two.allocate() else { panic!() };
    assert_eq!(reason.pools, ["pool d/q is invalid: it has two devices b"]);
    assert_eq!(
        world().quirk(Quirk::InvalidPoolsFatal).requests(&[request(2)]).fatal(),
        "pool d/q is invalid: it has two devices b"
    );
    assert_eq!(world().quirk(Quirk::InvalidPoolsFatal).requests(&[request(1)]).chosen(), "a");
}

#[test]
fn a_pool_whose_devices_consume_what_is_not_there_is_invalid() {
    let consuming = |set: &str, counter: &str| json!({"name": "a", "consumesCounters": [{"counterSet": set, "counters": {counter: {"value": "1"}}}]});
    let counters = |name: &str| {
        let sets = json!([{"name": "card", "counters": {"memory": {"value": "8"}}}]);
        with(named(name, slice(&json!([]))), &[("/spec/sharedCounters", sets)])
    };
    for (device, sets, expected) in [
        (consuming("other", "memory"), 1, "device a consumes of counter set other, which it lacks"),
        (consuming("card", "slots"), 1, "device a consumes slots of counter set card, which it lacks"),
        (consuming("card", "memory"), 2, "it has two counter sets card"),
    ] {
        let mut world = world().slice(of(1, sets + 1, slice(&json!([device])))).requests(&[request(1)]);
        for set in 0..sets {
            world = world.slice(of(1, sets + 1, counters(&format!("c{set}"))));
        }
        let Err(Refusal::NoFit(reason)) = world.allocate() else { panic!() };
        assert_eq!(reason.pools, [format!("pool d/p is invalid: {expected}")]);
    }
}

#[test]
fn all_devices_cannot_be_had_while_nobody_knows_which_these_are() {
    let incomplete = of_pool("q", of(1, 2, slice(&devices(&["b"]))));
    let incomplete = with(incomplete, &[("/spec/pool/resourceSliceCount", json!(2))]);
    assert_eq!(
        world().slice(slice(&devices(&["a"]))).slice(incomplete).requests(&[all()]).fatal(),
        "claim default/c0, request r: it asks for all devices, but pool d/q is incomplete: some of its slices are missing"
    );
}

fn without_node(slice: Value) -> Value {
    with(slice, &[("/spec/nodeName", json!(null))])
}

fn zone(zone: &str) -> Value {
    json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]})
}

#[test]
fn a_slice_is_for_one_node_for_those_with_labels_or_for_all() {
    let world = |field: &str, value: Value| {
        let mut world =
            world().slice(with(without_node(slice(&devices(&["a"]))), &[(&format!("/spec/{field}"), value)]));
        world.labels.insert("zone".to_owned(), "z".to_owned());
        world.requests(&[request(1)])
    };
    for (field, value, expected) in [
        ("nodeName", json!("n"), true),
        ("nodeName", json!("m"), false),
        ("allNodes", json!(true), true),
        ("allNodes", json!(false), false),
        ("nodeSelector", zone("z"), true),
        ("nodeSelector", zone("y"), false),
    ] {
        assert_eq!(world(field, value.clone()).chosen() == "a", expected, "{field} {value}");
    }
}

#[test]
fn each_device_may_say_itself_which_nodes_can_use_it() {
    let devices = json!([{"name": "a", "nodeName": "m"}, {"name": "b", "nodeSelector": zone("y")},
        {"name": "c", "nodeName": "n"}, {"name": "e", "allNodes": true}, {"name": "f"}, {"name": "g", "nodeSelector": zone("z")}]);
    let slice = with(without_node(slice(&devices)), &[("/spec/perDeviceNodeSelection", json!(true))]);
    let world = || {
        let mut world = world().slice(slice.clone());
        world.labels.insert("zone".to_owned(), "z".to_owned());
        world
    };
    assert_eq!(world().requests(&[all()]).chosen(), "c e g");
    assert!(world().requests(&[request(4)]).chosen().ends_with("it wants 4 of 3 devices that match, and 3 can be had"));
    assert!(world().without(Feature::PartitionableDevices).requests(&[request(1)]).chosen().contains("no devices"));
}

#[test]
fn a_node_selector_that_means_nothing_is_an_error() {
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Like"}]}]});
    let slice = with(without_node(slice(&devices(&["a"]))), &[("/spec/nodeSelector", selector)]);
    let slices: Vec<ResourceSlice> = vec![serde_json::from_value(slice).unwrap()];
    let labels = BTreeMap::new();
    let node = NodeFacts { name: "n", labels: &labels };
    let error = NodePools::gather(Features::all(), Quirks::none(), node, &SliceIndex::new(&slices)).unwrap_err();
    assert_eq!(error.to_string(), "slice s: its nodeSelector cannot be understood");
}

#[test]
fn counters_of_other_nodes_make_pools_of_this_one_in_some_versions() {
    let sets = json!([{"name": "card", "counters": {"memory": {"value": "8"}}}]);
    let counters = of(1, 2, named("c", slice(&json!([]))));
    let counters = with(counters, &[("/spec/sharedCounters", sets), ("/spec/nodeName", json!("m"))]);
    let world = || world().slice(of_pool("q", slice(&devices(&["a"])))).slice(counters.clone()).requests(&[all()]);
    assert_eq!(world().chosen(), "a");
    assert!(world().quirk(Quirk::CounterSlicesEverywhere).fatal().contains("pool d/p is incomplete"));
}

#[test]
fn what_is_known_of_pools_elsewhere_is_that_of_the_allocator_that_asks() {
    let sets = json!([{"name": "card", "counters": {"memory": {"value": "8"}}}]);
    let counters = of(1, 2, named("c", slice(&json!([]))));
    let counters = with(counters, &[("/spec/sharedCounters", sets), ("/spec/nodeName", json!("m"))]);
    let slices: Vec<ResourceSlice> = vec![serde_json::from_value(counters).unwrap()];
    let (index, labels) = (SliceIndex::new(&slices), BTreeMap::new());
    let everywhere = Quirks::none().with(Quirk::CounterSlicesEverywhere);
    let pools = |name, features, quirks| {
        NodePools::gather(features, quirks, NodeFacts { name, labels: &labels }, &index).unwrap().pools.len()
    };
    assert_eq!(pools("n", Features::all(), everywhere), 1);
    assert_eq!(pools("n", Features::all(), Quirks::none()), 0);
    assert_eq!(pools("n", Features::default(), everywhere), 0);
    assert_eq!(pools("m", Features::all(), everywhere), 1);
}

#[test]
fn slices_with_binding_conditions_come_last_in_some_versions_also_those_with_counters() {
    let counters = json!([{"name": "card", "counters": {"memory": {"value": "8"}}}]);
    let binding = of(1, 2, slice(&json!([{"name": "a", "bindingConditions": ["ready"]}])));
    let binding = with(binding, &[("/spec/sharedCounters", counters)]);
    let other = of(1, 2, named("t", slice(&devices(&["b"]))));
    let world = || {
        let world = world().quirk(Quirk::SlicesAsListed).quirk(Quirk::CountersPerSlice);
        world.slice(binding.clone()).slice(other.clone()).requests(&[request(2)])
    };
    assert_eq!(world().chosen(), "a b");
    assert_eq!(world().quirk(Quirk::BindingSlicesLast).chosen(), "b a");
}

#[test]
fn of_several_errors_upstreams_first_one_is_named() {
    let failing =
        with(all(), &[("/exactly/selectors", json!([{"cel": {"expression": "device.attributes['d'].x == 1"}}]))]);
    let unknown = with(request(1), &[("/name", json!("s")), ("/exactly/deviceClassName", json!("other"))]);
    let incomplete = with(
        slice(&devices(&["b"])),
        &[("/metadata/name", json!("t")), ("/spec/pool/name", json!("q")), ("/spec/pool/resourceSliceCount", json!(2))],
    );
    let world = || world().slice(slice(&devices(&["a"])));
    let both = [failing.clone(), unknown.clone()];
    assert!(world().requests(&both).fatal().contains("failed to evaluate"));
    assert!(world().requests(&[unknown, failing.clone()]).fatal().contains("there is no device class other"));
    // Devices of a pool are looked at before the next pool.
    assert!(world().slice(incomplete).requests(&[failing]).fatal().contains("failed to evaluate"));
}

#[test]
fn a_pool_that_is_incomplete_and_invalid_is_incomplete_first() {
    let slice = with(slice(&devices(&["a", "a"])), &[("/spec/pool/resourceSliceCount", json!(2))]);
    let world = || world().quirk(Quirk::CountersPerSlice).slice(slice.clone());
    assert!(world().requests(&[all()]).fatal().contains("pool d/p is incomplete"));
    let world = world().quirk(Quirk::InvalidPoolsFatal).quirk(Quirk::IncompletePoolsUsed);
    assert_eq!(world.requests(&[request(1)]).fatal(), "pool d/p is invalid: it has two devices a");
}
