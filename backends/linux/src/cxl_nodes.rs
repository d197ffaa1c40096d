//! Finds the NUMA nodes that are made of the memory of CXL devices and of nothing else. Two backends have to agree on
//! that, so that no byte is offered twice and none is forgotten.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    TreeReading,
    memory_blocks::{self, PhysicalRange},
};

const CXL: &str = "sys/bus/cxl/devices";
const DAX: &str = "sys/bus/dax/devices";
const NODES: &str = "sys/devices/system/node";

/// The nodes, each with the numbers of its memory blocks. A node with a single block of other memory is not among them,
/// and neither is any node of a machine without CXL.
pub fn cxl_nodes(tree: &TreeReading<'_>) -> BTreeMap<u32, Vec<u64>> {
    let ranges = cxl_ranges(tree);
    if ranges.is_empty() {
        return BTreeMap::new();
    }
    let Some(size) = memory_blocks::known(tree, memory_blocks::block_bytes(tree.root())) else {
        return BTreeMap::new();
    };
    let inside = |number: &u64| {
        let start = number.saturating_mul(size);
        ranges.iter().any(|range| range.start <= start && start.saturating_add(size) <= range.end())
    };
    let names = tree.names(NODES);
    let nodes = names.iter().filter_map(|name| name.strip_prefix("node")?.parse::<u32>().ok());
    let blocks = nodes.map(|node| (node, blocks_of(tree, node)));
    blocks.filter(|(_, blocks)| !blocks.is_empty() && blocks.iter().all(inside)).collect()
}

/// Numbers of the memory blocks of a node, ascending.
fn blocks_of(tree: &TreeReading<'_>, node: u32) -> Vec<u64> {
    let names = tree.names(format!("{NODES}/node{node}"));
    // Other names begin with `memory` too: `memory_side_cache`, `memory_failure`.
    let mut blocks: Vec<u64> = names.iter().filter_map(|name| name.strip_prefix("memory")?.parse().ok()).collect();
    blocks.sort_unstable();
    blocks
}

/// The physical ranges of CXL memory: regions that are not persistent, and memory that firmware has set aside in a CXL
/// window. Ranges that touch are one: a memory block may lie across them.
pub fn cxl_ranges(tree: &TreeReading<'_>) -> Vec<PhysicalRange> {
    let names = tree.names(CXL);
    let folders = |word: &'static str| {
        names.iter().filter(move |name| name.starts_with(word)).map(|name| Path::new(CXL).join(name))
    };
    // A region that does not say of which kind it is, is no ordinary memory either.
    let is_persistent = |folder: &PathBuf| tree.attribute(folder.join("mode")).as_deref() == Some("pmem");
    let mut ranges: Vec<_> = folders("region")
        .filter(|folder| !is_persistent(folder))
        .filter_map(|folder| range(tree, &folder, "resource"))
        .collect();
    let daxes = tree.names(DAX).into_iter().filter_map(|name| tree.target(Path::new(DAX).join(name)));
    let set_aside: Vec<_> =
        daxes.filter(|folder| is_hmem(folder)).filter_map(|folder| range(tree, &folder, "resource")).collect();
    if !set_aside.is_empty() {
        let is_window = |folder: &PathBuf| tree.exists(folder.join("cap_ram"));
        let windows: Vec<_> =
            folders("decoder").filter(is_window).filter_map(|folder| range(tree, &folder, "start")).collect();
        ranges.extend(set_aside.into_iter().filter(|dax| windows.iter().any(|window| contains(window, dax))));
    }
    joined(ranges)
}

/// True if a dax device is of memory that firmware has set aside: `…/platform/hmem.0/dax0.0`.
fn is_hmem(folder: &Path) -> bool {
    folder.iter().any(|name| name.to_str().is_some_and(|name| name.starts_with("hmem.")))
}

fn contains(outer: &PhysicalRange, inner: &PhysicalRange) -> bool {
    outer.start <= inner.start && inner.end() <= outer.end()
}

fn range(tree: &TreeReading<'_>, folder: &Path, start: &str) -> Option<PhysicalRange> {
    let number = |name: &str| {
        let file = folder.join(name);
        // Only root may read where memory begins.
        let text = tree.detail(&file).filter(|text| !text.is_empty())?;
        tree.understood(&file, &text, "a number", |text| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        })
    };
    // All ones: the memory has no place yet.
    let start = number(start).filter(|start| *start != u64::MAX)?;
    Some(PhysicalRange { start, bytes: number("size").filter(|bytes| *bytes > 0)? })
}

fn joined(mut ranges: Vec<PhysicalRange>) -> Vec<PhysicalRange> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<PhysicalRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end() => last.bytes = last.bytes.max(range.end() - last.start),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testkit::MachineTree;

    const MIB: u64 = 1 << 20;

    /// Node 0 has block 0, node 5 the blocks of a region of 256 MiB at 1 GiB, in blocks of 128 MiB.
    fn machine() -> MachineTree {
        let tree = MachineTree::new();
        tree.file("sys/devices/system/memory/block_size_bytes", "8000000");
        for (node, block) in [(0, 0), (5, 8), (5, 9)] {
            tree.folder(format!("sys/devices/system/node/node{node}/memory{block}"));
        }
        tree.folder("sys/devices/system/node/node5/memory_failure");
        region(&tree, "ram", "0x40000000");
        tree
    }

    fn region(tree: &MachineTree, mode: &str, resource: &str) {
        tree.files(format!("{CXL}/region0"), &[("mode", mode), ("resource", resource), ("size", "0x10000000")]);
    }

    #[test]
    fn a_node_of_regions_alone_is_one_of_cxl_memory() {
        let tree = machine();
        assert_eq!(tree.look(cxl_nodes), [(5, vec![8, 9])].into());
        tree.folder("sys/devices/system/node/node5/memory20");
        assert_eq!(tree.look(cxl_nodes), BTreeMap::new());
    }

    #[test]
    fn regions_without_a_place_and_of_persistent_memory_make_no_node() {
        let tree = machine();
        for (mode, resource) in [("pmem", "0x40000000"), ("ram", "0xffffffffffffffff"), ("ram", "0x50000000")] {
            region(&tree, mode, resource);
            assert_eq!(tree.look(cxl_nodes), BTreeMap::new(), "{mode} {resource}");
        }
    }

    #[test]
    fn a_region_that_does_not_say_of_which_kind_it_is_is_no_ordinary_memory() {
        let tree = machine();
        tree.remove(format!("{CXL}/region0/mode"));
        assert_eq!(tree.look(cxl_nodes), [(5, vec![8, 9])].into());
    }

    #[test]
    fn memory_set_aside_by_firmware_counts_inside_a_window_only() {
        let tree = machine();
        tree.remove(format!("{CXL}/region0"));
        let dax = "sys/devices/platform/hmem.0/dax0.0";
        tree.files(dax, &[("resource", "0x40000000"), ("size", "268435456")]).link(format!("{DAX}/dax0.0"), dax);
        assert_eq!(tree.look(cxl_nodes), BTreeMap::new());
        let window = [("cap_ram", "1"), ("start", "0x40000000"), ("size", "0x100000000")];
        tree.files(format!("{CXL}/decoder0.0"), &window);
        assert_eq!(tree.look(cxl_nodes), [(5, vec![8, 9])].into());
    }

    #[test]
    fn a_place_or_a_size_that_is_garbage_is_warned_of() {
        for (file, text) in [("resource", "somewhere"), ("size", "much")] {
            let tree = machine();
            tree.file(format!("{CXL}/region0/{file}"), text);
            let (nodes, warnings) = tree.root().look_warned(cxl_nodes).unwrap();
            assert_eq!(nodes, BTreeMap::new());
            let [warning] = &warnings[..] else { panic!("{warnings:?}") };
            assert_eq!(warning.path, format!("/{CXL}/region0/{file}"));
            assert_eq!(warning.reason, format!("{text:?} is not a number; taken as absent"));
        }
    }

    proptest! {
        #[test]
        fn joining_loses_no_address_and_adds_none(ranges in proptest::collection::vec((0_u64..64, 1_u64..16), 0..12)) {
            let ranges: Vec<_> = ranges
                .into_iter()
                .map(|(start, length)| PhysicalRange { start: start * MIB, bytes: length * MIB })
                .collect();
            let joined = joined(ranges.clone());
            for address in (0..90).map(|at| at * MIB) {
                let has = |ranges: &[PhysicalRange]| {
                    ranges.iter().any(|range| (range.start..range.end()).contains(&address))
                };
                prop_assert_eq!(has(&ranges), has(&joined));
            }
            prop_assert!(joined.windows(2).all(|pair| pair[0].end() < pair[1].start));
        }
    }
}
