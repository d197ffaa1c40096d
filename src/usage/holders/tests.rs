//! Who holds what, from inventories and records.

use hostler_api::{Grant, QualifiedName};
use hostler_backend::{Capacity, CounterSet, DevicePlan};
use hostler_linux::topology::{CpuCore, LogicalCpu, Topology};

use super::*;
use crate::{
    claims::{
        ClaimView,
        store::{ClaimRecord, RecordState},
    },
    inventory::Drain,
};

fn name(text: &str) -> DeviceName {
    DeviceName::new(text).unwrap()
}

fn backend(text: &str) -> BackendName {
    BackendName::new(text).unwrap()
}

fn grant(backend_name: &str, device: &str, consumed: &[(&str, u64)]) -> RecordDevice {
    let consumed = consumed.iter().map(|(name, amount)| (QualifiedName::new(*name).unwrap(), Quantity::whole(*amount)));
    RecordDevice {
        local: None,
        backend: backend(backend_name),
        grant: Grant {
            request: "r".to_owned(),
            pool: format!("n1/{backend_name}"),
            device: name(device),
            share_id: None,
            access: Access::Use,
            consumed: consumed.collect(),
            config: Vec::new(),
        },
        plan: DevicePlan::default(),
        counters: Vec::new(),
        capacity: Default::default(),
        edits: Default::default(),
        unmet: Vec::new(),
    }
}

fn table(claims: Vec<(&str, Vec<RecordDevice>)>) -> ClaimTable {
    let view = |(text, devices): (&str, Vec<RecordDevice>)| {
        let uid = ClaimUid::new(format!("uid-{text}")).unwrap();
        let claim = ClaimRef { namespace: "default".to_owned(), name: text.to_owned(), uid: uid.clone() };
        let record = ClaimRecord {
            claim,
            state: RecordState::Prepared,
            boot_id: "b".to_owned(),
            devices,
            metadata: None,
            since: None,
            reserved_for: Vec::new(),
        };
        (uid, ClaimView::Recorded { record: record.into(), problem: None, busy: None })
    };
    claims.into_iter().map(view).collect()
}

fn inventory(backend_name: &str, devices: Vec<Device>, counter_sets: Vec<CounterSet>) -> Inventory {
    let pool = Pool { name: format!("n1/{backend_name}"), devices, counter_sets, ..Pool::default() };
    Inventory { pools: [(backend(backend_name), pool.into())].into(), ..Inventory::default() }
}

fn shared(text: &str, capacity: &str, amount: u64) -> Device {
    let mut device = Device::new(name(text));
    device.sharing = Sharing::Shared;
    let value = Quantity::whole(amount);
    device.capacity.insert(QualifiedName::new(capacity).unwrap(), Capacity { value, policy: None });
    device
}

/// One node of two cores with two threads each, as the cpu backend offers it.
fn four_cpus() -> Inventory {
    let cpu = |core: usize| LogicalCpu { core, ..LogicalCpu::default() };
    let cpus: IdSet = "0-3".parse().unwrap();
    let topology = Topology {
        cpus: (0..4).map(|number| (number, cpu(number as usize / 2))).collect(),
        cores: ["0-1", "2-3"].map(|cpus| CpuCore { cpus: cpus.parse().unwrap() }).into(),
        online: cpus.clone(),
        allowed_cpus: cpus,
        ..Topology::default()
    };
    let found = hostler_cpu::enumeration(&topology, &Default::default()).unwrap();
    inventory("cpu", found.devices, Vec::new())
}

#[test]
fn parts_of_a_shared_device_add_up_and_name_their_holders() {
    let inventory = inventory("fake", vec![shared("pool", "units", 64)], Vec::new());
    let claims = table(vec![
        ("b", vec![grant("fake", "pool", &[("units", 4)])]),
        ("a", vec![grant("fake", "pool", &[("units", 8)])]),
    ]);
    let (holders, devices) = usage(&inventory, &claims);
    let amount = devices[0].amounts["units"];
    assert_eq!([amount.capacity, amount.held, amount.free], [64, 12, 52].map(Quantity::whole));
    assert_eq!(devices[0].holder_names(&holders).into_iter().collect::<Vec<_>>(), ["default/a", "default/b"]);
    assert_eq!(holders[devices[0].holds[0].holder].name, "a", "by name, whatever the UIDs are");
}

#[test]
fn a_capacity_that_is_not_named_is_taken_whole_and_whoever_looks_takes_nothing() {
    let inventory = inventory("fake", vec![shared("pool", "units", 64), shared("other", "units", 8)], Vec::new());
    let mut looks = grant("fake", "other", &[]);
    looks.grant.access = Access::Admin;
    let claims = table(vec![("a", vec![grant("fake", "pool", &[]), looks])]);
    let (_, devices) = usage(&inventory, &claims);
    let held: Vec<Quantity> = devices.iter().map(|device| device.amounts["units"].held).collect();
    assert_eq!(held, [0, 64].map(Quantity::whole), "other, pool");
    assert!(devices[0].holds[0].is_admin);
}

#[test]
fn what_is_gone_or_drained_is_there_as_long_as_somebody_holds_it_or_it_is_drained() {
    let mut inventory = inventory("fake", Vec::new(), Vec::new());
    inventory.drains.insert((backend("fake"), name("drained")), Drain::now(Some("loud".to_owned()), false));
    let claims = table(vec![("a", vec![grant("fake", "held", &[("units", 2)])])]);
    let (_, devices) = usage(&inventory, &claims);
    let shown: Vec<(&str, DeviceHealth, bool)> =
        devices.iter().map(|it| (&*it.name, it.health, it.drained.is_some())).collect();
    assert_eq!(shown, [("drained", DeviceHealth::Absent, true), ("held", DeviceHealth::Absent, false)]);
    let amount = devices[1].amounts["units"];
    assert_eq!([amount.capacity, amount.held, amount.free], [0, 2, 0].map(Quantity::whole));
    assert_eq!(devices[1].pool, "n1/fake");
}

#[test]
fn a_partition_that_nobody_holds_is_not_free_while_another_takes_what_they_share() {
    let uses =
        |amount: u64| CounterUse { set: name("card"), counters: [(name("slots"), Quantity::whole(amount))].into() };
    let partition = |text: &str, amount| Device { consumes: vec![uses(amount)], ..Device::new(name(text)) };
    let counters = CounterSet { name: name("card"), counters: [(name("slots"), Quantity::whole(2))].into() };
    let devices = vec![partition("half-a", 1), partition("half-b", 1), partition("whole", 2)];
    let inventory = inventory("fake", devices, vec![counters]);
    let blocked = |claims| {
        let (_, devices) = usage(&inventory, &claims);
        devices.into_iter().filter(|device| device.blocked).map(|device| device.name).collect::<Vec<_>>()
    };
    assert_eq!(blocked(table(Vec::new())), Vec::<String>::new());
    assert_eq!(blocked(table(vec![("a", vec![grant("fake", "half-a", &[])])])), ["whole"]);
    assert_eq!(blocked(table(vec![("a", vec![grant("fake", "whole", &[])])])), ["half-a", "half-b"]);
}

#[test]
fn every_cpu_has_one_state_and_idle_threads_are_nobodys_to_have() {
    let mut inventory = four_cpus();
    let mut isolated = grant("cpu", "numa0", &[("cpus", 2)]);
    isolated.plan.pinning.cpus = [0].into();
    isolated.plan.data = serde_json::json!({"idle": "1"});
    let claims = table(vec![("a", vec![isolated])]);
    let machine = MachineLayout {
        cores: vec![super::super::layout::LayoutCore { cpus: "0-4".parse().unwrap(), kind: None }],
        offline: "5".parse().unwrap(),
        ..MachineLayout::default()
    };
    let states = |inventory: &Inventory| {
        let usage = MachineUsage::of("n1", machine.clone(), inventory, &claims);
        let amount = usage.devices[0].amounts["cpus"];
        assert_eq!([amount.capacity, amount.held, amount.free], [4, 2, 2].map(Quantity::whole));
        usage.cpu_states().into_values().collect::<Vec<_>>()
    };
    use CpuState::{Drained, Free, Held, Kept, Offline, Reserved};
    assert_eq!(states(&inventory), [Held(0), Kept(0), Free, Free, Reserved, Offline]);
    inventory.drains.insert((backend("cpu"), name("numa0")), Drain::now(None, false));
    assert_eq!(states(&inventory), [Held(0), Kept(0), Drained, Drained, Reserved, Offline]);
}

#[test]
fn the_view_survives_its_way_over_the_socket() {
    let usage = super::super::testing::small();
    let text = serde_json::to_string(&usage).unwrap();
    assert_eq!(serde_json::from_str::<MachineUsage>(&text).unwrap(), usage);
}
