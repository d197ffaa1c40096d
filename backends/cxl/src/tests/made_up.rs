//! Memory of made-up machines: what emulators cannot build, and what should not be.

use std::{fs, sync::Arc};

use hostler_api::{Chain, fabric::ErasureMethod};
use hostler_backend::{
    Backend, CardSerials, Device, Enumeration,
    testkit::{Samples, conformance},
};
use hostler_linux::testkit::{
    AccessCounts, AttributeFaults, CxlCard, CxlHost, MachineTree, PluggedCard, RegionUse, cxl_function, plug_hmem,
};
use nix::errno::Errno;

use super::{attribute, backend, device};
use crate::{cdat, device::CxlDevice};

const GIB: u64 = 1 << 30;

fn scan(tree: &MachineTree) -> Enumeration {
    backend(&tree.root()).enumerate().unwrap()
}

fn names(found: &Enumeration) -> Vec<&str> {
    found.devices.iter().map(|device| device.name.as_str()).collect()
}

fn gib(device: &Device) -> u64 {
    device.capacity["memory"].value.as_whole().unwrap() / GIB
}

/// The devices whose counters a device takes.
fn takes(device: &Device) -> Vec<&str> {
    device.consumes.iter().flat_map(|uses| uses.counters.keys()).map(|counter| counter.as_str()).collect()
}

fn host(tree: &MachineTree, serials: impl IntoIterator<Item = u64>) -> (CxlHost<'_>, Vec<PluggedCard>) {
    let mut host = CxlHost::new(tree);
    let cards = serials.into_iter().map(|serial| host.plug(&CxlCard::new(serial))).collect();
    (host, cards)
}

#[test]
fn an_interleaved_region_is_one_dax_device_of_all_its_cards() {
    let tree = MachineTree::new();
    let (mut host, cards) = host(&tree, [0xa, 0xb, 0xc]);
    host.region(&[&cards[1], &cards[0]], RegionUse::DevDax(5));
    let found = scan(&tree);
    assert_eq!(names(&found), ["memory-a", "memory-b", "memory-c", "dax-b-x2"]);
    let dax = device(&found.devices, "dax-b-x2");
    let facts = ["kind", "interleaveWays", "cards", "targetNode", "mode", "committed"].map(|name| attribute(dax, name));
    assert_eq!(facts, ["dax", "2", "2", "5", "ram", "true"]);
    assert_eq!((gib(dax), dax.edits.device_nodes[0].path.as_str()), (32, "/dev/dax0.0"));
    assert_eq!(takes(dax), ["memory-a", "memory-b"]);
    let uses = ["memory-a", "memory-b", "memory-c"].map(|name| attribute(device(&found.devices, name), "use"));
    assert_eq!(uses, ["devDax", "devDax", "none"]);
}

#[test]
fn a_region_that_firmware_gave_to_the_system_is_a_node() {
    let tree = MachineTree::new();
    let (mut host, cards) = host(&tree, [1]);
    host.region(&[&cards[0]], RegionUse::Firmware(3));
    let found = scan(&tree);
    assert_eq!(names(&found), ["memory-1", "node3"]);
    assert_eq!(gib(device(&found.devices, "node3")), 16);
    let card = device(&found.devices, "memory-1");
    assert_eq!(["use", "targetNode", "attachable"].map(|name| attribute(card, name)), ["systemRam", "3", "false"]);
}

#[test]
fn a_card_whose_endpoint_cannot_be_seen_is_not_attachable() {
    for part in ["uport", "decoder"] {
        let tree = MachineTree::new();
        let (_host, cards) = host(&tree, [1]);
        assert_eq!(attribute(device(&scan(&tree).devices, "memory-1"), "attachable"), "true");
        let entries = fs::read_dir(tree.path(&cards[0].endpoint)).unwrap().map(|entry| entry.unwrap().file_name());
        let parts = entries.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with(part));
        parts.for_each(|name| _ = tree.remove(cards[0].endpoint.join(name)));
        let card = device(&scan(&tree).devices, "memory-1").clone();
        assert_eq!(attribute(&card, "attachable"), "false", "{part}");
        assert_eq!(attribute(&card, "use"), if part == "uport" { "-" } else { "none" });
    }
}

#[test]
fn a_region_of_no_known_kind_stays_cxl_memory_and_is_named() {
    let tree = MachineTree::new();
    let (mut host, cards) = host(&tree, [1]);
    let region = host.region(&[&cards[0]], RegionUse::SystemRam(5));
    tree.remove(region.join("mode"));
    let found = scan(&tree);
    assert_eq!(names(&found), ["memory-1", "node5"]);
    assert!(tree.look(hostler_linux::cxl_nodes).contains_key(&5), "the memory backend leaves it out");
    let card = device(&found.devices, "memory-1");
    assert_eq!(["use", "targetNode", "attachable"].map(|name| attribute(card, name)), ["systemRam", "5", "false"]);
    let [warning] = &found.warnings[..] else { panic!("{:?}", found.warnings) };
    assert!(warning.path.ends_with("/mode") && warning.reason.starts_with("says neither ram nor pmem"), "{warning:?}");
}

#[test]
fn a_node_of_other_memory_too_is_left_to_the_memory_backend() {
    let tree = MachineTree::new();
    let (mut host, cards) = host(&tree, [1]);
    host.region(&[&cards[0]], RegionUse::SystemRam(0));
    tree.folder("sys/devices/system/node/node0/memory0");
    assert_eq!(names(&scan(&tree)), ["memory-1"]);
    assert!(tree.look(hostler_linux::cxl_nodes).is_empty());
}

#[test]
fn memory_set_aside_by_firmware_is_offered_once_and_in_a_window_only() {
    let tree = MachineTree::new();
    let (mut host, cards) = host(&tree, [1]);
    let window = 1024 * GIB;
    // Outside of any window: it may be anything.
    plug_hmem(&tree, 7, 8 * GIB, 4 * GIB, 4, "device_dax");
    // Inside, at the end.
    plug_hmem(&tree, 8, window + 500 * GIB, 4 * GIB, 5, "device_dax");
    let inside = format!("dax-at-{:x}", window + 500 * GIB);
    assert_eq!(names(&scan(&tree)), ["memory-1", &inside]);
    assert_eq!(gib(device(&scan(&tree).devices, &inside)), 4);
    // The same bytes as a region.
    host.region(&[&cards[0]], RegionUse::DevDax(5));
    plug_hmem(&tree, 9, window, 16 * GIB, 5, "device_dax");
    assert_eq!(names(&scan(&tree)), ["memory-1", "dax-1", &inside]);
    // As memory of the system it is a node.
    plug_hmem(&tree, 10, window + 504 * GIB, 4 * GIB, 6, "kmem");
    assert_eq!(names(&scan(&tree)), ["memory-1", "node6", "dax-1", &inside]);
}

#[test]
fn cards_that_share_a_serial_number_or_have_none_are_told_by_their_place() {
    let tree = MachineTree::new();
    host(&tree, [7, 0, 7, 8]);
    let found = scan(&tree);
    assert_eq!(names(&found), ["memory-0000-11-00-0", "memory-0000-12-00-0", "memory-0000-13-00-0", "memory-8"]);
    assert_eq!(attribute(&found.devices[1], "serial"), "-");
}

#[test]
fn a_card_of_dynamic_capacity_is_recognised() {
    let tree = MachineTree::new();
    let mut host = CxlHost::new(&tree);
    let mut broken = cdat::tests::table(true);
    broken[20] ^= 1;
    for (serial, table) in
        [(1, Some(cdat::tests::table(true))), (2, Some(cdat::tests::table(false))), (3, None), (4, Some(broken))]
    {
        host.plug(&CxlCard { cdat: table, ..CxlCard::new(serial) });
    }
    let found = scan(&tree);
    let dynamic: Vec<String> = found.devices.iter().map(|device| attribute(device, "dynamicCapacity")).collect();
    assert_eq!(dynamic, ["true", "false", "-", "-"]);
    assert_eq!(found.warnings.len(), 1);
    assert!(found.warnings[0].path.ends_with("endpoint103/CDAT"), "{:?}", found.warnings);
}

#[test]
fn half_of_everything_is_still_what_can_be_known() {
    let tree = MachineTree::new();
    let (mut host, cards) = host(&tree, [1, 2, 3, 4]);
    host.region(&[&cards[0]], RegionUse::SystemRam(5));
    let second = host.region(&[&cards[1]], RegionUse::DevDax(6));
    // A region loses its card, a card its PCI attributes, a link its target; links lead in circles where nobody goes.
    tree.remove(second.join("target0"));
    tree.remove(cards[2].function.folder().join("vendor"));
    tree.remove(cards[3].memdev.clone());
    let root = "sys/devices/platform/ACPI0017:00/root0";
    tree.link(format!("{root}/port1/endpoint100/loop"), format!("{root}/port1"));
    tree.link("sys/bus/cxl/devices/region77", "sys/devices/nowhere");
    let found = scan(&tree);
    assert_eq!(names(&found), ["memory-1", "memory-2", "memory-3", "memory-4", "node5"]);
    let broken: Vec<&str> = found.warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(broken, ["/sys/bus/cxl/devices/mem3", "/sys/bus/cxl/devices/region77"]);
    let third = device(&found.devices, "memory-3");
    assert_eq!([attribute(third, "vendor"), attribute(third, "serial")], ["-", "0x3"]);
    let fourth = device(&found.devices, "memory-4");
    assert!(fourth.health.reason().unwrap().contains("shows no memory device"), "{fourth:?}");
}

#[test]
fn garbage_in_attributes_is_warned_of() {
    let tree = MachineTree::new();
    let (mut host, cards) = host(&tree, [1, 2]);
    let region = host.region(&[&cards[0]], RegionUse::SystemRam(5));
    let node = "sys/devices/system/node/node5";
    let pool = format!("{node}/hugepages/hugepages-2048kB/nr_hugepages");
    let tier = "sys/devices/virtual/memory_tiering/memory_tier4/nodelist";
    // What the kernel says of what it does not know is no garbage.
    tree.file(cards[0].memdev.join("numa_node"), "-1").file(cards[0].memdev.join("ram/qos_class"), "-1");
    tree.file(&pool, "0").file(tier, "5");
    assert_eq!(scan(&tree).warnings, []);
    let files = [
        (cards[0].memdev.join("serial"), "ours"),
        (cards[1].memdev.join("numa_node"), "left"),
        (cards[1].memdev.join("ram/size"), "0x4GiB"),
        (cards[1].endpoint.join("decoder101.0/dpa_size"), "some"),
        (region.join("interleave_ways"), "4294967296"),
        (region.join("commit"), "yes"),
        (format!("{node}/meminfo").into(), "Node 5 MemTotal: much kB"),
        (pool.into(), "few"),
        (tier.into(), "fast"),
    ];
    for (file, text) in &files {
        tree.file(file, text);
    }
    let warnings = scan(&tree).warnings;
    let mut expected: Vec<String> = files.iter().map(|(file, _)| format!("/{}", file.display())).collect();
    expected.sort_unstable();
    assert_eq!(warnings.iter().map(|warning| &*warning.path).collect::<Vec<_>>(), expected);
    let of_node = warnings.iter().find(|warning| warning.path.ends_with("/meminfo")).unwrap();
    assert_eq!(of_node.reason, "does not say how much memory the node has (MemTotal); taken as none");
    let rest = warnings.iter().filter(|warning| !warning.path.ends_with("/meminfo"));
    for warning in rest {
        assert!(warning.reason.ends_with("; taken as absent"), "{warning:?}");
    }
}

#[test]
fn what_cannot_be_reached_is_not_taken_for_gone() {
    let tree = MachineTree::new();
    host(&tree, [1]);
    tree.link("sys/bus/cxl/devices/region77", "sys/bus/cxl/devices/region77");
    let error = backend(&tree.root()).enumerate().unwrap_err();
    assert!(Chain(&error).to_string().contains("failed to read /sys/bus/cxl/devices/region77"), "{error:?}");
}

#[test]
fn details_that_fail_are_absent_with_a_warning_and_cost_nothing_else() {
    let tree = MachineTree::new();
    let (mut host, cards) = host(&tree, [1, 2]);
    host.region(&[&cards[0]], RegionUse::SystemRam(5));
    let whole = scan(&tree);
    let faults = Arc::new(AttributeFaults::default());
    for (path, errno) in [
        (cards[0].memdev.join("firmware_version"), Errno::EIO),
        (cards[0].memdev.join("security/state"), Errno::EBUSY),
        (cards[0].function.folder().join("numa_node"), Errno::ENXIO),
        (cards[1].endpoint.join("CDAT"), Errno::EACCES),
    ] {
        faults.set(path, errno);
    }
    let found = backend(&tree.root().tapped(faults)).enumerate().unwrap();
    assert_eq!(names(&found), names(&whole));
    let warned: Vec<&str> = found.warnings.iter().map(|warning| &*warning.path).collect();
    let ends = ["firmware_version", "security/state", "CDAT"];
    assert!(warned.len() == 3 && ends.iter().all(|end| warned.iter().any(|path| path.ends_with(end))), "{warned:?}");
    let less = |name: &str| {
        let all = &device(&whole.devices, name).attributes;
        let left = &device(&found.devices, name).attributes;
        all.keys().filter(|key| left.get(*key).is_none()).map(ToString::to_string).collect::<Vec<_>>()
    };
    let lost = ["firmwareVersion", "resource.kubernetes.io/numaNode", "security"];
    assert_eq!(less("memory-1"), lost);
    assert_eq!(less("memory-2"), Vec::<String>::new());
}

#[test]
fn a_node_of_more_cards_than_counters_takes_none_and_the_cards_stay() {
    let tree = MachineTree::new();
    let (mut host, cards) = host(&tree, 1..=70);
    for card in &cards {
        host.region(&[card], RegionUse::SystemRam(5));
    }
    let found = scan(&tree);
    assert_eq!(found.devices.len(), 71);
    assert_eq!(found.counter_sets.iter().map(|set| set.counters.len()).collect::<Vec<_>>(), [32, 32, 6]);
    assert_eq!(takes(device(&found.devices, "node5")), Vec::<&str>::new());
    assert!(found.devices.iter().all(|device| device.problems().is_empty()));
}

#[test]
fn what_is_read_grows_with_what_is_there_and_no_faster() {
    let opens = |cards: u64| {
        let tree = MachineTree::new();
        let (mut host, plugged) = host(&tree, 1..=cards);
        for (index, card) in plugged.iter().enumerate() {
            host.region(&[card], if index % 2 == 0 { RegionUse::SystemRam(5) } else { RegionUse::DevDax(6) });
        }
        let counts = Arc::new(AccessCounts::default());
        let backend = backend(&tree.root().tapped(counts.clone()));
        assert_eq!(backend.enumerate().unwrap().devices.len() as u64, cards + cards / 2 + 1);
        counts.take().values().sum::<usize>()
    };
    let [eight, sixteen, sixty_four] = [8, 16, 64].map(opens);
    let per_card = (sixteen - eight) / 8;
    println!("{eight} accesses for 8 cards, {sixteen} for 16, {sixty_four} for 64");
    assert!(sixty_four <= sixteen + 48 * per_card + 48, "{eight} {sixteen} {sixty_four}");
}

#[test]
fn devices_carry_their_identity_and_no_kernel_names() {
    let tree = MachineTree::new();
    let (mut host, cards) = host(&tree, [1, 2]);
    host.region(&[&cards[0]], RegionUse::SystemRam(5));
    host.region(&[&cards[1]], RegionUse::DevDax(6));
    for device in scan(&tree).devices {
        assert!(CxlDevice::of(&device).is_some(), "{device:?}");
        let data = device.data.to_string();
        for name in ["mem0", "mem1", "region0", "region1", "decoder", "endpoint", "dax1"] {
            assert!(!data.contains(name), "{data} names {name}");
        }
    }
}

#[test]
fn the_promises_of_a_backend_are_kept_for_accelerators() {
    let tree = MachineTree::new();
    for (slot, kind) in [(1, 1), (2, 2)] {
        let function = hostler_linux::testkit::cxl_function(&format!("0000:2{slot}:00.0"), kind, true, GIB);
        let function = hostler_linux::testkit::FakePciFunction { driver: Some("shiny".to_owned()), ..function };
        function.plug(&tree);
        hostler_linux::testkit::plug_node(
            &tree,
            &function,
            "accel/accel",
            &format!("accel/accel{slot}"),
            &format!("261:{slot}"),
        );
    }
    conformance(&backend(&tree.root()), &Samples::default());
}

#[test]
fn every_device_tells_the_serial_numbers_of_its_cards() {
    let tree = MachineTree::new();
    let (mut host, cards) = host(&tree, [0xa, 0xb, 0xc, 0]);
    host.region(&[&cards[0], &cards[1]], RegionUse::DevDax(5));
    host.region(&[&cards[2]], RegionUse::SystemRam(6));
    cxl_function("0004:01:00.0", 2, true, 16 << 30).plug(&tree);
    let found = scan(&tree);
    let serials = |name: &str| device(&found.devices, name).cards.clone();
    assert_eq!(serials("memory-a"), CardSerials::Whole(0xa));
    assert_eq!(serials("dax-a-x2"), CardSerials::Among([0xa, 0xb].into()));
    assert_eq!(serials("node6"), CardSerials::Among([0xc].into()));
    let nameless = found.devices.iter().filter(|device| device.cards == CardSerials::Unknown);
    assert_eq!(
        nameless.map(|device| attribute(device, "serial")).collect::<Vec<_>>(),
        ["-"],
        "the card without a number"
    );
    let function = found.devices.iter().find(|device| attribute(device, "kind") == "accelerator").unwrap();
    let serial = attribute(function, "serial");
    assert_eq!(function.cards, CardSerials::Whole(u64::from_str_radix(serial.trim_start_matches("0x"), 16).unwrap()));
}

#[test]
fn a_card_can_be_erased_where_kernel_and_card_offer_it_and_nothing_lasting_is_on_it() {
    let tree = MachineTree::new();
    let mut host = CxlHost::new(&tree);
    let card = host.plug(&CxlCard::new(1));
    let lasting = host.plug(&CxlCard { pmem_bytes: GIB, ..CxlCard::new(2) });
    let methods = || scan(&tree).devices.iter().map(|device| device.erasure.method()).collect::<Vec<_>>();
    for memdev in [&card.memdev, &lasting.memdev] {
        tree.remove(memdev.join("security/sanitize"));
    }
    assert_eq!(methods(), [Some(ErasureMethod::Overwrite), Some(ErasureMethod::Overwrite)]);
    for memdev in [&card.memdev, &lasting.memdev] {
        tree.file(memdev.join("security/sanitize"), "");
    }
    assert_eq!(methods(), [Some(ErasureMethod::Sanitize), Some(ErasureMethod::Overwrite)]);
}
