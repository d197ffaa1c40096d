//! What is told of a made-up machine.

use std::sync::Arc;

use hostler_api::{ClaimRef, ClaimUid, DeviceName, QualifiedName};
use hostler_backend::{Capacity, DevicePlan};
use hostler_linux::topology::HugePages;
use serde_json::json;

use super::*;
use crate::{
    claims::{
        ClaimView,
        store::{ClaimRecord, RecordDevice, RecordState},
    },
    config::{TopologyManagerPolicy, TopologyManagerScope},
    inventory::Drain,
};

const GIB: u64 = 1 << 30;

fn name(text: &str) -> DeviceName {
    DeviceName::new(text.to_owned()).unwrap()
}

fn qualified(text: &str) -> QualifiedName {
    QualifiedName::new(text).unwrap()
}

fn backend(text: &str) -> BackendName {
    serde_json::from_value(json!(text)).unwrap()
}

fn on_node(device: &str, node: i64) -> Device {
    let mut device = Device::new(name(device));
    device.attributes.insert(qualified(NUMA_NODE), AttributeValue::Int(node));
    device
}

/// A device that stands for an amount of a resource of the node, and can be shared.
fn standing_for(device: &str, node: i64, resource: &str, capacity: &str, amount: u64) -> Device {
    let mut device = on_node(device, node);
    device.sharing = Sharing::Shared;
    device.capacity.insert(qualified(capacity), Capacity { value: Quantity::whole(amount), policy: None });
    let measure = NodeAllocatable::PerCapacity { capacity: qualified(capacity), factor: Quantity::whole(1) };
    device.node_allocatable.insert(resource.to_owned(), measure);
    device
}

fn inventory(pools: Vec<(&str, Vec<Device>)>) -> Inventory {
    let pool = |(backend_name, devices): (&str, Vec<Device>)| {
        let pool = Pool { name: format!("n/{backend_name}"), devices, ..Pool::default() };
        (backend(backend_name), Arc::new(pool))
    };
    Inventory { pools: pools.into_iter().map(pool).collect(), ..Inventory::default() }
}

/// Two nodes with four CPUs and 8 GiB each, of which CPU 0 and a GiB of each node are reserved, and a card on node 1.
fn machine() -> (BTreeMap<u32, NumaNode>, Inventory) {
    let node = |number: u32| NumaNode {
        cpus: (number * 4..number * 4 + 4).collect(),
        memory_bytes: Some(8 * GIB),
        distances: BTreeMap::from([(number, 10), (1 - number, 21)]),
        huge_pages: BTreeMap::from([(2 << 20, HugePages { total: 512, free: 512, surplus: 0 })]),
        ..NumaNode::default()
    };
    let inventory = inventory(vec![
        ("cpu", vec![standing_for("numa0", 0, "cpu", "cpus", 3), standing_for("numa1", 1, "cpu", "cpus", 4)]),
        (
            "memory",
            vec![
                standing_for("node0", 0, "memory", "memory", 6 * GIB),
                standing_for("node0-hugepages-2mi", 0, "hugepages-2Mi", "memory", GIB),
                standing_for("node1", 1, "memory", "memory", 7 * GIB),
            ],
        ),
        ("fpga", vec![on_node("card", 1)]),
    ]);
    (BTreeMap::from([(0, node(0)), (1, node(1))]), inventory)
}

fn table(grants: Vec<serde_json::Value>) -> ClaimTable {
    let device = |grant: serde_json::Value| {
        let grant: Grant = serde_json::from_value(grant).unwrap();
        RecordDevice {
            local: None,
            backend: backend(grant.pool.strip_prefix("n/").unwrap()),
            grant,
            plan: DevicePlan::default(),
            counters: Vec::new(),
            capacity: Default::default(),
            edits: Default::default(),
            unmet: Vec::new(),
        }
    };
    let uid = ClaimUid::new("u1").unwrap();
    let record = ClaimRecord {
        claim: ClaimRef { namespace: "ml".to_owned(), name: "train".to_owned(), uid: uid.clone() },
        state: RecordState::Prepared,
        boot_id: "b".to_owned(),
        devices: grants.into_iter().map(device).collect(),
        metadata: None,
        since: None,
        reserved_for: Vec::new(),
    };
    let view = ClaimView::Recorded { record: Arc::new(record), problem: None, busy: None };
    [(uid, view)].into_iter().collect()
}

fn exported(inventory: &Inventory, claims: &ClaimTable) -> TopologyContent {
    topology_content(&machine().0, inventory, claims, "hostler.dev", &TopologyExportConfig::default())
}

/// Capacity, allocatable and available.
fn amount(content: &TopologyContent, zone: usize, resource: &str) -> [String; 3] {
    let found = content.zones[zone].resources.iter().find(|found| found.name == resource);
    let found = found.unwrap_or_else(|| panic!("zone {zone} has no {resource}"));
    [found.capacity.clone(), found.allocatable.clone(), found.available.clone()]
}

#[test]
fn a_zone_has_what_its_node_has_what_is_handed_out_and_what_is_free() {
    let (_, inventory) = machine();
    let free = exported(&inventory, &ClaimTable::default());
    let names: Vec<&str> = free.zones.iter().map(|zone| zone.name.as_str()).collect();
    assert_eq!((names, free.zones[0].kind), (vec!["node-0", "node-1"], "Node"));
    assert_eq!(amount(&free, 0, "cpu"), ["4", "3", "3"], "a CPU is reserved");
    assert_eq!(amount(&free, 1, "memory"), [8 * GIB, 7 * GIB, 7 * GIB].map(|bytes| bytes.to_string()));
    assert_eq!(amount(&free, 0, "hugepages-2Mi"), [GIB; 3].map(|bytes| bytes.to_string()));
    assert_eq!(amount(&free, 1, "deviceclass.resource.kubernetes.io/fpga.hostler.dev"), ["1", "1", "1"]);
    let costs: Vec<(&str, u32)> = free.zones[1].costs.iter().map(|cost| (cost.name.as_str(), cost.value)).collect();
    assert_eq!(costs, [("node-0", 21), ("node-1", 10)]);
}

#[test]
fn what_claims_hold_is_not_available_and_administrators_hold_nothing() {
    let (_, inventory) = machine();
    let held = exported(
        &inventory,
        &table(vec![
            json!({"request": "r", "pool": "n/cpu", "device": "numa0", "consumed": {"cpus": "2"}}),
            json!({"request": "r", "pool": "n/memory", "device": "node1"}),
            json!({"request": "r", "pool": "n/fpga", "device": "card"}),
            json!({"request": "r", "pool": "n/cpu", "device": "numa1", "access": "Admin"}),
            json!({"request": "r", "pool": "n/gone", "device": "card"}),
        ]),
    );
    assert_eq!(amount(&held, 0, "cpu"), ["4", "3", "1"]);
    assert_eq!(amount(&held, 1, "cpu"), ["4", "4", "4"]);
    assert_eq!(amount(&held, 1, "memory")[2], "0", "a grant that names no amount has all of it");
    assert_eq!(amount(&held, 1, "deviceclass.resource.kubernetes.io/fpga.hostler.dev"), ["1", "1", "0"]);
}

#[test]
fn what_nobody_new_can_get_is_there_and_not_allocatable() {
    let (_, mut whole) = machine();
    let class = "deviceclass.resource.kubernetes.io/fpga.hostler.dev";
    let broken = Health::Unhealthy { reason: "hot".to_owned() };
    let mut card = on_node("card", 1);
    card.health = broken;
    let sick = inventory(vec![("fpga", vec![card])]);
    assert_eq!(amount(&exported(&sick, &ClaimTable::default()), 1, class), ["1", "0", "0"]);
    whole.drains.insert((backend("fpga"), name("card")), Drain::now(None, false));
    assert_eq!(amount(&exported(&whole, &ClaimTable::default()), 1, class), ["1", "0", "0"]);
    let pool = Pool {
        name: "n/fpga".to_owned(),
        devices: vec![on_node("card", 1)],
        stale: Some("no answer".to_owned()),
        ..Pool::default()
    };
    let stale = Inventory { pools: BTreeMap::from([(backend("fpga"), Arc::new(pool))]), ..Inventory::default() };
    assert_eq!(amount(&exported(&stale, &ClaimTable::default()), 1, class), ["1", "0", "0"]);
}

#[test]
fn what_belongs_to_no_single_node_is_in_no_zone() {
    let mut both = on_node("both", 0);
    both.attributes.insert(qualified(NUMA_NODE), AttributeValue::Ints(vec![0, 1]));
    let nowhere = Device::new(name("nowhere"));
    let mut shared = on_node("shared", 0);
    shared.sharing = Sharing::Shared;
    let odd = inventory(vec![("fpga", vec![both, nowhere, shared])]);
    let exported = exported(&odd, &ClaimTable::default());
    assert!(exported.zones.iter().all(|zone| zone.resources.is_empty()), "{exported:?}");
}

#[test]
fn the_kubelet_is_described_by_the_configuration_or_not_at_all() {
    let (nodes, inventory) = machine();
    let told = |settings| topology_content(&nodes, &inventory, &ClaimTable::default(), "d", &settings).attributes;
    assert!(told(TopologyExportConfig::default()).is_empty());
    let settings = TopologyExportConfig {
        enabled: true,
        topology_manager_policy: Some(TopologyManagerPolicy::SingleNumaNode),
        topology_manager_scope: Some(TopologyManagerScope::Pod),
    };
    assert_eq!(
        json!(told(settings)),
        json!([
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": "pod"},
        ])
    );
}
