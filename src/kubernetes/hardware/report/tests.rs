//! What is told of made-up machines, and of captured ones.

use std::{sync::Arc, time::SystemTime};

use hostler_api::{
    BackendName, ClaimRef, ClaimUid, DeviceName, Grant, QualifiedName,
    hardware::{DeviceTotals, HardwareConditionType, MAX_MESSAGE_BYTES, MAX_OFFERED_BYTES, NodeHardware},
    resource::DeviceClass,
};
use hostler_backend::{Attributes, Capacity, DevicePlan, Health, RequestPolicy, Sharing};
use hostler_cel::{CelOptions, DeviceFacts, Selector};
use hostler_linux::{archive::UnpackedCapture, testkit::captures};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    claims::{
        BusyClaim, ClaimOperation, ClaimView,
        store::{ClaimRecord, RecordDevice, RecordState},
    },
    config::{DaemonConfig, NodeAllocatableNames},
    inventory::{Drain, Pool, UnknownPool},
    kubernetes::{hardware::slices::offered_slices, slices::desired_slices},
    registry,
};

const DRIVER: &str = "hostler.dev";

fn daemon() -> ReportingDaemon {
    ReportingDaemon {
        settings: SliceSettings {
            driver: DRIVER.to_owned(),
            evict_unhealthy: false,
            list_attributes: false,
            node_allocatable: NodeAllocatableNames::Off,
        },
        version: "0.1.0",
        kernel: "6.12.0-31-cloud-amd64".to_owned(),
        boot_id: "3b5ad29e-6c4f-4f0c-9d33-0d3b6dd6c1a2".to_owned(),
        system_uuid: None,
    }
}

fn name(text: &str) -> DeviceName {
    DeviceName::new(text).unwrap()
}

fn backend(text: &str) -> BackendName {
    BackendName::new(text).unwrap()
}

fn qualified(text: &str) -> QualifiedName {
    QualifiedName::new(text).unwrap()
}

fn on_node(device: &str, node: i64) -> Device {
    let mut device = Device::new(name(device));
    device.attributes.insert(qualified("resource.kubernetes.io/numaNode"), AttributeValue::Int(node));
    device
}

/// Eight units, of which two at least go together.
fn shared(device: &str, node: i64) -> Device {
    let mut device = on_node(device, node);
    device.sharing = Sharing::Shared;
    let unit = Quantity::whole(1);
    let policy = RequestPolicy { default: Quantity::whole(2), min: Quantity::whole(2), step: unit };
    device.capacity.insert(qualified("units"), Capacity { value: Quantity::whole(8), policy: Some(policy) });
    device
}

fn unhealthy(device: Device) -> Device {
    Device { health: Health::Unhealthy { reason: "it smells".to_owned() }, ..device }
}

fn unchecked(device: Device) -> Device {
    Device { health: Health::Unknown { reason: "nobody looked".to_owned() }, ..device }
}

fn pool(name: &str, devices: Vec<Device>) -> Pool {
    Pool { name: format!("n/{name}"), devices, ..Pool::default() }
}

fn inventory(pools: Vec<(&str, Pool)>) -> Inventory {
    let pools = pools.into_iter().map(|(name, pool)| (backend(name), Arc::new(pool)));
    Inventory { pools: pools.collect(), ..Inventory::default() }
}

fn drained(mut inventory: Inventory, backend_name: &str, device: &str) -> Inventory {
    inventory.drains.insert((backend(backend_name), name(device)), Drain::now(None, false));
    inventory
}

#[expect(clippy::needless_pass_by_value, reason = "callers make it on the spot")]
fn grant(device: &str, consumed: Value) -> Value {
    json!({"request": "r", "pool": "n/fpga", "device": device, "consumed": consumed})
}

/// One claim with all of these, of one backend.
fn table(backend_name: &str, grants: Vec<Value>, busy: Option<ClaimOperation>) -> ClaimTable {
    let device = |grant: Value| RecordDevice {
        local: None,
        backend: backend(backend_name),
        grant: serde_json::from_value::<Grant>(grant).unwrap(),
        plan: DevicePlan::default(),
        counters: Vec::new(),
        capacity: Default::default(),
        edits: Default::default(),
        unmet: Vec::new(),
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
    let busy = busy.map(|operation| BusyClaim { operation, since: SystemTime::UNIX_EPOCH });
    [(uid, ClaimView::Recorded { record: Arc::new(record), problem: None, busy })].into_iter().collect()
}

fn nobody() -> ClaimTable {
    ClaimTable::default()
}

fn report(inventory: &Inventory, claims: &ClaimTable) -> NodeHardwareStatus {
    node_report(&daemon(), inventory, claims, &HoldsInForce::default())
}

/// Those that are not nothing, but for the capacity, as `allocated 1, free 2`.
fn states(totals: &DeviceTotals) -> String {
    let named = DeviceState::ALL.map(|state| (state, totals.in_state(state)));
    let named = named.iter().filter(|(_, count)| *count > 0).map(|(state, count)| format!("{state} {count}"));
    named.collect::<Vec<_>>().join(", ")
}

fn condition(status: &NodeHardwareStatus, kind: HardwareConditionType) -> String {
    let found = status.condition(kind).unwrap();
    format!("{} {}: {}", found.status.as_str(), found.reason, found.message)
}

#[test]
fn devices_are_counted_by_backend_class_and_numa_node() {
    let cards = vec![on_node("a", 0), on_node("b", 0), on_node("c", 1), Device::new(name("d"))];
    let status = report(&inventory(vec![("fpga", pool("fpga", cards)), ("cxl", pool("cxl", Vec::new()))]), &nobody());
    let backends: Vec<(&str, usize)> = status.backends.iter().map(|it| (&*it.name, it.classes.len())).collect();
    assert_eq!(backends, [("cxl", 0), ("fpga", 1)], "what has nothing is known to have nothing");
    let class = &status.backends[1].classes[0];
    let zones: Vec<(Option<u32>, u32)> = class.zones.iter().map(|it| (it.numa_node, it.devices.capacity)).collect();
    assert_eq!((&*class.name, zones), ("fpga.hostler.dev", vec![(Some(0), 2), (Some(1), 1), (None, 1)]));
    assert_eq!((states(&status.devices), status.devices.allocatable), ("free 4".to_owned(), 4));
}

#[test]
fn each_device_is_in_the_state_that_its_slice_and_its_claims_give_it() {
    let cards = vec![
        on_node("free", 0),
        on_node("held", 0),
        unhealthy(on_node("broken", 0)),
        unchecked(on_node("unchecked", 0)),
        on_node("drained", 0),
        unhealthy(on_node("held-broken", 0)),
    ];
    let inventory = drained(inventory(vec![("fpga", pool("fpga", cards))]), "fpga", "drained");
    let claims = table("fpga", vec![grant("held", json!({})), grant("held-broken", json!({}))], None);
    let status = report(&inventory, &claims);
    assert_eq!(states(&status.devices), "allocated 2, unhealthy 1, drained 1, unknown 1, free 1");
    assert_eq!((status.devices.capacity, status.devices.allocatable), (6, 2), "who is broken can be had by nobody");
    assert_eq!(condition(&status, HardwareConditionType::Healthy), "False DevicesFail: fpga/broken, fpga/held-broken");
}

#[test]
fn a_shared_device_is_free_until_its_last_part_is_had_and_amounts_say_the_rest() {
    let inventory = inventory(vec![("fpga", pool("fpga", vec![shared("a", 0)]))]);
    let with = |units: &str| report(&inventory, &table("fpga", vec![grant("a", json!({"units": units}))], None));
    let told = |status: &NodeHardwareStatus| {
        let amounts = &status.zones().next().unwrap().amounts["units"];
        let amounts = [amounts.capacity, amounts.allocatable, amounts.allocated, amounts.free];
        (states(&status.devices), amounts.map(|amount| amount.to_string()).join(" "))
    };
    assert_eq!(told(&report(&inventory, &nobody())), ("free 1".to_owned(), "8 8 0 8".to_owned()));
    assert_eq!(told(&with("6")), ("free 1".to_owned(), "8 8 6 2".to_owned()));
    assert_eq!(told(&with("7")), ("allocated 1".to_owned(), "8 8 7 0".to_owned()), "one unit is no part");
    let drained = drained(inventory, "fpga", "a");
    let status = report(&drained, &table("fpga", vec![grant("a", json!({"units": "6"}))], None));
    assert_eq!(told(&status), ("drained 1".to_owned(), "8 0 6 0".to_owned()));
}

#[test]
fn who_looks_after_a_device_does_not_have_it() {
    let inventory = inventory(vec![("fpga", pool("fpga", vec![on_node("a", 0)]))]);
    let admin = json!({"request": "r", "pool": "n/fpga", "device": "a", "access": "Admin"});
    assert_eq!(states(&report(&inventory, &table("fpga", vec![admin], None)).devices), "free 1");
}

#[test]
fn what_cannot_be_read_is_unknown_and_neither_absent_nor_free() {
    let stale = Pool { stale: Some("no answer\nfor long".to_owned()), ..pool("fpga", vec![on_node("a", 0)]) };
    let status = report(&inventory(vec![("fpga", stale)]), &nobody());
    let backend_of = |status: &NodeHardwareStatus, at: usize| status.backends[at].clone();
    let BackendHardware { knowledge, message, .. } = backend_of(&status, 0);
    assert_eq!((knowledge, &*message), (BackendKnowledge::Stale, "no answer\\nfor long"));
    assert_eq!((states(&status.devices), status.devices.allocatable), ("unknown 1".to_owned(), 0));
    assert!(condition(&status, HardwareConditionType::Ready).starts_with("False BackendsStale: backend fpga"));
    assert!(condition(&status, HardwareConditionType::Healthy).starts_with("Unknown DevicesUnknown"));
    let pool = UnknownPool { name: "n/fpga".to_owned(), reason: "it never answered".to_owned() };
    let unknown = Inventory { unknown: [(backend("fpga"), pool)].into(), ..Inventory::default() };
    let status = report(&unknown, &table("fpga", vec![grant("a", json!({}))], None));
    let BackendHardware { knowledge, missing, .. } = backend_of(&status, 0);
    assert_eq!((knowledge, missing, status.devices.capacity), (BackendKnowledge::Unknown, 1, 0));
    assert!(condition(&status, HardwareConditionType::Ready).starts_with("False BackendsUnknown: backend fpga"));
}

#[test]
fn what_claims_have_and_is_not_there_is_missing() {
    let inventory = inventory(vec![("fpga", pool("fpga", Vec::new()))]);
    let status = report(&inventory, &table("cxl", vec![grant("gone", json!({}))], None));
    let told: Vec<(&str, u32)> = status.backends.iter().map(|it| (&*it.name, it.missing)).collect();
    assert_eq!((told, status.devices.capacity), (vec![("cxl", 1), ("fpga", 0)], 0));
    let drained = drained(inventory, "fpga", "gone");
    assert_eq!(report(&drained, &nobody()).backends[0].missing, 0, "nobody has what is only drained");
}

#[test]
fn a_start_that_is_not_over_is_told() {
    let inventory = inventory(vec![("fpga", pool("fpga", vec![on_node("a", 0)]))]);
    let status = report(&inventory, &table("fpga", vec![grant("a", json!({}))], Some(ClaimOperation::Recover)));
    assert!(condition(&status, HardwareConditionType::Ready).starts_with("False Recovering: 1 claims"));
    let status = report(&inventory, &table("fpga", vec![grant("a", json!({}))], None));
    assert_eq!(condition(&status, HardwareConditionType::Ready), "True BackendsAnswered: ");
}

#[test]
fn more_numa_nodes_than_an_object_has_room_for_share_a_row() {
    let cards = (0..80).map(|node| on_node(&format!("d{node}"), node)).collect();
    let status = report(&inventory(vec![("fpga", pool("fpga", cards))]), &nobody());
    let zones = &status.backends[0].classes[0].zones;
    assert_eq!((zones.len(), zones[63].numa_node, zones[63].devices.capacity), (MAX_ZONES, None, 17));
    assert_eq!(status.devices.capacity, 80);
}

#[test]
fn a_long_reason_is_cut_where_a_character_ends() {
    let text = cut(&"ä".repeat(MAX_MESSAGE_BYTES));
    assert_eq!((text.len(), text.chars().count()), (MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES / 2));
}

/// A device and what happens to it: sharing, health, drain, and how many units a claim has.
type MadeUp = (bool, u8, bool, Option<u64>, Option<i64>);

fn made_up(at: usize, (is_shared, health, ..): &MadeUp, node: Option<i64>) -> Device {
    let called = format!("d{at}");
    let mut device = if *is_shared { shared(&called, 0) } else { Device::new(name(&called)) };
    device.attributes = Attributes::default();
    if let Some(node) = node {
        device.attributes.insert(qualified("resource.kubernetes.io/numaNode"), AttributeValue::Int(node));
    }
    match health {
        0 => unhealthy(device),
        1 => unchecked(device),
        _ => device,
    }
}

proptest! {
    #[test]
    fn the_states_of_all_devices_are_all_devices(
        devices in prop::collection::vec(
            (any::<bool>(), 0..4_u8, any::<bool>(), prop::option::of(1..9_u64), prop::option::of(0..4_i64)), 0..40,
        ),
        is_stale in any::<bool>(),
        gone in 0..3_usize,
    ) {
        let known: Vec<Device> = devices.iter().enumerate().map(|(at, it)| made_up(at, it, it.4)).collect();
        let stale = is_stale.then(|| "why".to_owned());
        let mut inventory = inventory(vec![("fpga", Pool { stale, ..pool("fpga", known) })]);
        let mut grants: Vec<Value> = (0..gone).map(|at| grant(&format!("gone{at}"), json!({}))).collect();
        for (at, (is_shared, _, is_drained, units, _)) in devices.iter().enumerate() {
            if *is_drained {
                inventory = drained(inventory, "fpga", &format!("d{at}"));
            }
            let consumed = if *is_shared { json!({"units": units.unwrap_or_default().to_string()}) } else { json!({}) };
            grants.extend(units.map(|_| grant(&format!("d{at}"), consumed)));
        }
        let status = report(&inventory, &table("fpga", grants, None));
        let mut sum = DeviceTotals::default();
        for zone in status.zones() {
            let one = { let mut one = DeviceTotals::default(); one.add(&zone.devices); one };
            prop_assert_eq!(DeviceState::ALL.iter().map(|state| one.in_state(*state)).sum::<u32>(), one.capacity);
            prop_assert!(zone.devices.allocatable <= zone.devices.capacity);
            sum.add(&zone.devices);
        }
        prop_assert_eq!(sum, status.devices);
        prop_assert_eq!(sum.capacity as usize, devices.len());
        prop_assert_eq!(status.backends.iter().map(|it| it.missing).sum::<u32>() as usize, gone);
        let usable = devices.iter().filter(|(_, health, is_drained, ..)| *health > 1 && !is_drained && !is_stale);
        prop_assert_eq!(sum.allocatable as usize, usable.clone().count());
        let has_part = |(is_shared, _, _, units, _): &&MadeUp| units.is_none_or(|units| *is_shared && units < 7);
        prop_assert_eq!(sum.free as usize, usable.filter(has_part).count());
    }
}

/// What a machine has, as a daemon with all backends that look at machines would see it.
fn captured(capture: &UnpackedCapture) -> Inventory {
    let config = DaemonConfig::default();
    let mut pools = Vec::new();
    for (backend, code) in registry::from_config(&config, &capture.root()).iter() {
        if let Ok(found) = code.enumerate() {
            let devices =
                Pool { devices: found.devices, counter_sets: found.counter_sets, ..pool(backend.as_str(), Vec::new()) };
            pools.push((backend.clone(), Arc::new(devices)));
        }
    }
    Inventory { pools: pools.into_iter().collect(), ..Inventory::default() }
}

/// The object as the server has it, but for what it adds itself.
fn object(status: NodeHardwareStatus) -> Value {
    let time = "2026-11-22T10:00:00Z".to_owned();
    let status = super::super::conditions::stamped(status, None, &time);
    let uid = "11111111-2222-3333-4444-555555555555";
    let node = "ip-10-0-123-124.eu-central-1.compute.internal";
    let mut object = serde_json::to_value(NodeHardware { status, ..NodeHardware::default() }).unwrap();
    object["apiVersion"] = json!("hostler.dev/v1alpha1");
    object["kind"] = json!("NodeHardware");
    object["spec"] = json!({"nodeName": node});
    object["metadata"] = json!({
        "name": node, "uid": uid, "resourceVersion": "123456789", "generation": 1, "creationTimestamp": time,
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
    });
    object
}

#[test]
fn a_report_of_sixty_four_devices_is_small_on_every_captured_machine() {
    for path in captures() {
        let capture = UnpackedCapture::open(&path).unwrap();
        let inventory = captured(&capture);
        let devices = inventory.devices().count();
        let size = object(report(&inventory, &nobody())).to_string().len();
        // Larger machines may take as much more as they have more devices.
        let most = 4096 * devices.div_ceil(64).max(1);
        assert!(size <= most, "{}: {size} bytes for {devices} devices", path.display());
    }
}

#[test]
fn eight_numa_nodes_with_eight_devices_each_in_every_state_are_still_small() {
    let of = |node: i64, what: &str| shared(&format!("{what}-{node}"), node);
    let huge = |node: i64| {
        let mut device = of(node, "huge");
        device.attributes.insert(qualified("hugepages"), AttributeValue::Bool(true));
        device
    };
    let cards = |node: i64| (0..5).map(move |card| unhealthy(on_node(&format!("card-{node}-{card}"), node)));
    let inventory = inventory(vec![
        ("cpu", pool("cpu", (0..8).map(|node| of(node, "numa")).collect())),
        ("memory", pool("memory", (0..8).flat_map(|node| [of(node, "node"), huge(node)]).collect())),
        ("fpga", pool("fpga", (0..8).flat_map(cards).collect())),
        ("cxl", pool("cxl", Vec::new())),
    ]);
    let part = |device: String| grant(&device, json!({"units": "2"}));
    let parts = (0..8).flat_map(|node| [part(format!("node-{node}")), part(format!("huge-{node}"))]).collect();
    for claims in [nobody(), table("memory", parts, None)] {
        let status = report(&inventory, &claims);
        assert_eq!(status.devices.capacity, 64);
        let size = object(status).to_string().len();
        assert!(size <= 4096, "{size} bytes");
    }
}

fn bytes_of_offer(inventory: &Inventory) -> usize {
    let slices = offered_slices(&daemon().settings, "n", inventory, &HoldsInForce::default());
    let said: usize = slices.iter().map(|slice| slice["devices"].as_array().map_or(0, Vec::len)).sum();
    assert_eq!(said, inventory.devices().count(), "all of them are offered");
    slices.iter().map(|slice| slice.to_string().len()).sum()
}

#[test]
fn a_thousand_devices_are_offered_whole() {
    let device = |at: i64| {
        let mut device = shared(&format!("card-{at}-function-of-a-larger-one"), at % 8);
        for number in 0..8 {
            let value = AttributeValue::String(format!("0000:{at:04x}:00.{number} and more").into());
            device.attributes.insert(qualified(&format!("attribute{number}")), value);
        }
        device
    };
    let bytes = bytes_of_offer(&inventory(vec![("fpga", pool("fpga", (0..1000).map(device).collect()))]));
    assert!(bytes <= MAX_OFFERED_BYTES, "{bytes} bytes");
    // As large as any that was captured: what is the same for all devices of a slice counts with them.
    for path in captures() {
        let inventory = captured(&UnpackedCapture::open(&path).unwrap());
        let (bytes, devices) = (bytes_of_offer(&inventory), inventory.devices().count());
        assert!(bytes <= MAX_OFFERED_BYTES / 1000 * devices, "{}: {bytes} bytes, {devices} devices", path.display());
    }
}

#[test]
fn a_device_is_counted_under_the_class_that_selects_it() {
    const CLASSES: &str = include_str!("../../../../deploy/cluster/deviceclasses.yaml");
    let classes: Vec<DeviceClass> = serde_saphyr::from_multiple(CLASSES).unwrap();
    let options = CelOptions::default();
    let mut compared = 0;
    for path in captures() {
        let inventory = captured(&UnpackedCapture::open(&path).unwrap());
        let status = report(&inventory, &nobody());
        let slices = desired_slices(&inventory, &HoldsInForce::default(), &daemon().settings, &Default::default());
        let devices: Vec<_> =
            slices.iter().flat_map(|pool| &pool.slices).flat_map(|slice| slice.content.devices.clone()).collect();
        for class in &classes {
            let selectors: Vec<Selector> = class
                .spec
                .selectors
                .iter()
                .map(|it| Selector::compile(&it.cel.as_ref().unwrap().expression, &options).unwrap())
                .collect();
            let is_of = |device: &&hostler_api::resource::SliceDevice| {
                let facts = DeviceFacts {
                    driver: DRIVER,
                    attributes: &device.attributes,
                    capacity: &device.capacity,
                    allow_multiple_allocations: device.allow_multiple_allocations,
                };
                selectors.iter().all(|selector| selector.matches(&facts).unwrap_or(false))
            };
            let counted = status.backends.iter().flat_map(|it| &it.classes).filter(|it| it.name == class.metadata.name);
            let counted: u32 = counted.flat_map(|it| &it.zones).map(|it| it.devices.capacity).sum();
            assert_eq!(
                devices.iter().filter(is_of).count(),
                counted as usize,
                "{} {}",
                path.display(),
                class.metadata.name
            );
            compared += counted;
        }
        assert_eq!(status.devices.capacity as usize, devices.len(), "{}", path.display());
    }
    assert!(compared > 0 || captures().is_empty());
}
