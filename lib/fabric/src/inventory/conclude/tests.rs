//! Contradictions: each is a problem with object, field and fix, and its objects stay in the list.

use super::*;
use crate::{AttachKey, FabricConnection, FabricDevice, fake::FakeFabric};

fn rack(change: impl FnOnce(&mut InventoryParts)) -> FabricInventory {
    let mut parts = InventoryParts::default();
    FakeFabric::rack(2, 3).change(|rack| parts = rack.clone());
    change(&mut parts);
    FabricInventory::conclude(parts)
}

fn connection(id: &str, host: u32, device: u32) -> FabricConnection {
    FabricConnection {
        path: ObjectPath::new(format!("/fabric/connections/{id}")),
        id: id.to_owned(),
        key: AttachKey::new(id).ok(),
        initiators: vec![ObjectPath::new(format!("/fabric/initiators/{host}"))],
        targets: vec![ObjectPath::new(format!("/fabric/targets/{device}"))],
        ..FabricConnection::default()
    }
}

fn unusable(inventory: &FabricInventory) -> Vec<&str> {
    inventory.devices.iter().filter(|it| it.unusable.is_some()).map(|it| it.path.as_str()).collect()
}

#[test]
fn a_rack_in_order_has_no_problem_and_everything_is_linked() {
    let inventory = rack(|parts| parts.connections.push(connection("a", 1, 2)));
    assert_eq!(inventory.problems, []);
    assert_eq!(unusable(&inventory), Vec::<&str>::new());
    assert_eq!(inventory.hosts[1].initiators, [ObjectPath::new("/fabric/initiators/1")]);
    let device = &inventory.devices[2];
    assert_eq!(device.domain, Some(ObjectPath::new("/fabric")));
    assert_eq!(device.chunks, [ObjectPath::new("/memory/2/chunks/1")]);
    let made = &inventory.connections[0];
    assert_eq!((made.host.clone(), made.devices.clone()), (FakeFabric::host(1), vec![FakeFabric::device(2)]));
    assert_eq!(inventory.memory_domains[0].free_bytes, Some(0));
}

type Change = Box<dyn FnOnce(&mut InventoryParts)>;

/// Checks changes of a rack: each makes the problem that begins so, spoils these devices, and drops no object.
fn check(table: Vec<(Change, &str, &[&str])>) {
    for (change, expected, devices) in table {
        let inventory = rack(change);
        let problems: Vec<String> = inventory.problems.iter().map(ToString::to_string).collect();
        assert!(problems.iter().any(|it| it.starts_with(expected)), "{problems:#?} have no {expected}");
        assert_eq!(unusable(&inventory), devices, "{expected}");
        assert_eq!((inventory.devices.len(), inventory.hosts.len(), inventory.endpoints.len()), (3, 2, 5));
    }
}

#[test]
fn a_device_that_contradicts_another_object_is_unusable_and_listed() {
    check(vec![
        (
            Box::new(|parts| parts.devices[1].identity = parts.devices[0].identity),
            "/devices/0: Identifiers: has FA-B0-00-00-00-00-00-00:0001, as /devices/1; give each device its own",
            &["/devices/0", "/devices/1"],
        ),
        (
            Box::new(|parts| parts.devices[1].identity = Some(DeviceIdentity { serial: 0, logical_device: 3 })),
            "/devices/1: Identifiers: has the serial number 0; give the device its serial number",
            &["/devices/1"],
        ),
        (
            Box::new(|parts| parts.devices[1].identity = None),
            "/devices/1: Identifiers: has no serial number in the format GCXLID",
            &["/devices/1"],
        ),
        (
            Box::new(|parts| {
                parts.endpoints[4].entities.clear();
                parts.endpoints[4].missing = vec![ObjectPath::new("/gone")];
            }),
            "/fabric/targets/2: ConnectedEntities: links to nothing that exists (/gone); delete the endpoint",
            &[],
        ),
        (
            Box::new(|parts| parts.endpoints[2].entities.push(ObjectPath::new("/devices/1"))),
            "/fabric/targets/0: ConnectedEntities: leads to several devices (/devices/0, /devices/1)",
            &["/devices/0", "/devices/1"],
        ),
        (
            Box::new(|parts| parts.endpoints[2].identities = vec![DeviceIdentity { serial: 7, logical_device: 7 }]),
            "/fabric/targets/0: ConnectedEntities.Identifiers: names 00-00-00-00-00-00-00-07:0007, but /devices/0 is",
            &["/devices/0"],
        ),
    ]);
}

#[test]
fn hosts_and_memory_that_contradict_themselves_are_problems() {
    check(vec![
        (
            Box::new(|parts| parts.hosts[1].uuid = parts.hosts[0].uuid.clone()),
            "/hosts/0: UUID: is that of /hosts/1 too; give each system its own UUID",
            &[],
        ),
        (Box::new(|parts| parts.hosts[1].uuid = None), "/hosts/1: UUID: has no UUID by which a Node", &[]),
        (
            Box::new(|parts| parts.memory_domains[0].size_bytes = Some(5)),
            "/memory/0: MemorySizeMiB: its chunks have 17179869184 bytes and the domain 5; delete a chunk",
            &[],
        ),
        (
            Box::new(|parts| parts.memory_domains[0].chunks[0].devices.push(ObjectPath::new("/gone"))),
            "/memory/0/chunks/1: Links.CXLLogicalDevices: names /gone, which does not exist",
            &[],
        ),
        (
            Box::new(|parts| parts.devices[0].chunks.push(ObjectPath::new("/gone"))),
            "/devices/0: Links.MemoryChunks: names /gone, which does not exist",
            &[],
        ),
    ]);
}

#[test]
fn connections_that_contradict_each_other_are_problems() {
    check(vec![
        (
            Box::new(|parts| parts.connections.extend([connection("a", 0, 1), connection("b", 1, 1)])),
            "/devices/1: Links.Endpoints: is in 2 connections (/fabric/connections/a to fab00000",
            &["/devices/1"],
        ),
        (
            Box::new(|parts| parts.connections.push(connection("a", 9, 1))),
            "/fabric/connections/a: Links.InitiatorEndpoints: names no known host, or several",
            &[],
        ),
        (
            Box::new(|parts| parts.connections.push(connection("a", 0, 9))),
            "/fabric/connections/a: Links.TargetEndpoints: names no known device",
            &[],
        ),
        (
            Box::new(|parts| {
                let twin = FabricConnection { path: ObjectPath::new("/fabric/connections/b"), ..connection("a", 0, 1) };
                parts.connections.extend([connection("a", 0, 0), twin]);
            }),
            "/fabric/connections/b: Id: has the key of /fabric/connections/a; remove one of the two",
            &[],
        ),
    ]);
}

#[test]
fn an_identity_that_only_the_endpoint_tells_is_adopted() {
    let told = FakeFabric::device(0);
    let inventory = rack(|parts| {
        parts.devices[0].identity = None;
        parts.endpoints[2].identities = vec![told];
    });
    assert_eq!((inventory.devices[0].identity, inventory.problems.len()), (Some(told), 0));
}

#[test]
fn free_memory_is_known_only_where_every_size_is() {
    let inventory = rack(|parts| {
        parts.memory_domains[0].size_bytes = Some(20 << 30);
        parts.memory_domains[1].size_bytes = None;
        parts.memory_domains[2].chunks[0].size_bytes = None;
    });
    let free: Vec<Option<u64>> = inventory.memory_domains.iter().map(|it| it.free_bytes).collect();
    assert_eq!(free, [Some(4 << 30), None, None]);
    let beyond = rack(|parts| {
        let chunk = parts.memory_domains[0].chunks[0].clone();
        parts.memory_domains[0].chunks.push(crate::MemoryChunk { size_bytes: Some(u64::MAX), ..chunk });
    });
    assert_eq!(beyond.memory_domains[0].free_bytes, None);
}

#[test]
fn a_connection_that_names_only_a_chunk_holds_its_device() {
    let inventory = rack(|parts| {
        let chunks = vec![ObjectPath::new("/memory/1/chunks/1")];
        parts.connections.push(FabricConnection { targets: Vec::new(), chunks, ..connection("a", 0, 9) });
    });
    assert_eq!(inventory.connections[0].devices, [FakeFabric::device(1)]);
}

/// A comparison of each object with each other one would take minutes here.
#[test]
fn ten_thousand_devices_are_concluded_in_a_moment() {
    let mut parts = InventoryParts::default();
    FakeFabric::rack(1_000, 10_000).change(|rack| parts = rack.clone());
    let begin = std::time::Instant::now();
    let inventory = FabricInventory::conclude(parts);
    assert!(inventory.devices.iter().all(|it: &FabricDevice| it.endpoints.len() == 1 && it.chunks.len() == 1));
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
}
