//! The inventories of the captured trees, against what the emulator was told to build: cards by serial number, slot and
//! size, and what was attached at that moment.

use hostler_api::Quantity;
use hostler_backend::{AttributeValue, Backend, Device, Enumeration, Sharing};

use super::{backend, captured};

const MIB: u64 = 1 << 20;

fn attribute<'a>(device: &'a Device, name: &str) -> Option<&'a AttributeValue> {
    device.attributes.get(name)
}

/// `name node=… KIND SIZE use`, the numbers that tell one device from another.
fn line(device: &Device) -> String {
    let text = |name: &str| attribute(device, name).map_or_else(|| "-".to_owned(), ToString::to_string);
    let bytes = |name: &str| {
        let bytes = device.capacity.get(name).and_then(|capacity| capacity.value.as_whole());
        bytes.map_or_else(|| "-".to_owned(), |bytes| (bytes / MIB).to_string())
    };
    let place = [text("resource.kubernetes.io/numaNode"), text("resource.kubernetes.io/pciBusID")].join(" ");
    let rest = [bytes("memory"), bytes("persistentMemory"), text("use"), text("targetNode"), text("attachable")];
    format!("{} {place} {} {}", device.name, rest.join(" "), device.health.as_str())
}

fn scan(moment: &str) -> Enumeration {
    let capture = captured(moment);
    let found = backend(&capture.root()).enumerate().unwrap();
    assert_eq!(found.warnings, [], "{moment}");
    found
}

fn lines(moment: &str) -> Vec<String> {
    scan(moment).devices.iter().map(line).collect()
}

#[test]
fn cards_without_regions_are_free_and_those_that_fit_can_be_attached() {
    let cards = [
        "memory-1001 0 0000:41:00.0 512 - none - true Healthy",
        "memory-2001 2 0000:c3:00.0 - 256 none - false Healthy",
        "memory-2002 2 0000:c4:00.0 256 - none - true Healthy",
        "memory-3001 0 0000:43:00.0 256 - none - true Healthy",
    ];
    assert_eq!(lines("boot"), cards);
    assert_eq!(lines("removed"), cards);
}

#[test]
fn attached_cards_say_what_as_and_their_memory_is_offered_as_nodes() {
    let attached = [
        "memory-1001 0 0000:41:00.0 512 - systemRam 5 false Healthy",
        "memory-2001 2 0000:c3:00.0 - 256 persistent - false Healthy",
        "memory-2002 2 0000:c4:00.0 256 - systemRam 6 false Healthy",
        "memory-3001 0 0000:43:00.0 256 - systemRam 5 false Healthy",
        "node5 5 - 768 - - - - Healthy",
        "node6 6 - 256 - - - - Healthy",
    ];
    assert_eq!(lines("regions"), attached);
    let mut added = attached.to_vec();
    added.insert(4, "memory-4001 0 0000:42:00.0 512 - none - true Healthy");
    assert_eq!(lines("hotadd"), added);
}

#[test]
fn a_card_says_who_made_it_where_it_is_and_how_it_is_linked() {
    let found = scan("boot");
    let facts: Vec<String> =
        found.devices[0].attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let expected = [
        "attachable=true",
        "cxlType=3",
        "device=0x0d93",
        "driver=cxl_pci",
        "dynamicCapacity=false",
        "firmwareVersion=BWFW VERSION 00",
        "kind=memory",
        "linkSpeed=32.0 GT/s PCIe",
        "linkSpeedMax=32.0 GT/s PCIe",
        "linkWidth=16",
        "linkWidthMax=16",
        "qosClass=0",
        "qosMatch=true",
        "resource.kubernetes.io/numaNode=0",
        "resource.kubernetes.io/pciBusID=0000:41:00.0",
        "resource.kubernetes.io/pcieRoot=pci0000:40",
        "security=disabled",
        "serial=0x1001",
        "use=none",
        "vendor=0x8086",
    ];
    assert_eq!(facts, expected);
}

#[test]
fn the_card_with_dynamic_capacity_is_told_from_the_others() {
    let found = scan("boot");
    let dynamic = found.devices.iter().map(|device| attribute(device, "dynamicCapacity").cloned());
    let is = |value: bool| Some(AttributeValue::Bool(value));
    assert_eq!(dynamic.collect::<Vec<_>>(), [is(false), is(false), is(false), is(true)]);
}

#[test]
fn a_node_is_shared_in_mebibytes_and_as_fast_as_its_regions_say() {
    let found = scan("regions");
    let node = found.devices.iter().find(|device| device.name.as_str() == "node5").unwrap();
    assert_eq!(node.sharing, Sharing::Shared);
    let policy = node.capacity["memory"].policy.unwrap();
    assert_eq!([policy.default, policy.min, policy.step], [Quantity::whole(MIB); 3]);
    let number = |name: &str| match attribute(node, name) {
        Some(AttributeValue::Int(number)) => *number,
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!((number("cards"), number("cardNode"), number("tier")), (2, 0, 14));
    assert_eq!((number("readBandwidth"), number("readLatency"), number("writeLatency")), (16_000, 202, 302));
}

#[test]
fn a_node_and_the_cards_that_it_is_made_of_exclude_each_other() {
    let found = scan("regions");
    let takes = |name: &str| -> Vec<String> {
        let device = found.devices.iter().find(|device| device.name.as_str() == name).unwrap();
        let counters = device.consumes.iter().flat_map(|uses| uses.counters.keys());
        counters.map(ToString::to_string).collect()
    };
    assert_eq!(takes("node5"), ["memory-1001", "memory-3001"]);
    assert_eq!(takes("node6"), ["memory-2002"]);
    assert_eq!(takes("memory-3001"), ["memory-3001"]);
    assert_eq!(takes("memory-2001"), Vec::<String>::new());
    assert_eq!(found.counter_sets.len(), 1);
    assert_eq!(scan("boot").counter_sets, []);
}
