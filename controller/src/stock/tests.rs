//! Stock: kept up to date by events, it equals one that is counted anew.

use std::time::{Duration, Instant};

use hostler_allocator::plan::{ClusterFacts, PlanOptions};
use hostler_api::{
    ObjectKey,
    core::Node,
    hardware::{DeviceState, DeviceTotals, NodeHardware, UNKNOWN_AFTER},
    resource::{ResourceClaim, ResourceSlice},
};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::{
    availability::{Availability, AvailabilityBy},
    reports::NodeReports,
};

const OURS: &str = "hostler.dev";

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A cluster whose account is kept while it changes.
struct Kept {
    facts: ClusterFacts,
    reports: NodeReports,
    account: StockAccount,
    now: Instant,
    /// Reports have times, of which no two are equal.
    reported: u64,
}

impl Kept {
    fn new() -> Self {
        Self {
            facts: ClusterFacts::default(),
            reports: NodeReports::default(),
            account: StockAccount::new(PlanOptions::default()),
            now: Instant::now(),
            reported: 0,
        }
    }

    fn stock(&mut self) -> ClusterStock {
        self.account.update(&mut self.facts, &mut self.reports).clone()
    }

    /// The account as it would be if it were begun now.
    fn fresh(&self) -> ClusterStock {
        let mut account = StockAccount::new(PlanOptions::default());
        account.update(&mut self.facts.clone(), &mut self.reports.clone()).clone()
    }

    fn report(&mut self, node: &str, allocated: u32) {
        self.reported += 1;
        let report: NodeHardware = read(json!({
            "metadata": {"name": node}, "spec": {"nodeName": node},
            "status": {"driver": OURS, "lastReportTime": self.reported.to_string(), "backends": [
                {"name": "cpu", "knowledge": "Known", "classes": [{"name": "ours", "zones": [
                    {"numaNode": 0, "capacity": 2, "allocatable": 2, "allocated": allocated}]}]}]},
        }));
        self.reports.see(self.now, &report);
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.reports.pass(self.now);
    }
}

fn node(name: &str) -> Node {
    read(json!({"metadata": {"name": name}}))
}

/// Devices of ours and of another driver: two and three of each node, one on each of two NUMA nodes in turn.
fn slice(driver: &str, pool: &str, node: Option<&str>, devices: usize) -> ResourceSlice {
    let device = |at: usize| {
        let attributes =
            json!({"resource.kubernetes.io/numaNode": {"int": at % 2}, "serial": {"string": format!("{pool}-{at}")}});
        json!({"name": format!("d{at}"), "attributes": attributes})
    };
    let devices: Vec<Value> = (0..devices).map(device).collect();
    let mut slice = json!({"metadata": {"name": pool.replace('/', "-")}, "spec": {"driver": driver,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}, "devices": devices}});
    match node {
        Some(node) => slice["spec"]["nodeName"] = node.into(),
        None => slice["spec"]["allNodes"] = true.into(),
    }
    read(slice)
}

fn class(name: &str, expression: &str) -> hostler_api::resource::DeviceClass {
    read(json!({"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}))
}

fn claim(namespace: &str, name: &str, driver: &str, pool: &str, device: &str) -> ResourceClaim {
    read(
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": namespace},
        "spec": {}, "status": {"allocation": {"devices": {"results":
            [{"request": "r", "driver": driver, "pool": pool, "device": device}]}}}}),
    )
}

/// Two nodes with four devices of ours each, and a report of the first.
fn two_nodes() -> Kept {
    let mut kept = Kept::new();
    kept.facts.add_class(class("ours", "device.driver == \"hostler.dev\""));
    for name in ["a", "b"] {
        kept.facts.add_node(node(name));
        kept.facts.add_slice(slice(OURS, &format!("{name}/cpu"), Some(name), 4));
    }
    kept.report("a", 0);
    kept
}

fn counts(totals: &DeviceTotals) -> [u32; 4] {
    [totals.capacity, totals.free, totals.allocated, totals.unknown]
}

#[test]
fn devices_of_a_node_that_does_not_report_any_more_are_unknown_and_come_back() {
    let mut kept = two_nodes();
    kept.facts.add_claim(&claim("x", "c", OURS, "a/cpu", "d0"));
    assert_eq!(counts(&kept.stock().sums.all.totals), [8, 7, 1, 0]);
    kept.wait(UNKNOWN_AFTER + Duration::from_secs(1));
    let stock = kept.stock();
    assert_eq!(counts(&stock.sums.all.totals), [8, 4, 0, 4], "a node without a report counts as its slices say");
    assert_eq!(counts(&stock.sums.namespaces["x"].totals), [1, 0, 0, 1]);
    assert_eq!((stock.reports.reporting, stock.reports.unknown), (0, 1));
    kept.report("a", 0);
    assert_eq!(counts(&kept.stock().sums.all.totals), [8, 7, 1, 0]);
}

#[test]
fn silence_says_nothing_of_other_drivers() {
    let mut kept = two_nodes();
    kept.facts.add_slice(slice("gpu.example", "a", Some("a"), 3));
    kept.wait(UNKNOWN_AFTER + Duration::from_secs(1));
    assert_eq!(counts(&kept.stock().nodes.get("a").unwrap().tally().totals), [7, 3, 0, 4]);
}

#[test]
fn of_the_devices_of_a_node_that_is_gone_nothing_is_known() {
    let mut kept = two_nodes();
    kept.facts.remove_node("b");
    let stock = kept.stock();
    assert_eq!(counts(&stock.nodes.get("b").unwrap().tally().totals), [4, 0, 0, 4]);
    assert!(Availability::of(&stock, AvailabilityBy::Class).notes[0].ends_with(": b"));
    kept.facts.remove_slice("b-cpu");
    assert!(!kept.stock().nodes.contains_key("b"));
}

#[test]
fn claims_that_only_the_node_knows_of_have_their_devices() {
    let mut kept = two_nodes();
    kept.report("a", 2);
    assert_eq!(counts(&kept.stock().sums.classes["ours"].totals), [8, 6, 2, 0]);
    // One of the two is a claim of the cluster.
    kept.facts.add_claim(&claim("x", "c", OURS, "a/cpu", "d0"));
    let stock = kept.stock();
    assert_eq!(counts(&stock.sums.classes["ours"].totals), [8, 6, 2, 0]);
    assert_eq!(counts(&stock.sums.namespaces["x"].totals), [1, 0, 1, 0]);
    assert_eq!(counts(&stock.sums.of_nobody), [7, 6, 1, 0]);
    // More than there is cannot be had.
    kept.report("a", 9);
    assert_eq!(counts(&kept.stock().nodes.get("a").unwrap().tally().totals), [4, 2, 2, 0]);
}

#[test]
fn devices_of_no_single_node_are_in_a_row_of_their_own() {
    let mut kept = two_nodes();
    kept.facts.add_slice(slice("fabric.example", "switch", None, 3));
    let stock = kept.stock();
    assert_eq!(counts(&stock.elsewhere.tally().totals), [3, 3, 0, 0]);
    let rows = Availability::of(&stock, AvailabilityBy::Node).rows;
    let names: Vec<Option<&str>> = rows.iter().map(|row| row.node.as_deref()).collect();
    assert_eq!(names, [Some("a"), Some("b"), None]);
    let rows = Availability::of(&stock, AvailabilityBy::Class).rows;
    assert_eq!((rows[1].class.as_deref(), rows[1].counts.devices.capacity), (None, 3));
}

#[test]
fn what_did_not_change_is_shared_with_the_view_before() {
    let mut kept = two_nodes();
    let before = kept.stock();
    kept.facts.add_claim(&claim("x", "c", OURS, "a/cpu", "d0"));
    let after = kept.stock();
    assert!(Arc::ptr_eq(before.nodes.get("b").unwrap(), after.nodes.get("b").unwrap()));
    assert!(!Arc::ptr_eq(before.nodes.get("a").unwrap(), after.nodes.get("a").unwrap()));
}

/// Something that happens to a cluster.
#[derive(Clone, Debug)]
enum Happening {
    Node(usize, bool),
    Slice { node: usize, devices: usize },
    SliceGone(usize),
    Claim { claim: usize, node: usize, device: usize },
    ClaimGone(usize),
    Report(usize, u32),
    ReportGone(usize),
    Wait(u64),
    Class(usize, bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        2 => (0..3usize, any::<bool>()).prop_map(|(node, is_there)| Happening::Node(node, is_there)),
        4 => (0..5usize, 0..4usize).prop_map(|(node, devices)| Happening::Slice { node, devices }),
        1 => (0..5usize).prop_map(Happening::SliceGone),
        4 => (0..6usize, 0..5usize, 0..4usize).prop_map(|(claim, node, device)| Happening::Claim { claim, node, device }),
        2 => (0..6usize).prop_map(Happening::ClaimGone),
        2 => (0..3usize, 0..3u32).prop_map(|(node, allocated)| Happening::Report(node, allocated)),
        1 => (0..3usize).prop_map(Happening::ReportGone),
        2 => (0..1_000u64).prop_map(Happening::Wait),
        1 => (0..3usize, any::<bool>()).prop_map(|(class, is_there)| Happening::Class(class, is_there)),
    ]
}

/// Driver, pool and node of the nth slice: of three nodes ours and another's, and one of no node.
fn place(at: usize) -> (&'static str, String, Option<String>) {
    let name = format!("n{at}");
    match at {
        0 | 1 => (OURS, format!("{name}/cpu"), Some(name)),
        2 | 3 => ("gpu.example", name, Some(format!("n{}", at - 1))),
        _ => ("fabric.example", name, None),
    }
}

const CLASSES: [(&str, &str); 3] = [
    ("ours", "device.driver == \"hostler.dev\""),
    ("gpu", "device.driver == \"gpu.example\""),
    ("near", "device.attributes[\"resource.kubernetes.io\"].numaNode == 0"),
];

fn happen(kept: &mut Kept, happening: &Happening) {
    let key = |claim: usize| (format!("ns{}", claim % 2), format!("c{claim}"));
    match happening {
        Happening::Node(at, true) => kept.facts.add_node(node(&format!("n{at}"))),
        Happening::Node(at, false) => kept.facts.remove_node(&format!("n{at}")),
        Happening::Slice { node, devices } => {
            let (driver, pool, node) = place(*node);
            kept.facts.add_slice(slice(driver, &pool, node.as_deref(), *devices));
        }
        Happening::SliceGone(node) => kept.facts.remove_slice(&place(*node).1.replace('/', "-")),
        Happening::Claim { claim: number, node, device } => {
            let ((namespace, name), (driver, pool, _)) = (key(*number), place(*node));
            kept.facts.add_claim(&claim(&namespace, &name, driver, &pool, &format!("d{device}")));
        }
        Happening::ClaimGone(claim) => {
            let (namespace, name) = key(*claim);
            kept.facts.remove_claim(&ObjectKey::new(&namespace, &name));
        }
        Happening::Report(at, allocated) => kept.report(&format!("n{at}"), *allocated),
        Happening::ReportGone(at) => kept.reports.forget(&format!("n{at}")),
        Happening::Wait(seconds) => kept.wait(Duration::from_secs(*seconds)),
        Happening::Class(at, true) => kept.facts.add_class(class(CLASSES[*at].0, CLASSES[*at].1)),
        Happening::Class(at, false) => kept.facts.remove_class(CLASSES[*at].0),
    }
}

/// All that a stock says, without the numbers of pools.
fn told(stock: &ClusterStock) -> Vec<String> {
    let node = |node: &NodeSummary| {
        let status = (node.is_there, node.is_ready, node.is_schedulable, node.report);
        format!("{status:?} {:?} {:?}", node.cells, node.given)
    };
    let nodes = stock.nodes.iter().map(|(name, summary)| format!("{name} {}", node(summary)));
    let whole = [node(&stock.elsewhere), format!("{:?}", stock.sums), format!("{:?}", stock.reports)];
    nodes.chain(whole).collect()
}

fn is_whole(totals: &DeviceTotals) -> bool {
    totals.capacity == DeviceState::ALL.iter().map(|state| totals.in_state(*state)).sum::<u32>()
}

/// The sum of rows.
fn sum(answer: &Availability) -> DeviceTotals {
    let mut all = DeviceTotals::default();
    answer.rows.iter().for_each(|row| add_totals(&mut all, &row.counts.devices));
    all
}

proptest! {
    #[test]
    fn an_account_that_was_kept_is_that_which_is_begun_anew(happenings in prop::collection::vec(happening(), 1..60)) {
        let mut kept = Kept::new();
        for happening in &happenings {
            happen(&mut kept, happening);
            let stock = kept.stock();
            prop_assert_eq!(told(&stock), told(&kept.fresh()));
        }
    }

    #[test]
    fn rows_are_whole_and_agree_in_their_sums(happenings in prop::collection::vec(happening(), 1..40)) {
        let mut kept = Kept::new();
        happenings.iter().for_each(|it| happen(&mut kept, it));
        let stock = kept.stock();
        let total = stock.sums.all.totals;
        for by in [AvailabilityBy::Class, AvailabilityBy::Node, AvailabilityBy::Numa, AvailabilityBy::Namespace] {
            let answer = Availability::of(&stock, by);
            for row in &answer.rows {
                prop_assert!(is_whole(&row.counts.devices), "{:?}", row);
                prop_assert!(row.classes.values().all(is_whole), "{:?}", row);
            }
            prop_assert_eq!(answer.total.devices, total);
            let sum = sum(&answer);
            match by {
                AvailabilityBy::Node | AvailabilityBy::Numa => prop_assert_eq!(sum, total),
                // A class more can select a device that another one does.
                AvailabilityBy::Class => prop_assert!(sum.capacity >= total.capacity),
                // Two claims can have been given one device, by whatever mistake; none is lost.
                AvailabilityBy::Namespace => prop_assert!(sum.capacity >= total.capacity && sum.free == total.free),
            }
        }
    }
}
