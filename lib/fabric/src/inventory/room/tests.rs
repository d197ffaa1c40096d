//! Which devices have room, how much of it, and what contradicts it.

use super::*;
use crate::{InventoryParts, MemoryChunk, fake::FakeFabric};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Three devices that share a domain of 8 GiB, with these changes.
fn shared(change: impl FnOnce(&mut InventoryParts)) -> FabricInventory {
    let mut parts = InventoryParts::default();
    FakeFabric::shared(1, 3, 8 * GIB).change(|rack| parts = rack.clone());
    change(&mut parts);
    FabricInventory::conclude(parts)
}

fn chunk(size_bytes: Option<u64>, devices: &[&str]) -> MemoryChunk {
    let devices = devices.iter().map(ObjectPath::new).collect();
    MemoryChunk { path: ObjectPath::new("/memory/0/chunks/1"), size_bytes, devices, made_for: None }
}

/// The free bytes of each device's room.
fn rooms(inventory: &FabricInventory) -> Vec<Option<u64>> {
    inventory.devices.iter().map(|device| Some(device.room.as_ref()?.free_bytes)).collect()
}

#[test]
fn sizes_are_rounded_up_to_what_the_domain_can_make() {
    let room = |free, least, step| MemoryRoom {
        domain: ObjectPath::new("/d"),
        free_bytes: free * MIB,
        least_bytes: least * MIB,
        step_bytes: step * MIB,
    };
    for (room, asked, expected) in [
        (room(1000, 100, 30), Some(0), Some(100)),
        (room(1000, 100, 30), Some(1), Some(100)),
        (room(1000, 100, 30), Some(100), Some(100)),
        (room(1000, 100, 30), Some(101), Some(130)),
        (room(1000, 100, 30), Some(130), Some(130)),
        (room(1000, 100, 30), Some(1000), Some(1000)),
        (room(999, 100, 30), Some(970), Some(970)),
        (room(999, 100, 30), Some(971), None),
        (room(999, 100, 30), None, Some(970)),
        (room(100, 100, 30), None, Some(100)),
        (room(99, 100, 30), None, None),
        (room(99, 100, 30), Some(1), None),
        (room(1000, 100, 30), Some(u64::MAX / MIB), None),
        (room(u64::MAX / MIB, 256, 256), Some(u64::MAX / MIB), None),
        (room(1000, 0, 0), Some(7), Some(7)),
    ] {
        let made = room.chunk_bytes(asked.map(|asked| asked * MIB));
        assert_eq!(made, expected.map(|size| size * MIB), "{asked:?} MiB of {room:?}");
    }
    assert_eq!(room(u64::MAX / MIB, 1, 1).chunk_bytes(Some(u64::MAX)), None);
    assert_eq!(room(1000, 100, 30).chunk_bytes(Some(100 * MIB + 1)), Some(130 * MIB), "one byte more is a step more");
}

#[test]
fn devices_without_memory_share_the_room_of_their_domain() {
    let inventory = shared(|parts| parts.memory_domains[0].chunks.push(chunk(Some(3 * GIB), &["/devices/1"])));
    assert_eq!(inventory.problems, []);
    assert_eq!(rooms(&inventory), [Some(5 * GIB), None, Some(5 * GIB)]);
    let room = inventory.devices[0].room.as_ref().unwrap();
    assert_eq!((room.domain.as_str(), room.least_bytes, room.step_bytes), ("/memory/0", 256 * MIB, 256 * MIB));
    let by_device = shared(|parts| {
        parts.memory_domains[0].devices.clear();
        parts.devices[0].memory_domains.push(ObjectPath::new("/memory/0"));
    });
    assert_eq!(rooms(&by_device), [Some(8 * GIB), None, None], "either side may name the other");
    assert_eq!(by_device.devices[0].memory_domains, [ObjectPath::new("/memory/0")]);
}

#[test]
fn devices_for_which_no_memory_is_made_have_no_room_and_no_problem() {
    let second = MemoryDomain {
        path: ObjectPath::new("/memory/1"),
        devices: vec![ObjectPath::new("/devices/0")],
        ..MemoryDomain::default()
    };
    for (inventory, expected) in [
        (shared(|parts| parts.memory_domains[0].allows_chunk_creation = false), [None; 3]),
        (shared(|parts| parts.memory_domains[0].size_bytes = Some(255 * MIB)), [None; 3]),
        (shared(|parts| parts.devices[0].kind = DeviceKind::Accelerator), [None, Some(8 * GIB), Some(8 * GIB)]),
        (shared(|parts| parts.devices[0].kind = DeviceKind::Unknown), [Some(8 * GIB); 3]),
        (shared(|parts| parts.memory_domains.push(second)), [Some(8 * GIB); 3]),
    ] {
        assert_eq!((rooms(&inventory), inventory.problems), (expected.to_vec(), Vec::new()));
    }
}

type Change = Box<dyn FnOnce(&mut InventoryParts)>;

#[test]
fn memory_that_contradicts_itself_is_not_offered_and_a_problem_says_why() {
    let all = ["/devices/0", "/devices/1", "/devices/2"];
    let table: Vec<(Change, &str)> = vec![
        (
            Box::new(|parts| parts.memory_domains[0].size_bytes = None),
            "/memory/0: MemorySizeMiB: is not told, so that the free memory of the domain is not known",
        ),
        (
            Box::new(|parts| parts.memory_domains[0].chunks.push(chunk(None, &[]))),
            "/memory/0/chunks/1: MemoryChunkSizeMiB: is not told",
        ),
        (
            Box::new(|parts| parts.memory_domains[0].chunks.push(chunk(Some(9 * GIB), &[]))),
            "/memory/0: MemorySizeMiB: its chunks have 9663676416 bytes and the domain 8589934592; delete a chunk",
        ),
        (
            Box::new(|parts| {
                let orphan = MemoryChunk { made_for: crate::AttachKey::new("a").ok(), ..chunk(Some(GIB), &[]) };
                parts.memory_domains[0].chunks.push(orphan);
            }),
            "/memory/0/chunks/1: Links.CXLLogicalDevices: was made for a device and names none",
        ),
        (
            Box::new(|parts| parts.memory_domains[0].doubt = Some("its agent is not asked".to_owned())),
            "/memory/0: MemoryChunks: its agent is not asked",
        ),
        (
            Box::new(|parts| {
                let twin = MemoryDomain { path: ObjectPath::new("/memory/1"), ..parts.memory_domains[0].clone() };
                parts.memory_domains.push(twin);
            }),
            "/devices/0: Links.MemoryDomains: names several memory domains (/memory/0, /memory/1)",
        ),
        (
            Box::new(|parts| parts.devices.iter_mut().for_each(|it| it.memory_domains.push(ObjectPath::new("/gone")))),
            "/devices/0: Links.MemoryDomains: names /gone, which does not exist; mend the link",
        ),
        (
            Box::new(|parts| parts.devices.iter_mut().for_each(|it| it.chunks.push(ObjectPath::new("/gone")))),
            "/devices/0: Links.MemoryChunks: names /gone, which does not exist; mend the link",
        ),
    ];
    for (change, expected) in table {
        let inventory = shared(change);
        let problems: Vec<String> = inventory.problems.iter().map(ToString::to_string).collect();
        assert!(problems.iter().any(|it| it.starts_with(expected)), "{problems:#?} have no {expected}");
        assert_eq!(rooms(&inventory), [None; 3], "{expected}");
    }
    let sated = shared(|parts| {
        parts.memory_domains[0].chunks.push(chunk(None, &all));
        parts.memory_domains[0].doubt = Some("its agent is not asked".to_owned());
    });
    assert_eq!(sated.problems, [], "each device has memory, so that nothing is missed");
}
