//! Regions are made, brought online, made devices and taken down, on a fake kernel.

use hostler_api::Chain;
use hostler_linux::{
    SysRoot,
    testkit::{CxlKernel, CxlMachine, NewBlocks},
};

use super::machine::{AT_ONCE, LARGE, MIB, NEIGHBOUR, OTHER, card, kernels, machine};
use crate::{memory, objects::CxlObjects, region};

/// What a card's memory is like, in words: everything that a region leaves traces in.
pub(super) fn state(root: &SysRoot) -> String {
    let objects = CxlObjects::read(root).unwrap();
    let mut lines: Vec<String> = Vec::new();
    for region in &objects.regions {
        let range = region.range().map(|range| range.to_string()).unwrap_or_default();
        lines.push(format!("{range} committed {} driver {:?}", region.committed, region.driver));
    }
    for dax in &objects.daxes {
        lines.push(format!("{} {:?} {:?}", dax.name, dax.driver, dax.state));
    }
    for endpoint in &objects.endpoints {
        let taken = endpoint.decoders.iter().map(|decoder| decoder.dpa_size).sum::<u64>();
        lines.push(format!("{:?} committed {:?} capacity {taken}", endpoint.memdev, endpoint.decoders_committed));
    }
    for name in root.names("sys/devices/system/memory").unwrap().iter().filter(|name| name.starts_with("memory")) {
        lines.push(format!("{name} {:?}", root.attribute(format!("sys/devices/system/memory/{name}/state")).unwrap()));
    }
    lines.push(format!("nodes {:?}", root.attribute("sys/devices/system/node/has_memory").unwrap()));
    lines.join("\n")
}

fn attach(root: &SysRoot, serial: u64) -> Result<(), String> {
    let dax = region::create(root, &card(serial), &AT_ONCE).map_err(|error| Chain(&error).to_string())?;
    memory::bring_online(root, &dax, &AT_ONCE).map_err(|error| Chain(&error).to_string())
}

fn take_down(root: &SysRoot, serial: u64) -> Result<(), String> {
    region::take_down_all(root, &card(serial), &AT_ONCE, &mut Vec::new()).map_err(|error| Chain(&error).to_string())
}

fn blocks(kernel: &CxlKernel, node: u32) -> Vec<String> {
    let names = kernel.tree().root().names(format!("sys/devices/system/node/node{node}")).unwrap();
    names.into_iter().filter(|name| name.starts_with("memory")).collect()
}

#[test]
fn all_memory_of_a_card_becomes_movable_memory_of_its_node_and_goes_again_without_a_trace() {
    for kind in kernels() {
        let kernel = machine(kind.clone());
        let root = kernel.root();
        let before = state(&root);
        attach(&root, LARGE).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        assert_eq!(blocks(&kernel, 5), ["memory110", "memory111", "memory112", "memory113"], "{kind:?}");
        for block in 110..114 {
            let zones = root.attribute(format!("sys/devices/system/memory/memory{block}/valid_zones")).unwrap();
            assert_eq!(zones.as_deref(), Some("Movable"), "{kind:?}");
        }
        let there = state(&root);
        attach(&root, LARGE).unwrap();
        assert_eq!(state(&root), there, "{kind:?}");
        take_down(&root, LARGE).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        assert_eq!(state(&root), before, "{kind:?}");
        take_down(&root, LARGE).unwrap();
        assert_eq!((kernel.dead(), kernel.stuck()), (None, false));
    }
}

#[test]
fn a_neighbour_on_the_same_node_is_not_touched() {
    for kind in kernels() {
        let kernel = machine(kind);
        let root = kernel.root();
        for serial in [LARGE, NEIGHBOUR, OTHER] {
            attach(&root, serial).unwrap();
        }
        assert_eq!(blocks(&kernel, 5).len(), 6);
        kernel.take_log();
        take_down(&root, LARGE).unwrap();
        assert_eq!(blocks(&kernel, 5), ["memory114", "memory115"]);
        assert_eq!(blocks(&kernel, 6).len(), 2);
        let touched = kernel.take_log().into_iter().any(|(path, _)| {
            let path = path.display().to_string();
            path.contains("memory114") || path.contains("memory115") || path.contains("endpoint4")
        });
        assert!(!touched);
        assert_eq!(root.required_attribute("sys/devices/system/node/node5/meminfo").unwrap().lines().count(), 2);
        assert_eq!(CxlObjects::read(&root).unwrap().regions.len(), 2);
    }
}

#[test]
fn memory_becomes_a_device_and_memory_of_the_system_again() {
    for kind in kernels() {
        let kernel = machine(kind.clone());
        let root = kernel.root();
        let dax = region::create(&root, &card(LARGE), &AT_ONCE).unwrap();
        memory::make_device(&root, &dax, &AT_ONCE).unwrap_or_else(|error| panic!("{kind:?}: {}", Chain(&error)));
        memory::is_device(&root, &dax).unwrap();
        assert_eq!(blocks(&kernel, 5), [""; 0]);
        let dax = region::create(&root, &card(LARGE), &AT_ONCE).unwrap();
        assert_eq!(dax.driver.as_deref(), Some("device_dax"));
        memory::bring_online(&root, &dax, &AT_ONCE).unwrap();
        memory::is_online(&root, &dax).unwrap();
        assert_eq!(
            memory::is_device(&root, &dax).unwrap_err().to_string().split(':').next().unwrap(),
            "dax0.0 is bound to kmem and should be bound to device_dax"
        );
        take_down(&root, LARGE).unwrap();
        // The name is not kept by the driver: the next device of that name is memory of the system.
        attach(&root, LARGE).unwrap();
        assert_eq!(kernel.dead(), None);
    }
}

#[test]
fn memory_that_is_held_is_named_and_nothing_is_changed() {
    for kind in kernels() {
        let kernel = machine(kind.clone());
        let root = kernel.root();
        attach(&root, LARGE).unwrap();
        let before = state(&root);
        kernel.pin(112);
        let error = take_down(&root, LARGE).unwrap_err();
        assert!(error.starts_with("memory11"), "{error}");
        assert!(error.contains("cannot be taken offline") && error.contains("busy"), "{kind:?}: {error}");
        assert_eq!(state(&root), before, "{kind:?}");
        kernel.unpin(112);
        take_down(&root, LARGE).unwrap();
        assert_eq!(kernel.dead(), None);
    }
}

#[test]
fn memory_that_the_kernel_put_into_another_zone_and_holds_is_reported() {
    for dax_state in [true, false] {
        let kernel = machine(CxlMachine { new_blocks: NewBlocks::Online, dax_state, ..CxlMachine::default() });
        kernel.pin(111);
        let error = attach(&kernel.root(), LARGE).unwrap_err();
        assert!(error.contains("memory111") || error.contains("memory110-113"), "{error}");
        assert!(error.contains("another zone than Movable"), "{error}");
        assert_eq!(kernel.dead(), None);
    }
}

#[test]
fn a_machine_that_cannot_commit_regions_is_left_as_it_was() {
    let kernel = machine(CxlMachine { flushes_caches: false, ..CxlMachine::default() });
    let before = state(&kernel.root());
    let error = attach(&kernel.root(), LARGE).unwrap_err();
    assert!(error.contains("cannot be committed"), "{error}");
    assert_eq!(state(&kernel.root()), before);
}

#[test]
fn a_card_without_a_window_is_refused_with_what_each_window_said() {
    let kernel = machine(CxlMachine::default());
    let root = kernel.root();
    kernel.tree().file("sys/devices/platform/ACPI0017:00/root0/decoder0.0/size", "0x10000000");
    let before = state(&root);
    let error = attach(&root, LARGE).unwrap_err();
    assert!(error.starts_with("no window of physical addresses takes 536870912 bytes of mem1: decoder0.0"), "{error}");
    assert_eq!(state(&root), before);
    attach(&root, NEIGHBOUR).unwrap();
    let none = CxlObjects::read(&root).unwrap().memdev("mem1").unwrap().bytes(crate::objects::RegionMode::Ram);
    assert_eq!(none, 512 * MIB);
}

#[test]
fn a_host_bridge_with_one_way_carries_one_region() {
    let passthrough = ["port1".to_owned()].into();
    let kernel = machine(CxlMachine { passthrough, ..CxlMachine::default() });
    let root = kernel.root();
    attach(&root, LARGE).unwrap();
    let before = state(&root);
    let error = attach(&root, NEIGHBOUR).unwrap_err();
    assert!(error.contains("decoder0.0 does not take it") && error.contains("busy"), "{error}");
    assert_eq!(state(&root), before);
    take_down(&root, LARGE).unwrap();
    attach(&root, NEIGHBOUR).unwrap();
}

#[test]
fn regions_of_others_are_not_taken_for_ones_own() {
    let kernel = machine(CxlMachine::default());
    let root = kernel.root();
    attach(&root, LARGE).unwrap();
    let folder = CxlObjects::read(&root).unwrap().regions[0].folder.clone();
    let kinds = [("mode", "pmem", "persistent memory"), ("locked", "1", "locked by firmware")];
    for (file, text, said) in kinds {
        let before = kernel.tree().text(folder.join(file));
        kernel.tree().file(folder.join(file), text);
        let objects = CxlObjects::read(&root).unwrap();
        let error = region::take_down(&root, &objects, &objects.regions[0], &AT_ONCE).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        kernel.tree().file(folder.join(file), before);
    }
    kernel.tree().file(folder.join("size"), "0x10000000");
    assert!(attach(&root, LARGE).unwrap_err().contains("part of region0 already"));
    assert_eq!(kernel.dead(), None);
}
