//! What makes cards, and what is made of them, unhealthy.

use std::sync::Arc;

use hostler_backend::{Backend, Enumeration, Health};
use hostler_linux::testkit::{CxlCard, CxlHost, FakeMailbox, MachineTree, PluggedCard, RegionUse};
use nix::errno::Errno;

use super::{attribute, backend, device};

const WELL: [u8; 18] = [0; 18];
const REPLACE: [u8; 18] = [4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Cards 1, 2 and 3: 1 and 2 interleaved on node 5, 3 as a dax device.
fn machine() -> (MachineTree, [PluggedCard; 3]) {
    let tree = MachineTree::new();
    let mut host = CxlHost::new(&tree);
    let cards = [1, 2, 3].map(|serial| host.plug(&CxlCard::new(serial)));
    host.region(&[&cards[0], &cards[1]], RegionUse::SystemRam(5));
    host.region(&[&cards[2]], RegionUse::DevDax(6));
    (tree, cards)
}

/// Devices that are not healthy, with the reason.
fn sick(found: &Enumeration) -> Vec<String> {
    let sick = found.devices.iter().filter(|device| device.health != Health::Healthy);
    sick.map(|device| format!("{}: {}", device.name, device.health.reason().unwrap())).collect()
}

#[test]
fn a_card_that_says_so_is_unhealthy_with_all_that_is_made_of_it() {
    let (tree, _) = machine();
    let mailbox = Arc::new(FakeMailbox::default());
    let backend = backend(&tree.root()).with_mailbox(mailbox.clone());
    for card in ["mem0", "mem1", "mem2"] {
        mailbox.answer(card, WELL);
    }
    assert_eq!(sick(&backend.enumerate().unwrap()), Vec::<String>::new());
    mailbox.answer("mem1", REPLACE);
    let asks = "the card asks to be replaced";
    let expected = [format!("memory-2: {asks}"), format!("node5: memory-2: {asks}")];
    assert_eq!(sick(&backend.enumerate().unwrap()), expected);
    mailbox.answer("mem1", WELL);
    mailbox.answer("mem2", REPLACE);
    let expected = [format!("memory-3: {asks}"), format!("dax-3: memory-3: {asks}")];
    assert_eq!(sick(&backend.enumerate().unwrap()), expected);
}

#[test]
fn what_is_worth_a_look_is_an_attribute() {
    let (tree, _) = machine();
    let mailbox = Arc::new(FakeMailbox::default());
    let backend = backend(&tree.root()).with_mailbox(mailbox.clone());
    mailbox.answer("mem0", [3, 0, 5, 42, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    mailbox.refuse("mem1", Errno::EBUSY);
    let found = backend.enumerate().unwrap();
    let says = |card| {
        ["maintenanceNeeded", "performanceDegraded", "lifeUsed"]
            .map(|name| attribute(device(&found.devices, card), name))
    };
    assert_eq!(says("memory-1"), ["true", "true", "42"]);
    assert_eq!(says("memory-2"), ["-", "-", "-"]);
    assert_eq!(sick(&found), Vec::<String>::new());
}

#[test]
fn a_card_without_its_driver_or_a_way_to_it_is_unhealthy() {
    let (tree, cards) = machine();
    tree.remove(cards[0].memdev.join("driver"));
    tree.remove("sys/bus/cxl/devices/endpoint102");
    let found = backend(&tree.root()).enumerate().unwrap();
    let reason = |name| device(&found.devices, name).health.reason().unwrap_or("healthy").to_owned();
    assert_eq!(reason("memory-1"), "it is disabled: the driver cxl_mem is not bound");
    assert_eq!(reason("memory-2"), "healthy");
    assert_eq!(reason("memory-3"), "no endpoint leads to it from a host bridge");
}

#[test]
fn new_errors_of_the_link_are_trouble_and_old_ones_are_not() {
    let (tree, cards) = machine();
    let backend = backend(&tree.root());
    let counter = cards[0].function.folder().join("aer_dev_nonfatal");
    let show = |count: u32| {
        tree.file(&counter, format!("Undefined 0\nDLP {count}\nTOTAL_ERR_NONFATAL {count}"));
        sick(&backend.enumerate().unwrap())
    };
    assert_eq!(show(7), Vec::<String>::new());
    let expected = "2 new uncorrected PCIe errors (non-fatal), 9 since it was plugged in";
    let all = [format!("memory-1: {expected}"), format!("node5: memory-1: {expected}")];
    assert_eq!(show(9), all);
    // It stays so for a while.
    assert_eq!(show(9), all);
    assert_eq!(show(0), Vec::<String>::new());
}

#[test]
fn memory_that_was_lost_makes_its_node_unhealthy() {
    let (tree, _) = machine();
    let backend = backend(&tree.root());
    let show = |total: &str, recovered: &str| {
        let folder = "sys/devices/system/node/node5/memory_failure";
        tree.files(folder, &[("total", total), ("recovered", recovered)]);
        sick(&backend.enumerate().unwrap())
    };
    assert_eq!(show("3", "2"), Vec::<String>::new());
    assert_eq!(show("4", "3"), Vec::<String>::new());
    let expected = "node5: 1 new failures of its memory that the kernel could not recover from, 2 since boot";
    assert_eq!(show("5", "3"), [expected]);
}

#[test]
fn what_a_card_reports_by_trace_events_is_trouble() {
    let (tree, _) = machine();
    let backend = backend(&tree.root());
    let show = |events: &str| {
        tree.file("sys/kernel/tracing/instances/hostler/trace", format!("# tracer: nop\n{events}"));
        sick(&backend.enumerate().unwrap())
    };
    assert_eq!(show(""), Vec::<String>::new());
    let event = "irq/40-7 [001] ..... 88.000001: cxl_dram: memdev=mem2 host=0000:13:00.0 serial=3 log=Fatal : time=1";
    let expected = "1 new events of lost or poisoned memory, or of fatal errors";
    assert_eq!(show(event), [format!("memory-3: {expected}"), format!("dax-3: memory-3: {expected}")]);
}
