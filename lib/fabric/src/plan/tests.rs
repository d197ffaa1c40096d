//! Every refusal, and every way in which a request can have been carried out before.

use super::*;
use crate::{FabricEndpoint, InventoryParts, MemoryChunk, fake::FakeFabric};

fn device(key: &str, host: u32, device: u32) -> AttachRequest {
    let (key, host) = (AttachKey::new(key).unwrap(), FakeFabric::host(host).unwrap());
    AttachRequest { key, host, device: FakeFabric::device(device), memory: None }
}

/// A request for an amount.
fn amount(key: &str, host: u32, at: u32, bytes: u64) -> AttachRequest {
    AttachRequest { memory: Some(bytes), ..device(key, host, at) }
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
        (made(connection("a", 0, 1, &["/memory/1/chunks/1"])), amount("a", 0, 1, 5)),
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
        (unchanged(), device("a", 9, 0), "knows no host fab00000-0000-4000-8000-000000000009".to_owned()),
        (unchanged(), device("a", 0, 9), "has no device FA-B0-00-00-00-00-00-09:0001".to_owned()),
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
            let chunk =
                MemoryChunk { path: ObjectPath::new("/memory/0/chunks/9"), size_bytes: None, devices, made_for: None };
            parts.memory_domains[0].chunks.push(chunk);
            parts.connections.push(connection("x", holder, 0, &[]));
        })
    };
    let refusal = plan_attach(&shared(0), &device("y", 1, 1)).unwrap_err().to_string();
    assert!(refusal.contains("shares chunk /memory/0/chunks/9 with a device that connection x holds"), "{refusal}");
    let AttachStep::Connect(plan) = plan_attach(&shared(1), &device("y", 1, 1)).unwrap() else { panic!("it is free") };
    assert_eq!(plan.chunks, [ObjectPath::new("/memory/1/chunks/1")], "a shared chunk is not handed out");
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

const GIB: u64 = 1 << 30;

/// Two hosts, and two devices that share a domain of 8 GiB, with these changes.
fn shared(change: impl FnOnce(&mut InventoryParts)) -> FabricInventory {
    let mut parts = InventoryParts::default();
    FakeFabric::shared(2, 2, 8 * GIB).change(|rack| parts = rack.clone());
    change(&mut parts);
    FabricInventory::conclude(parts)
}

/// A chunk of the shared domain for these devices.
fn chunk(name: &str, gib: u64, devices: &[&str], is_made: bool) -> MemoryChunk {
    let devices = devices.iter().map(ObjectPath::new).collect();
    MemoryChunk {
        path: ObjectPath::new(format!("/memory/0/chunks/{name}")),
        size_bytes: Some(gib * GIB),
        devices,
        made_for: is_made.then(|| AttachKey::new(name).unwrap()),
    }
}

#[test]
fn a_device_without_memory_is_given_as_much_as_was_asked_for_in_whole_steps() {
    for (asked, expected) in
        [(1, 256 << 20), (3 * GIB, 3 * GIB), (3 * GIB + 1, 3 * GIB + (256 << 20)), (8 * GIB, 8 * GIB)]
    {
        let AttachStep::Connect(plan) = plan_attach(&shared(|_| ()), &amount("a", 0, 1, asked)).unwrap() else {
            panic!("nothing is attached yet")
        };
        let (domain, device) = (ObjectPath::new("/memory/0"), ObjectPath::new("/devices/1"));
        assert_eq!(plan.make, Some(PlannedChunk { domain, device, size_bytes: expected }));
        assert_eq!(plan.chunks, []);
    }
    let AttachStep::Connect(plan) = plan_attach(&shared(|_| ()), &device("a", 0, 1)).unwrap() else { panic!() };
    assert_eq!(plan.make.map(|make| make.size_bytes), Some(8 * GIB), "all that is free");
}

#[test]
fn memory_that_is_there_is_attached_where_it_is_enough() {
    let with = |chunks: Vec<MemoryChunk>| shared(|parts| parts.memory_domains[0].chunks = chunks);
    let own = ["/devices/1"];
    for (chunks, asked) in [
        (vec![chunk("a", 3, &own, true)], 3 * GIB),
        (vec![chunk("a", 3, &own, true)], 1),
        (vec![chunk("a", 1, &own, true), chunk("b", 2, &own, true)], 3 * GIB),
        // The caller knows the size of memory that a person has made.
        (vec![chunk("1", 3, &own, false)], 7 * GIB),
    ] {
        let names: Vec<ObjectPath> = chunks.iter().map(|chunk| chunk.path.clone()).collect();
        let AttachStep::Connect(plan) = plan_attach(&with(chunks), &amount("x", 0, 1, asked)).unwrap() else {
            panic!()
        };
        assert_eq!((plan.make, plan.chunks), (None, names));
    }
    let small = with(vec![chunk("a", 2, &own, true)]);
    let refusal = plan_attach(&small, &amount("x", 0, 1, 3 * GIB)).unwrap_err().to_string();
    assert!(
        refusal.contains("has 2147483648 bytes of memory that was made for another request (chunk /memory/0/chunks/a)")
    );
    assert!(refusal.contains("and 3221225472 bytes are asked for; free the memory of the device first"), "{refusal}");
    assert!(matches!(plan_attach(&small, &device("x", 0, 1)), Ok(AttachStep::Connect(_))));
}

#[test]
fn a_refusal_for_want_of_memory_says_how_much_is_free_and_who_has_the_rest() {
    let full = shared(|parts| {
        parts.memory_domains[0].chunks =
            vec![chunk("a", 6, &["/devices/0"], true), chunk("1", 1, &["/devices/9"], false)];
        parts.connections.push(connection("a", 1, 0, &[]));
    });
    let refusal = plan_attach(&full, &amount("x", 0, 1, 2 * GIB)).unwrap_err().to_string();
    let (first, host) = (FakeFabric::device(0), FakeFabric::host(1).unwrap());
    for part in [
        "2147483648 bytes cannot be made for it: 1073741824 bytes of memory domain /memory/0 are free".to_owned(),
        format!("/memory/0/chunks/a has 6442450944 bytes for device {first} on {host}"),
        "/memory/0/chunks/1 has 1073741824 bytes for no known device".to_owned(),
    ] {
        assert!(refusal.contains(&part), "{refusal} has no {part}");
    }
    let none_left = shared(|parts| parts.memory_domains[0].chunks = vec![chunk("a", 8, &["/devices/0"], true)]);
    let refusal = plan_attach(&none_left, &amount("x", 0, 1, 1)).unwrap_err();
    assert!(matches!(refusal, AttachRefusal::NoRoom { free: 0, asked: 1, .. }), "{refusal}");
    let refusal = plan_attach(&none_left, &device("x", 0, 1)).unwrap_err();
    assert!(matches!(refusal, AttachRefusal::NoRoom { .. }), "a device without memory is no use: {refusal}");
    let doubtful = shared(|parts| parts.memory_domains[0].doubt = Some("its agent is not asked".to_owned()));
    let refusal = plan_attach(&doubtful, &amount("x", 0, 1, 1)).unwrap_err();
    assert!(matches!(refusal, AttachRefusal::NoMemory { .. }), "{refusal}");
    let closed = shared(|parts| parts.memory_domains[0].allows_chunk_creation = false);
    let refusal = plan_attach(&closed, &amount("x", 0, 1, 1)).unwrap_err();
    assert!(matches!(refusal, AttachRefusal::NoMemory { asked: 1, .. }), "{refusal}");
    let AttachStep::Connect(plan) = plan_attach(&closed, &device("x", 0, 1)).unwrap() else { panic!() };
    assert_eq!((plan.make, plan.chunks), (None, Vec::new()), "devices without memory domains are attached as they are");
}

#[test]
fn only_memory_that_was_made_for_the_device_alone_is_freed_and_only_while_nothing_holds_it() {
    let device = FakeFabric::device(1);
    let with = |chunk: MemoryChunk, held: Option<FabricConnection>| {
        let inventory = shared(|parts| {
            parts.memory_domains[0].chunks = vec![chunk];
            parts.connections.extend(held);
        });
        plan_free(&inventory, device, &AttachKey::new("a").unwrap())
    };
    let made = || chunk("a", 1, &["/devices/1"], true);
    assert_eq!(with(made(), None).unwrap(), [ObjectPath::new("/memory/0/chunks/a")]);
    assert_eq!(with(chunk("1", 1, &["/devices/1"], false), None).unwrap(), []);
    assert_eq!(with(chunk("a", 1, &["/devices/0"], true), None).unwrap(), [], "that of another device");
    assert_eq!(
        with(chunk("b", 1, &["/devices/1"], true), None).unwrap(),
        [],
        "a call that is late meets a later chunk"
    );
    let by_device = with(made(), Some(connection("x", 0, 1, &[]))).unwrap_err();
    assert!(matches!(by_device, AttachRefusal::DeviceHeld { .. }), "{by_device}");
    let by_chunk = with(made(), Some(connection("x", 0, 0, &["/memory/0/chunks/a"]))).unwrap_err();
    assert!(matches!(by_chunk, AttachRefusal::DeviceHeld { .. } | AttachRefusal::MemoryHeld { .. }), "{by_chunk}");
    let shared = with(chunk("a", 1, &["/devices/0", "/devices/1"], true), None).unwrap_err();
    assert!(matches!(shared, AttachRefusal::MemoryShared { .. }), "{shared}");
    assert!(plan_free(&inventory(|_| ()), FakeFabric::device(9), &AttachKey::new("a").unwrap()).is_err());
}
