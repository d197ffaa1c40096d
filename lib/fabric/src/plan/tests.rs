//! Every refusal, and every way in which a request can have been carried out before.

use super::*;
use crate::{FabricEndpoint, InventoryParts, MemoryChunk, fake::FakeFabric};

fn request(key: &str, host: u32, target: AttachTarget) -> AttachRequest {
    AttachRequest { key: AttachKey::new(key).unwrap(), host: FakeFabric::host(host).unwrap(), target }
}

fn device(key: &str, host: u32, device: u32) -> AttachRequest {
    request(key, host, AttachTarget::Device(FakeFabric::device(device)))
}

fn chunk(key: &str, host: u32, path: &str) -> AttachRequest {
    request(key, host, AttachTarget::Chunk(ObjectPath::new(path)))
}

/// A rack of two hosts and two devices with these changes.
fn inventory(change: impl FnOnce(&mut InventoryParts)) -> FabricInventory {
    let mut parts = InventoryParts::default();
    FakeFabric::rack(2, 2).change(|rack| parts = rack.clone());
    change(&mut parts);
    FabricInventory::conclude(parts)
}

fn connection(id: &str, host: u32, target: u32, chunks: &[&str]) -> FabricConnection {
    FabricConnection {
        path: ObjectPath::new(format!("/fabric/connections/{id}")),
        id: id.to_owned(),
        key: AttachKey::new(id).ok(),
        initiators: vec![ObjectPath::new(format!("/fabric/initiators/{host}"))],
        targets: vec![ObjectPath::new(format!("/fabric/targets/{target}"))],
        chunks: chunks.iter().map(ObjectPath::new).collect(),
        ..FabricConnection::default()
    }
}

#[test]
fn a_plan_names_the_endpoints_of_both_sides_and_the_chunks_of_the_device() {
    let AttachStep::Connect(plan) = plan_attach(&inventory(|_| ()), &device("a", 1, 0)).unwrap() else {
        panic!("nothing is attached yet")
    };
    assert_eq!(plan.initiators, [ObjectPath::new("/fabric/initiators/1")]);
    assert_eq!(plan.targets, [ObjectPath::new("/fabric/targets/0")]);
    assert_eq!(plan.chunks, [ObjectPath::new("/memory/0/chunks/1")]);
    assert_eq!((plan.domain.as_str(), plan.device), ("/fabric", FakeFabric::device(0)));
}

#[test]
fn a_request_that_was_carried_out_is_recognised() {
    let made = |it: FabricConnection| inventory(|parts| parts.connections.push(it));
    for (inventory, request) in [
        (made(connection("a", 0, 1, &["/memory/1/chunks/1"])), device("a", 0, 1)),
        (made(connection("a", 0, 1, &[])), device("a", 0, 1)),
        (made(connection("a", 0, 1, &["/memory/1/chunks/1"])), chunk("a", 0, "/memory/1/chunks/1")),
    ] {
        assert!(matches!(plan_attach(&inventory, &request), Ok(AttachStep::Already(_))), "{request:?}");
    }
}

#[test]
fn every_refusal_names_the_objects_and_the_fix() {
    let held = || inventory(|parts| parts.connections.push(connection("x", 0, 0, &[])));
    let unchanged = || inventory(|_| ());
    let host = FakeFabric::host(0).unwrap().to_string();
    let table = [
        (held(), device("x", 1, 0), format!("key x is used for {} on host {host} already", FakeFabric::device(0))),
        (held(), device("x", 0, 1), "key x is used for".to_owned()),
        (held(), device("y", 1, 0), format!("is held by connection x for host {host}; detach that one first")),
        (held(), device("y", 0, 0), "is held by connection x".to_owned()),
        (held(), chunk("y", 1, "/memory/0/chunks/1"), "is held by connection x".to_owned()),
        (unchanged(), device("a", 9, 0), "knows no host fab00000-0000-4000-8000-000000000009".to_owned()),
        (unchanged(), device("a", 0, 9), "has no device FA-B0-00-00-00-00-00-09:0001".to_owned()),
        (unchanged(), chunk("a", 0, "/nowhere"), "has no chunk /nowhere".to_owned()),
        (inventory(|parts| parts.hosts[1].uuid = FakeFabric::host(0)), device("a", 0, 0), "is not used: ".to_owned()),
        (
            inventory(|parts| parts.endpoints.remove(0).path = ObjectPath::default()),
            device("a", 0, 0),
            "no endpoint".to_owned(),
        ),
        (
            inventory(|parts| parts.devices[1].identity = parts.devices[0].identity),
            device("a", 0, 0),
            "is not attached: ".to_owned(),
        ),
        (
            inventory(|parts| parts.memory_domains[0].chunks[0].devices.clear()),
            chunk("a", 0, "/memory/0/chunks/1"),
            "belongs to 0 devices".to_owned(),
        ),
        (
            inventory(|parts| parts.endpoints.retain(|it| it.is_initiator)),
            device("a", 0, 0),
            "no endpoints in one fabric".to_owned(),
        ),
    ];
    for (inventory, request, expected) in table {
        let refusal = plan_attach(&inventory, &request).unwrap_err().to_string();
        assert!(refusal.contains(&expected), "{refusal} has no {expected}");
    }
}

#[test]
fn memory_that_two_devices_show_goes_to_one_host_only() {
    let shared = |holder: u32| {
        inventory(|parts| {
            let devices = ["/devices/0", "/devices/1"].map(ObjectPath::new).to_vec();
            let chunk = MemoryChunk { path: ObjectPath::new("/memory/0/chunks/9"), size_bytes: None, devices };
            parts.memory_domains[0].chunks.push(chunk);
            parts.connections.push(connection("x", holder, 0, &[]));
        })
    };
    let refusal = plan_attach(&shared(0), &device("y", 1, 1)).unwrap_err().to_string();
    assert!(refusal.contains("shares chunk /memory/0/chunks/9 with a device that connection x holds"), "{refusal}");
    let AttachStep::Connect(plan) = plan_attach(&shared(1), &device("y", 1, 1)).unwrap() else { panic!("it is free") };
    assert_eq!(plan.chunks, [ObjectPath::new("/memory/1/chunks/1")], "a shared chunk is not handed out");
    let both = plan_attach(&shared(0), &chunk("y", 0, "/memory/0/chunks/9")).unwrap_err().to_string();
    assert!(both.contains("belongs to 2 devices; name the device instead"), "{both}");
}

#[test]
fn host_and_device_meet_in_one_of_several_domains() {
    let split = inventory(|parts| {
        let second = ObjectPath::new("/second");
        parts.domains.push(crate::SwitchDomain { path: second.clone(), ..Default::default() });
        parts.endpoints.iter_mut().filter(|it| !it.is_initiator).for_each(|it| it.domain = second.clone());
    });
    assert!(matches!(plan_attach(&split, &device("a", 0, 0)), Err(AttachRefusal::Apart { .. })));
    let joined = inventory(|parts| {
        let second = ObjectPath::new("/second");
        parts.domains.push(crate::SwitchDomain { path: second.clone(), ..Default::default() });
        parts.endpoints.iter_mut().filter(|it| !it.is_initiator).for_each(|it| it.domain = second.clone());
        parts.endpoints.push(FabricEndpoint {
            path: ObjectPath::new("/second/initiators/0"),
            domain: second,
            is_initiator: true,
            entities: vec![ObjectPath::new("/hosts/0")],
            ..FabricEndpoint::default()
        });
    });
    let AttachStep::Connect(plan) = plan_attach(&joined, &device("a", 0, 0)).unwrap() else { panic!("it is free") };
    assert_eq!(plan.initiators, [ObjectPath::new("/second/initiators/0")]);
}
