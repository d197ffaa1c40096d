//! Inventories, and what is published of them.

use std::time::SystemTime;

use hostler_api::{
    QualifiedName, Quantity,
    hardware::{NodeHardwareSpec, NodeHold},
};
use hostler_backend::{
    AttributeValue, BindingConditions, Capacity, CounterUse, Health, NodeAllocatable, RequestPolicy, Sharing,
};
use serde_json::{Value, json};

use super::*;
use crate::{inventory::Drain, kubernetes::holds::HeldDevices};

fn settings() -> SliceSettings {
    SliceSettings {
        driver: "hostler.dev".to_owned(),
        evict_unhealthy: false,
        list_attributes: false,
        node_allocatable: NodeAllocatableNames::Off,
    }
}

fn name(name: &str) -> DeviceName {
    DeviceName::new(name).unwrap()
}

fn named(name: &str) -> Device {
    Device::new(self::name(name))
}

fn many(count: usize) -> Vec<Device> {
    (0..count).map(|index| named(&format!("d{index}"))).collect()
}

fn qualified(name: &str) -> QualifiedName {
    QualifiedName::new(name).unwrap()
}

fn inventory_of(pool: Pool) -> Inventory {
    let pool = Pool { name: "node/fake".to_owned(), ..pool };
    Inventory { pools: [(BackendName::new("fake").unwrap(), pool.into())].into(), ..Inventory::default() }
}

fn inventory(devices: Vec<Device>) -> Inventory {
    inventory_of(Pool { devices, ..Pool::default() })
}

fn the_pool(inventory: &Inventory, settings: &SliceSettings, dropped: &[Feature]) -> DesiredPool {
    let mut pools = desired_slices(inventory, &HoldsInForce::default(), settings, &dropped.iter().copied().collect());
    assert_eq!(pools.len(), 1);
    pools.remove(0)
}

/// The only device of the only slice, as JSON.
fn published(device: Device, settings: &SliceSettings, dropped: &[Feature]) -> Value {
    let pool = the_pool(&inventory(vec![device]), settings, dropped);
    assert_eq!((pool.slices.len(), pool.left_out.as_slice()), (1, [].as_slice()));
    serde_json::to_value(&pool.slices[0].content.devices[0]).unwrap()
}

fn sizes(pool: &DesiredPool) -> Vec<usize> {
    pool.slices.iter().map(|slice| slice.content.devices.len()).collect()
}

#[test]
fn a_backend_of_which_nothing_is_known_is_not_said_to_have_nothing() {
    let unknown = UnknownPool { name: "node/fake".to_owned(), reason: "it hangs".to_owned() };
    let unknown = [(BackendName::new("fake").unwrap(), unknown)].into();
    let pool = the_pool(&Inventory { unknown, ..Inventory::default() }, &settings(), &[]);
    assert!(pool.unknown && pool.slices.is_empty(), "{pool:?}");
    assert!(!the_pool(&inventory(Vec::new()), &settings(), &[]).unknown);
}

#[test]
fn a_backend_is_a_pool_and_one_without_devices_has_no_slices() {
    let pool = the_pool(&inventory(many(1)), &settings(), &[]);
    assert_eq!((pool.name.as_str(), sizes(&pool)), ("node/fake", vec![1]));
    let counters = [(name("slots"), Quantity::whole(2))].into();
    let counter_sets = vec![CounterSet { name: name("card"), counters }];
    let bare = inventory_of(Pool { counter_sets, ..Pool::default() });
    assert_eq!(the_pool(&bare, &settings(), &[]).slices, []);
}

#[test]
fn devices_keep_their_order_over_all_slices() {
    let pool = the_pool(&inventory(many(150)), &settings(), &[]);
    assert_eq!(sizes(&pool), [64, 64, 22]);
    let names = pool.slices.iter().flat_map(|slice| &slice.content.devices).map(|device| device.name.to_string());
    assert!(names.eq((0..150).map(|index| format!("d{index}"))));
    assert!(pool.slices.is_sorted_by(|one, other| one.name < other.name));
}

#[test]
fn slices_hold_128_devices_where_none_can_have_what_takes_more_room() {
    let split = |devices, settings: &SliceSettings| sizes(&the_pool(&inventory(devices), settings, &[Feature::Taints]));
    assert_eq!(split(many(150), &settings()), [128, 22]);
    let mut devices = many(150);
    devices[3].attributes.insert(qualified("nodes"), AttributeValue::Ints(vec![1, 2]));
    assert_eq!(split(devices.clone(), &settings()), [128, 22]);
    assert_eq!(split(devices, &SliceSettings { list_attributes: true, ..settings() }), [64, 64, 22]);
}

#[test]
fn attributes_go_over_as_they_are_and_lists_only_where_they_are_taken() {
    let mut device = named("a");
    for (name, value) in [
        ("resource.kubernetes.io/numaNode", AttributeValue::Int(1)),
        ("fast", AttributeValue::Bool(true)),
        ("model", AttributeValue::String("x".into())),
        ("firmware", AttributeValue::Version("1.2.3".into())),
        ("nodes", AttributeValue::Ints(vec![0, 1])),
        ("ports", AttributeValue::Strings(vec!["p".to_owned()])),
    ] {
        device.attributes.insert(qualified(name), value);
    }
    let mut expected = json!({
        "resource.kubernetes.io/numaNode": {"int": 1}, "fast": {"bool": true}, "model": {"string": "x"},
        "firmware": {"version": "1.2.3"},
    });
    assert_eq!(published(device.clone(), &settings(), &[])["attributes"], expected);
    expected["nodes"] = json!({"ints": [0, 1]});
    expected["ports"] = json!({"strings": ["p"]});
    let with_lists = SliceSettings { list_attributes: true, ..settings() };
    assert_eq!(published(device, &with_lists, &[])["attributes"], expected);
}

fn shared(value: u64, policy: Option<[u64; 3]>) -> Device {
    let policy =
        policy.map(|it| it.map(Quantity::whole)).map(|[default, min, step]| RequestPolicy { default, min, step });
    let mut device = named("a");
    device.sharing = Sharing::Shared;
    device.capacity.insert(qualified("memory"), Capacity { value: Quantity::whole(value), policy });
    device
}

#[test]
fn a_shared_device_says_how_its_capacities_are_parted() {
    let policy = |device| published(device, &settings(), &[])["capacity"]["memory"]["requestPolicy"].take();
    let range = json!({"default": "4", "validRange": {"min": "2", "max": "16", "step": "2"}});
    assert_eq!(policy(shared(16, Some([4, 2, 2]))), range);
    // A range without room for a step is refused by the server.
    assert_eq!(policy(shared(2, Some([2, 2, 2]))), json!({"default": "2", "validValues": ["2"]}));
    // Without a policy, only the whole of it.
    assert_eq!(policy(shared(16, None)), json!({"default": "16", "validValues": ["16"]}));
    assert_eq!(published(shared(16, None), &settings(), &[])["allowMultipleAllocations"], true);
}

#[test]
fn a_server_without_consumable_capacity_sees_an_exclusive_device() {
    let device = published(shared(16, Some([4, 2, 2])), &settings(), &[Feature::Sharing]);
    assert_eq!(device, json!({"name": "a", "capacity": {"memory": {"value": "16"}}}));
}

#[test]
fn what_nobody_new_shall_get_is_tainted() {
    let taints = |health, stale: bool, evict: Option<bool>, settings: &SliceSettings| {
        let device = Device { health, ..named("a") };
        let stale = stale.then(|| "broken".to_owned());
        let mut inventory = inventory_of(Pool { devices: vec![device], stale, ..Pool::default() });
        let drain = evict.map(|evict| Drain { since: SystemTime::UNIX_EPOCH, reason: None, evict });
        let key = (BackendName::new("fake").unwrap(), name("a"));
        inventory.drains = drain.map(|drain| (key, drain)).into_iter().collect();
        let pool = the_pool(&inventory, settings, &[]);
        let taints = &pool.slices[0].content.devices[0].taints;
        taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect::<Vec<_>>().join(" ")
    };
    let evicting = SliceSettings { evict_unhealthy: true, ..settings() };
    let unhealthy = || Health::Unhealthy { reason: "47 degrees".to_owned() };
    let unknown = || Health::Unknown { reason: "no sensor".to_owned() };
    assert_eq!(taints(Health::Healthy, false, None, &evicting), "");
    assert_eq!(taints(unhealthy(), false, None, &settings()), "hostler.dev/unhealthy:NoSchedule");
    assert_eq!(taints(unhealthy(), false, None, &evicting), "hostler.dev/unhealthy:NoExecute");
    assert_eq!(taints(unknown(), false, None, &evicting), "hostler.dev/unknown:NoSchedule");
    assert_eq!(taints(Health::Healthy, true, None, &evicting), "hostler.dev/stale:NoSchedule");
    assert_eq!(taints(Health::Healthy, false, Some(false), &evicting), "hostler.dev/drained:NoSchedule");
    assert_eq!(
        taints(unhealthy(), true, Some(true), &settings()),
        "hostler.dev/unhealthy:NoSchedule hostler.dev/stale:NoSchedule hostler.dev/drained:NoExecute"
    );
}

fn held(device: Device, dropped: &[Feature]) -> DesiredPool {
    let hold = NodeHold {
        pool: "node/fake".to_owned(),
        device: device.name.to_string(),
        value: "0123456789abcdef".to_owned(),
    };
    let spec = NodeHardwareSpec { holds: vec![hold], ..NodeHardwareSpec::default() };
    let inventory = inventory(vec![device]);
    let holds = HeldDevices::of(&spec, 1).in_force(&inventory);
    desired_slices(&inventory, &holds, &settings(), &dropped.iter().copied().collect()).remove(0)
}

#[test]
fn a_held_device_says_for_whom_beside_all_that_is_wrong_with_it() {
    let unhealthy = Health::Unhealthy { reason: "hot".to_owned() };
    let pool = held(Device { health: unhealthy, ..named("a") }, &[]);
    assert_eq!(
        serde_json::to_value(&pool.slices[0].content.devices[0].taints).unwrap(),
        json!([
            {"key": "hostler.dev/unhealthy", "value": "failed", "effect": "NoSchedule"},
            {"key": "hostler.dev/held", "value": "0123456789abcdef", "effect": "NoSchedule"},
        ])
    );
}

#[test]
fn an_attribute_says_for_whom_a_device_is_held_where_there_is_room() {
    let full = |count: i64| {
        let attributes = (0..count).map(|index| (qualified(&format!("x{index}")), AttributeValue::Int(index)));
        let pool = held(Device { attributes: attributes.collect(), ..named("a") }, &[]);
        assert!(pool.left_out.is_empty(), "{pool:?}");
        serde_json::to_value(&pool.slices[0].content.devices[0].attributes).unwrap()["hostler.dev/heldFor"].clone()
    };
    assert_eq!(full(31), json!({"string": "0123456789abcdef"}));
    assert_eq!(full(32), json!(null));
}

#[test]
fn without_taints_an_attribute_says_that_a_device_is_held() {
    let pool = held(named("a"), &[Feature::Taints]);
    assert_eq!(
        serde_json::to_value(&pool.slices[0].content.devices[0]).unwrap(),
        json!({"name": "a", "attributes": {
            "hostler.dev/held": {"bool": true}, "hostler.dev/heldFor": {"string": "0123456789abcdef"},
        }})
    );
    let mut full = named("b");
    full.attributes = (0..32).map(|index| (qualified(&format!("x{index}")), AttributeValue::Int(index))).collect();
    let pool = held(full, &[Feature::Taints]);
    assert_eq!(pool.left_out, ["node/fake/b: it is held, and has no room for the attribute that says so"]);
}

#[test]
fn the_reason_of_a_taint_is_not_published() {
    let taints = |reason: &str| {
        published(Device { health: Health::Unhealthy { reason: reason.to_owned() }, ..named("a") }, &settings(), &[])
    };
    assert_eq!(taints("47 degrees"), taints("48 degrees"));
}

#[test]
fn without_taints_what_is_known_not_to_work_is_left_out() {
    let mut devices = many(3);
    devices[1].health = Health::Unhealthy { reason: "hot".to_owned() };
    let pool = the_pool(&inventory(devices), &settings(), &[Feature::Taints]);
    let names: Vec<&str> = pool.slices[0].content.devices.iter().map(|device| &*device.name).collect();
    assert_eq!(names, ["d0", "d2"]);
    assert!(pool.left_out[0].starts_with("node/fake/d1: it would have the taint hostler.dev/unhealthy"), "{pool:?}");
}

#[test]
fn a_device_that_turns_unhealthy_moves_no_other() {
    let healthy = many(200);
    let mut unhealthy = healthy.clone();
    for device in &mut unhealthy {
        device.health = Health::Unhealthy { reason: "hot".to_owned() };
    }
    let names = |devices| {
        let pool = the_pool(&inventory(devices), &settings(), &[]);
        let names = |slice: &DesiredSlice| {
            (slice.name.clone(), slice.content.devices.iter().map(|device| device.name.clone()).collect::<Vec<_>>())
        };
        pool.slices.iter().map(names).collect::<Vec<_>>()
    };
    assert_eq!(names(healthy), names(unhealthy));
}

/// Two partitions of a card with two slots.
fn card() -> Pool {
    let counter = |count| [(name("slots"), Quantity::whole(count))].into();
    let partition = |it: &str, set: &str| {
        let mut device = named(it);
        device.consumes.push(CounterUse { set: name(set), counters: counter(1) });
        device
    };
    Pool {
        devices: vec![partition("p0", "card"), partition("p1", "card"), named("plain"), partition("lost", "other")],
        counter_sets: vec![
            CounterSet { name: name("card"), counters: counter(2) },
            CounterSet { name: name("card"), counters: counter(3) },
        ],
        ..Pool::default()
    }
}

#[test]
fn counters_have_slices_of_their_own_and_references_that_lead_nowhere_are_left_out() {
    let pool = the_pool(&inventory_of(card()), &settings(), &[]);
    let slices: Vec<Value> = pool
        .slices
        .iter()
        .map(|slice| json!({"sets": slice.content.shared_counters, "devices": slice.content.devices}))
        .collect();
    let uses = json!([{"counterSet": "card", "counters": {"slots": {"value": "1"}}}]);
    assert_eq!(
        slices,
        [
            json!({"sets": [{"name": "card", "counters": {"slots": {"value": "2"}}}], "devices": []}),
            json!({"sets": [], "devices": [
                {"name": "p0", "consumesCounters": uses}, {"name": "p1", "consumesCounters": uses}, {"name": "plain"},
            ]}),
        ]
    );
    assert_eq!(pool.left_out, ["node/fake/lost: it draws on a counter that its backend does not have"]);
}

#[test]
fn a_server_without_counters_never_sees_devices_that_exclude_each_other() {
    let pool = the_pool(&inventory_of(card()), &settings(), &[Feature::Counters]);
    assert_eq!(serde_json::to_value(&pool.slices[0].content.devices).unwrap(), json!([{"name": "plain"}]));
    assert_eq!((pool.slices.len(), pool.left_out.len()), (1, 3));
}

#[test]
fn nine_counter_sets_need_two_slices() {
    let sets = (0..9).map(|at| CounterSet { name: name(&format!("s{at}")), counters: [].into() }).collect();
    let pool = Pool { counter_sets: sets, devices: many(1), ..Pool::default() };
    let pool = the_pool(&inventory_of(pool), &settings(), &[]);
    let sizes: Vec<usize> = pool.slices.iter().map(|slice| slice.content.shared_counters.len()).collect();
    assert_eq!(sizes, [8, 1, 0]);
}

#[test]
fn binding_conditions_are_published_where_they_are_stored() {
    let mut device = named("a");
    device.binding = Some(BindingConditions {
        binds_to_node: true,
        conditions: vec!["attached".to_owned()],
        failure_conditions: vec!["broken".to_owned()],
    });
    let expected = json!({
        "name": "a", "bindsToNode": true, "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"],
    });
    assert_eq!(published(device.clone(), &settings(), &[]), expected);
    assert_eq!(published(device, &settings(), &[Feature::Binding]), json!({"name": "a"}));
}

#[test]
fn what_a_device_takes_of_the_node_goes_by_the_names_of_the_configured_version() {
    let mut device = named("a");
    let capacity = qualified("size");
    device.node_allocatable = [
        ("cpu".to_owned(), NodeAllocatable::PerDevice(Quantity::whole(2))),
        ("memory".to_owned(), NodeAllocatable::PerCapacity { capacity, factor: Quantity::whole(1) }),
    ]
    .into();
    let with = |node_allocatable| published(device.clone(), &SliceSettings { node_allocatable, ..settings() }, &[]);
    assert_eq!(with(NodeAllocatableNames::Off), json!({"name": "a"}));
    assert_eq!(
        with(NodeAllocatableNames::V1_36),
        json!({"name": "a", "nodeAllocatableResourceMappings": {
            "cpu": {"allocationMultiplier": "2"}, "memory": {"capacityKey": "size", "allocationMultiplier": "1"},
        }})
    );
    assert_eq!(
        with(NodeAllocatableNames::V1_37),
        json!({"name": "a", "nodeAllocatableResources": {
            "cpu": {"mapping": {"deviceMultiplier": "2"}},
            "memory": {"mapping": {"capacityKey": "size", "capacityMultiplier": "1"}},
        }})
    );
}
