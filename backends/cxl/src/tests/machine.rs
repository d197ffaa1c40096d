//! A small made-up machine with a fake kernel: three cards behind two host bridges.
//!
//! ```text
//!   decoder0.0 (node 5) ─ pci0000:40 ─ port1 ┬ endpoint3: mem1, serial 0x1001, 512 MiB at 0000:41:00.0
//!                                            └ endpoint4: mem0, serial 0x3001, 256 MiB at 0000:43:00.0
//!   decoder0.1 (node 6) ─ pci0000:c0 ─ port2 ─ endpoint5: mem2, serial 0x2002, 256 MiB at 0000:c4:00.0
//! ```

use std::{path::PathBuf, sync::Arc, time::Duration};

use hostler_linux::testkit::{CxlKernel, CxlMachine, FakePciFunction, MachineTree, NewBlocks};

use crate::{device::CardId, write::WaitLimits};

pub(super) const MIB: u64 = 1 << 20;
const ROOT: &str = "sys/devices/platform/ACPI0017:00/root0";
const CXL: &str = "sys/bus/cxl/devices";

/// No test waits for anything.
pub(super) const AT_ONCE: WaitLimits = WaitLimits { step: Duration::ZERO, tries: 3, looks: 2, erasing: 10 };

/// The cards.
pub(super) const LARGE: u64 = 0x1001;
pub(super) const NEIGHBOUR: u64 = 0x3001;
pub(super) const OTHER: u64 = 0x2002;

pub(super) fn card(serial: u64) -> CardId {
    CardId { serial: Some(serial), address: None }
}

/// Kernels with dax states and without, with each policy for new blocks.
pub(super) fn kernels() -> impl Iterator<Item = CxlMachine> {
    let policies = [NewBlocks::OnlineMovable, NewBlocks::Online, NewBlocks::Offline];
    policies.into_iter().flat_map(|new_blocks| {
        [true, false].map(|dax_state| CxlMachine { new_blocks, dax_state, ..CxlMachine::default() })
    })
}

/// The machine after boot, with a kernel.
pub(super) fn machine(kind: CxlMachine) -> Arc<CxlKernel> {
    CxlKernel::new(Arc::new(tree()), kind)
}

fn tree() -> MachineTree {
    let tree = MachineTree::new();
    tree.folder("proc").file("sys/devices/system/memory/block_size_bytes", "8000000");
    tree.file("sys/devices/system/memory/auto_online_blocks", "online_movable");
    tree.files("sys/devices/system/node", &[("online", "0"), ("has_memory", "0"), ("possible", "0,5-6")]);
    tree.file(format!("{ROOT}/devtype"), "cxl_port").link(format!("{CXL}/root0"), ROOT);
    window(&tree, 0, 64, 0x3_7000_0000);
    window(&tree, 1, 192, 0x4_7000_0000);
    port(&tree, 1, 64, "pci0000:40");
    port(&tree, 2, 192, "pci0000:c0");
    card_at(&tree, 1, 3, "0000:41:00.0", "pci0000:40", LARGE, 512);
    card_at(&tree, 0, 4, "0000:43:00.0", "pci0000:40", NEIGHBOUR, 256);
    card_at(&tree, 2, 5, "0000:c4:00.0", "pci0000:c0", OTHER, 256);
    tree
}

fn window(tree: &MachineTree, number: u64, bridge: u64, start: u64) {
    let folder = format!("{ROOT}/decoder0.{number}");
    let files = [
        ("devtype", "cxl_decoder_root"),
        ("start", &format!("{start:#x}")),
        ("size", "0x100000000"),
        ("interleave_ways", "1"),
        ("interleave_granularity", "256"),
        ("cap_ram", "1"),
        ("cap_pmem", "1"),
        ("qos_class", "0"),
        ("target_list", &bridge.to_string()),
        ("create_ram_region", &format!("region{number}")),
        ("delete_region", ""),
    ];
    tree.files(&folder, &files).link(format!("{CXL}/decoder0.{number}"), &folder);
}

fn port(tree: &MachineTree, number: u64, id: u64, bridge: &str) {
    let folder = format!("{ROOT}/port{number}");
    let bridge = format!("sys/devices/{bridge}");
    tree.folder(&bridge).link(format!("{ROOT}/dport{id}"), &bridge);
    tree.files(&folder, &[("devtype", "cxl_port"), ("decoders_committed", "0")])
        .link(format!("{folder}/uport"), bridge);
    tree.link(format!("{CXL}/port{number}"), folder);
}

fn card_at(tree: &MachineTree, index: u64, endpoint: u64, address: &str, bridge: &str, serial: u64, mib: u64) {
    let mut function = FakePciFunction::new(address, 0x8086, 0x0d93);
    function.above = vec![bridge.to_owned()];
    function.driver = Some("cxl_pci".to_owned());
    function.attributes = vec![("remove".to_owned(), String::new())];
    let memdev = function.plug(tree).join(format!("mem{index}"));
    let files = [
        ("serial", format!("{serial:#x}")),
        ("ram/size", format!("{:#x}", mib * MIB)),
        ("ram/qos_class", "0".to_owned()),
        ("pmem/size", "0x0".to_owned()),
        ("numa_node", "0".to_owned()),
        ("security/state", "disabled".to_owned()),
        ("security/sanitize", String::new()),
    ];
    for (name, text) in files {
        tree.file(memdev.join(name), text);
    }
    tree.link(memdev.join("driver"), "sys/bus/cxl/drivers/cxl_mem").folder("sys/bus/cxl/drivers/cxl_mem");
    tree.link(format!("sys/bus/cxl/drivers/cxl_mem/mem{index}"), &memdev);
    tree.link(format!("{CXL}/mem{index}"), &memdev);
    let port = if bridge.ends_with("40") { "port1" } else { "port2" };
    endpoint_of(tree, &PathBuf::from(format!("{ROOT}/{port}/endpoint{endpoint}")), endpoint, &memdev);
}

fn endpoint_of(tree: &MachineTree, folder: &std::path::Path, number: u64, memdev: &std::path::Path) {
    tree.files(folder, &[("devtype", "cxl_port"), ("decoders_committed", "0")]).link(folder.join("uport"), memdev);
    tree.link(format!("{CXL}/endpoint{number}"), folder);
    for decoder in 0..4 {
        let name = format!("decoder{number}.{decoder}");
        let files = [
            ("devtype", "cxl_decoder_endpoint"),
            ("mode", "none"),
            ("dpa_size", "0x0000000000000000"),
            ("dpa_resource", "0xffffffffffffffff"),
            ("region", ""),
            ("locked", "0"),
            ("start", "0x0"),
            ("size", "0x0"),
        ];
        tree.files(folder.join(&name), &files).link(format!("{CXL}/{name}"), folder.join(&name));
    }
}
