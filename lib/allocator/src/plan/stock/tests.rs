//! Stock: what there is of each device, held against the allocator.

use std::collections::BTreeMap;

use hostler_api::{hardware::DeviceTotals, resource::ResourceSlice};
use proptest::prelude::*;

use super::*;
use crate::plan::{
    PlanOptions,
    fixtures::{self, DRIVER, read},
};

/// A slice of a node's only pool; `devices` as JSON.
fn slice(node: &str, count: u32, devices: &str, more: &str) -> ResourceSlice {
    read(&format!(
        r#"{{"metadata":{{"name":"{node}-slice"}},"spec":{{"driver":"{DRIVER}","nodeName":"{node}",
            "pool":{{"name":"{node}","generation":1,"resourceSliceCount":{count}}},"devices":[{devices}]{more}}}}}"#
    ))
}

fn devices_of(facts: &ClusterFacts, pool: &str) -> Vec<StockDevice> {
    let mut judge = DeviceJudge::new(facts, &PlanOptions::default());
    judge.devices(facts, DeviceJudge::pool(facts, DRIVER, pool).unwrap())
}

fn stock_of(facts: &ClusterFacts, pool: &str) -> PoolStock {
    let mut judge = DeviceJudge::new(facts, &PlanOptions::default());
    judge.stock(facts, DeviceJudge::pool(facts, DRIVER, pool).unwrap())
}

fn states(facts: &ClusterFacts, pool: &str) -> Vec<(String, &'static str)> {
    devices_of(facts, pool).into_iter().map(|device| (device.name, device.state.as_str())).collect()
}

fn expect(facts: &ClusterFacts, expected: &[(&str, &str)]) {
    let found = states(facts, "n0");
    let found: Vec<(&str, &str)> = found.iter().map(|(name, state)| (&**name, *state)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_device_that_a_claim_was_given_is_allocated_until_it_is_given_back() {
    let mut facts = fixtures::cluster(&[2]);
    facts.add_claim(&fixtures::claim("a", &["n0/gpu-1"], &["p"]));
    expect(&facts, &[("gpu-0", "free"), ("gpu-1", "allocated")]);
    let holders = devices_of(&facts, "n0").remove(1).holders;
    assert_eq!((holders[0].claim.to_string(), &holders[0].pods), ("default/a".to_owned(), &vec!["p".to_owned()]));
    facts.remove_claim(&ObjectKey::new("default", "a"));
    expect(&facts, &[("gpu-0", "free"), ("gpu-1", "free")]);
}

#[test]
fn who_looks_after_a_device_has_nothing_of_it() {
    let mut facts = fixtures::cluster(&[1]);
    let mut claim = fixtures::claim("a", &["n0/gpu-0"], &[]);
    claim.status.allocation.as_mut().unwrap().devices.results[0].admin_access = Some(true);
    facts.add_claim(&claim);
    expect(&facts, &[("gpu-0", "free")]);
}

#[test]
fn taints_of_drivers_and_of_rules_say_why_a_device_cannot_be_had() {
    let mut facts = fixtures::cluster(&[]);
    let taint = |key: &str| format!(r#""taints":[{{"key":"{key}","effect":"NoSchedule"}}]"#);
    let devices = [
        r#"{"name":"a"}"#.to_owned(),
        format!(r#"{{"name":"b",{}}}"#, taint("gpu.example/unhealthy")),
        format!(r#"{{"name":"c",{}}}"#, taint("gpu.example/drained")),
        format!(r#"{{"name":"d",{}}}"#, taint("hostler.dev/held")),
        r#"{"name":"e"}"#.to_owned(),
    ];
    facts.add_slice(slice("n0", 1, &devices.join(","), ""));
    facts.add_rule(read(
        r#"{"metadata":{"name":"r"},"spec":{"deviceSelector":{"pool":"n0","device":"e"},
            "taint":{"key":"repair","effect":"NoExecute"}}}"#,
    ));
    expect(&facts, &[("a", "free"), ("b", "unhealthy"), ("c", "drained"), ("d", "held"), ("e", "drained")]);
    facts.take_changes();
    facts.remove_rule("r");
    assert_eq!(facts.changed_pools(&facts.changes).len(), 1);
    assert_eq!(states(&facts, "n0")[4].1, "free");
}

#[test]
fn of_devices_that_are_held_it_is_told_for_whom() {
    let mut facts = fixtures::cluster(&[]);
    let of_driver = r#""taints":[{"key":"hostler.dev/held","value":"aa","effect":"NoSchedule"}]"#;
    let by_attribute = r#""attributes":{"hostler.dev/held":{"bool":true}}"#;
    let devices = [
        format!(r#"{{"name":"a",{of_driver}}}"#),
        format!(r#"{{"name":"b",{by_attribute}}}"#),
        r#"{"name":"c"}"#.to_owned(),
        r#"{"name":"d"}"#.to_owned(),
        format!(r#"{{"name":"e",{of_driver}}}"#),
    ];
    facts.add_slice(slice("n0", 1, &devices.join(","), ""));
    facts.add_rule(read(
        r#"{"metadata":{"name":"hold-c"},"spec":{"deviceSelector":{"pool":"n0","device":"c"},
            "taint":{"key":"hostler.dev/held","value":"bb","effect":"NoSchedule"}}}"#,
    ));
    // Who has it takes it from what is held, and it stays kept for those who come after him.
    facts.add_claim(&fixtures::claim("x", &["n0/e"], &[]));
    let pool = facts.pools().next().unwrap();
    let mut judge = DeviceJudge::new(&facts, &PlanOptions::default());
    let told: Vec<_> = judge.devices(&facts, pool).iter().map(|it| (it.state.as_str(), it.held_for.clone())).collect();
    let held = |value: &str| ("held", Some(value.into()));
    assert_eq!(told, [held("aa"), held(""), held("bb"), ("free", None), ("allocated", Some("aa".into()))]);
    let mut sums: Vec<(Arc<str>, u32)> =
        judge.stock(&facts, pool).groups.iter().flat_map(|group| group.held_for.clone()).collect();
    sums.sort();
    assert_eq!(sums, [("".into(), 1), ("aa".into(), 1), ("bb".into(), 1)]);
}

#[test]
fn devices_of_a_pool_that_is_not_whole_or_not_clear_are_given_to_nobody() {
    let mut facts = fixtures::cluster(&[]);
    facts.add_slice(slice("n0", 2, r#"{"name":"a"},{"name":"b"}"#, ""));
    facts.add_claim(&fixtures::claim("a", &["n0/b"], &[]));
    expect(&facts, &[("a", "blocked"), ("b", "allocated")]);
    facts.add_slice(slice("n0", 1, r#"{"name":"a"},{"name":"a"}"#, ""));
    expect(&facts, &[("a", "blocked"), ("a", "blocked")]);
    facts.add_slice(slice("n0", 1, r#"{"name":"a"}"#, ""));
    expect(&facts, &[("a", "free")]);
}

#[test]
fn only_slices_of_the_newest_generation_count() {
    let mut facts = fixtures::cluster(&[]);
    facts.add_slice(slice("n0", 1, r#"{"name":"old"}"#, ""));
    let mut newer = slice("n0", 1, r#"{"name":"new"}"#, "");
    (newer.metadata.name, newer.spec.pool.generation) = ("newer".to_owned(), 2);
    facts.add_slice(newer);
    expect(&facts, &[("new", "free")]);
    facts.remove_slice("newer");
    expect(&facts, &[("old", "free")]);
}

#[test]
fn a_partition_whose_counters_others_have_is_blocked() {
    let mut facts = fixtures::cluster(&[]);
    let part = |name: &str, memory: u32| {
        format!(
            r#"{{"name":"{name}","consumesCounters":[{{"counterSet":"card","counters":{{"memory":{{"value":"{memory}Gi"}}}}}}]}}"#
        )
    };
    let devices = [part("whole", 80), part("half-0", 40), part("half-1", 40)].join(",");
    let card = r#","sharedCounters":[{"name":"card","counters":{"memory":{"value":"80Gi"}}}]"#;
    facts.add_slice(slice("n0", 1, &devices, card));
    expect(&facts, &[("whole", "free"), ("half-0", "free"), ("half-1", "free")]);
    facts.add_claim(&fixtures::claim("a", &["n0/half-0"], &[]));
    expect(&facts, &[("whole", "blocked"), ("half-0", "allocated"), ("half-1", "free")]);
    facts.add_claim(&fixtures::claim("a", &["n0/whole"], &[]));
    expect(&facts, &[("whole", "allocated"), ("half-0", "blocked"), ("half-1", "blocked")]);
}

/// A claim of a namespace that has a part of a device.
fn part(namespace: &str, name: &str, device: &str, cpus: u32) -> hostler_api::resource::ResourceClaim {
    let mut claim = fixtures::claim(name, &[device], &[]);
    namespace.clone_into(&mut claim.metadata.namespace);
    let result = &mut claim.status.allocation.as_mut().unwrap().devices.results[0];
    result.share_id = Some(read("\"8a3bd0ac-6e0d-4c3d-8a5f-1d2e3f405162\""));
    result.consumed_capacity = [("cpus".to_owned(), cpus.to_string().into())].into();
    claim
}

#[test]
fn a_shared_device_is_free_as_long_as_a_part_can_be_had_and_amounts_say_how_much() {
    let mut facts = fixtures::cluster(&[]);
    let device = r#"{"name":"numa0","allowMultipleAllocations":true,"attributes":{"resource.kubernetes.io/numaNode":{"int":1}},
        "capacity":{"cpus":{"value":"8","requestPolicy":{"default":"2","validRange":{"min":"2","step":"2"}}}}}"#;
    facts.add_slice(slice("n0", 1, device, ""));
    let amounts = |facts: &ClusterFacts| {
        let group = stock_of(facts, "n0").groups.remove(0);
        assert_eq!(group.kind.numa_node, Some(1));
        let (_, amounts) = &group.amounts[0];
        let [capacity, allocated, free] =
            [amounts.capacity, amounts.allocated, amounts.free].map(|it| it.as_whole().unwrap());
        (group.counts.free(), group.counts.allocated, [capacity, allocated, free])
    };
    assert_eq!(amounts(&facts), (1, 0, [8, 0, 8]));
    facts.add_claim(&part("a", "one", "n0/numa0", 2));
    facts.add_claim(&part("b", "two", "n0/numa0", 4));
    assert_eq!(amounts(&facts), (1, 0, [8, 6, 2]));
    let given: Vec<(String, u32, u64)> = stock_of(&facts, "n0")
        .given
        .iter()
        .map(|given| (given.namespace.to_string(), given.devices, given.amounts[0].1.as_whole().unwrap()))
        .collect();
    assert_eq!(given, [("a".to_owned(), 1, 2), ("b".to_owned(), 1, 4)]);
    facts.add_claim(&part("a", "three", "n0/numa0", 1));
    assert_eq!(amounts(&facts), (0, 1, [8, 7, 0]));
}

/// What the stock of a pool and the plan's own count say is free.
fn free_counts(facts: &ClusterFacts) -> (u32, usize) {
    let stock: u32 = stock_of(facts, "n0").groups.iter().map(|group| group.counts.free()).sum();
    let left = crate::plan::Snapshot::new(facts.clone()).left(&PlanOptions::default());
    assert_eq!(left.devices[DRIVER], left.classes["gpu"]);
    assert_eq!(left.nodes[0].devices[DRIVER], left.classes["gpu"]);
    (stock, left.classes["gpu"].free)
}

#[test]
fn free_means_the_same_to_a_plan_and_to_the_stock() {
    let mut facts = fixtures::cluster(&[0]);
    let shared = r#"{"name":"numa0","allowMultipleAllocations":true,"capacity":{"cpus":{"value":"8"}}}"#;
    let bad = r#"{"name":"bad","taints":[{"key":"gpu.example/unhealthy","effect":"NoSchedule"}]}"#;
    facts.add_slice(slice("n0", 1, &[shared, bad, r#"{"name":"a"}"#, r#"{"name":"b"}"#].join(","), ""));
    assert_eq!(free_counts(&facts), (3, 3));
    facts.add_claim(&part("a", "one", "n0/numa0", 2));
    assert_eq!(free_counts(&facts), (3, 3), "the rest of a shared device can be had");
    facts.add_claim(&part("a", "two", "n0/numa0", 6));
    assert_eq!(free_counts(&facts), (2, 2), "nothing is left of it");
    facts.add_claim(&fixtures::claim("three", &["n0/a"], &[]));
    assert_eq!(free_counts(&facts), (1, 1));
    facts.add_slice(slice("n0", 2, r#"{"name":"b"}"#, ""));
    assert_eq!(free_counts(&facts), (0, 0), "the pool is not complete");
}

#[test]
fn numa_nodes_are_found_under_the_names_that_drivers_use() {
    let mut facts = fixtures::cluster(&[]);
    let named = |name: &str, value: &str| format!(r#"{{"name":"d","attributes":{{"{name}":{value}}}}}"#);
    for (attribute, value, expected) in [
        ("resource.kubernetes.io/numaNode", r#"{"int":3}"#, Some(3)),
        ("resource.kubernetes.io/numaNode", r#"{"ints":[2,3]}"#, Some(2)),
        ("resource.kubernetes.io/numaNode", r#"{"int":-1}"#, None),
        ("dra.cpu/numaNodeID", r#"{"int":1}"#, Some(1)),
        ("numa", r#"{"int":1}"#, Some(1)),
        ("gpu.example/numaNode", r#"{"int":1}"#, Some(1)),
        ("other.example/numaNode", r#"{"int":1}"#, None),
        ("numaNode", r#"{"string":"1"}"#, None),
    ] {
        facts.add_slice(slice("n0", 1, &named(attribute, value), ""));
        assert_eq!(devices_of(&facts, "n0")[0].kind.numa_node, expected, "{attribute} {value}");
    }
}

#[test]
fn a_class_whose_selector_means_nothing_selects_nothing() {
    let mut facts = fixtures::cluster(&[1]);
    facts.add_class(read(
        r#"{"metadata":{"name":"bad"},"spec":{"selectors":[{"cel":{"expression":"device.nothing"}}]}}"#,
    ));
    facts.add_class(read(r#"{"metadata":{"name":"all"},"spec":{}}"#));
    let classes = devices_of(&facts, "n0")[0].kind.classes.clone();
    assert_eq!(classes.iter().map(|class| &**class).collect::<Vec<_>>(), ["all", "gpu"]);
}

/// Something that happens to a cluster.
#[derive(Clone, Debug)]
enum Happening {
    Slice { node: usize, devices: usize, slices: u32, generation: i64 },
    SliceGone(usize),
    Claim { claim: usize, node: usize, device: usize },
    ClaimGone(usize),
    Rule { rule: usize, node: usize },
    RuleGone(usize),
    Class(bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (0..4usize, 0..5usize, 1..3u32, 1..3i64).prop_map(|(node, devices, slices, generation)| Happening::Slice {
            node, devices, slices, generation
        }),
        1 => (0..4usize).prop_map(Happening::SliceGone),
        4 => (0..6usize, 0..4usize, 0..5usize).prop_map(|(claim, node, device)| Happening::Claim { claim, node, device }),
        2 => (0..6usize).prop_map(Happening::ClaimGone),
        1 => (0..2usize, 0..4usize).prop_map(|(rule, node)| Happening::Rule { rule, node }),
        1 => (0..2usize).prop_map(Happening::RuleGone),
        1 => any::<bool>().prop_map(Happening::Class),
    ]
}

fn happen(facts: &mut ClusterFacts, happening: &Happening) {
    match happening {
        Happening::Slice { node, devices, slices, generation } => {
            let mut slice = fixtures::slice(&format!("n{}", node % 2), *devices);
            slice.metadata.name = format!("slice-{node}");
            slice.spec.pool.resource_slice_count = i64::from(*slices);
            slice.spec.pool.generation = *generation;
            facts.add_slice(slice);
        }
        Happening::SliceGone(node) => facts.remove_slice(&format!("slice-{node}")),
        Happening::Claim { claim, node, device } => {
            let mut claim = fixtures::claim(&format!("c{claim}"), &[&format!("n{}/gpu-{device}", node % 2)], &[]);
            claim.metadata.namespace = format!("ns{}", device % 2);
            facts.add_claim(&claim);
        }
        Happening::ClaimGone(claim) => {
            (0..2).for_each(|ns| facts.remove_claim(&ObjectKey::new(&format!("ns{ns}"), &format!("c{claim}"))));
        }
        Happening::Rule { rule, node } => facts.add_rule(read(&format!(
            r#"{{"metadata":{{"name":"r{rule}"}},"spec":{{"deviceSelector":{{"pool":"n{node}"}},"taint":{{"key":"k","effect":"NoExecute"}}}}}}"#
        ))),
        Happening::RuleGone(rule) => facts.remove_rule(&format!("r{rule}")),
        Happening::Class(true) => facts.add_class(fixtures::class()),
        Happening::Class(false) => facts.remove_class("gpu"),
    }
}

/// Stocks by the names of their pools.
fn by_name(stocks: impl Iterator<Item = PoolStock>) -> BTreeMap<Arc<str>, PoolStock> {
    stocks.filter(|stock| !stock.groups.is_empty()).map(|stock| (stock.pool.clone(), stock)).collect()
}

proptest! {
    #[test]
    fn judging_what_changed_is_judging_everything(happenings in prop::collection::vec(happening(), 1..60)) {
        let mut facts = fixtures::cluster(&[]);
        let options = PlanOptions::default();
        let mut judge = DeviceJudge::new(&facts, &options);
        let mut kept: BTreeMap<PoolId, PoolStock> = BTreeMap::new();
        for happening in &happenings {
            happen(&mut facts, happening);
            let changes = facts.take_changes();
            if changes.is_all() {
                judge = DeviceJudge::new(&facts, &options);
                kept.clear();
            }
            for pool in facts.changed_pools(&changes) {
                kept.insert(pool, judge.stock(&facts, pool));
            }
            let mut fresh = DeviceJudge::new(&facts, &options);
            let all: Vec<PoolStock> = facts.pools().map(|pool| fresh.stock(&facts, pool)).collect();
            prop_assert_eq!(by_name(kept.values().cloned()), by_name(all.into_iter()));
        }
    }

    #[test]
    fn every_device_is_counted_once_in_the_state_that_is_told_of_it(happenings in prop::collection::vec(happening(), 1..30)) {
        let mut facts = fixtures::cluster(&[]);
        happenings.iter().for_each(|it| happen(&mut facts, it));
        let mut judge = DeviceJudge::new(&facts, &PlanOptions::default());
        for pool in facts.pools().collect::<Vec<_>>() {
            let (stock, devices) = (judge.stock(&facts, pool), judge.devices(&facts, pool));
            let mut totals = DeviceTotals::default();
            stock.groups.iter().for_each(|group| totals.add(&group.counts));
            for state in DeviceState::ALL {
                let told = devices.iter().filter(|device| device.state == state).count();
                prop_assert_eq!(totals.in_state(state) as usize, told);
            }
            let held = devices.iter().filter(|device| !device.holders.is_empty()).count();
            prop_assert_eq!(stock.groups.iter().map(|group| group.given.capacity as usize).sum::<usize>(), held);
        }
    }
}
