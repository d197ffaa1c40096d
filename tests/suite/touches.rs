//! Files that a scan of one kind of hardware reads: those of that kind and no others, so that an event costs only as
//! much as its hardware.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use hostler::{config::DaemonConfig, registry};
use hostler_api::BackendName;
use hostler_linux::testkit::{
    AccessCounts, CpuLayout, CxlCard, CxlHost, FakeDflCard, FakePciFunction, FakeXrtCard, MachineTree, cxl_function,
};

/// A machine with so many devices of each kind.
fn machine(size: u32) -> MachineTree {
    let tree = MachineTree::new();
    let mut cxl = CxlHost::new(&tree);
    CpuLayout { nodes: size, cores: 8, threads: 2, blocks: 16 }.plug(&tree);
    for number in 0..size {
        FakeDflCard::nth(number).plug(&tree);
        FakeXrtCard { render: 128 + number, ..FakeXrtCard::new(&format!("0002:{number:02x}:00")) }.plug(&tree);
        cxl.plug(&CxlCard::new(u64::from(number) + 1));
        cxl_function(&format!("0004:{number:02x}:00.0"), 2, true, 16 << 30).plug(&tree);
        FakePciFunction {
            class: 0x02_0000,
            ..FakePciFunction::new(&format!("0003:{number:02x}:00.0"), 0x8086, 0x1572)
        }
        .plug(&tree);
    }
    tree
}

/// Returns the files that each backend reads in one scan, and how often.
fn touched(tree: &MachineTree) -> BTreeMap<String, BTreeMap<PathBuf, usize>> {
    let counts = Arc::new(AccessCounts::default());
    let backends = registry::from_config(&DaemonConfig::default(), &tree.root().tapped(counts.clone()));
    let touched = |name: &BackendName| {
        backends.get(name).unwrap().enumerate().unwrap();
        let mut paths: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for ((_, path), times) in counts.take() {
            *paths.entry(path).or_default() += times;
        }
        paths
    };
    backends.iter().map(|(name, _)| (name.to_string(), touched(name))).collect()
}

/// Returns the machine's parts that these files belong to.
fn parts(paths: &BTreeMap<PathBuf, usize>) -> BTreeSet<&'static str> {
    let parts = [
        ("sys/devices/system/cpu/cpu0", "each CPU"),
        ("sys/devices/system/memory/memory0", "each memory block"),
        ("sys/devices/system/node/node0", "each node"),
        ("sys/bus/pci", "PCI"),
        ("sys/devices/pci", "PCI"),
        ("sys/class/fpga", "FPGA"),
        ("sys/bus/cxl", "CXL"),
        ("sys/bus/dax", "CXL"),
    ];
    let part = |path: &PathBuf| parts.into_iter().find(|(begin, _)| path.to_str().unwrap().starts_with(begin));
    paths.keys().filter_map(|path| Some(part(path)?.1)).collect()
}

#[test]
fn a_scan_touches_only_the_files_of_its_kind_of_hardware() {
    let touched = touched(&machine(2));
    let expected = [
        ("cpu", &["each CPU", "each node"][..]),
        ("cxl", &["CXL", "PCI"]),
        ("fpga", &["FPGA", "PCI"]),
        ("memory", &["CXL", "each node"]),
    ];
    for (backend, kinds) in expected {
        assert_eq!(parts(&touched[backend]), kinds.iter().copied().collect(), "{backend}");
    }
}

#[test]
fn what_a_scan_reads_grows_as_the_machine_does() {
    let counts = |size| -> BTreeMap<String, usize> {
        touched(&machine(size)).into_iter().map(|(name, paths)| (name, paths.values().sum())).collect()
    };
    let [one, two, four] = [counts(2), counts(4), counts(8)];
    for (backend, small) in one {
        // Twice the hardware reads at most twice the files; files that are read once do not count twice.
        assert!(two[&backend] <= 2 * small, "{backend}: {small}, {}", two[&backend]);
        assert_eq!(four[&backend] - two[&backend], 2 * (two[&backend] - small), "{backend}");
    }
}
