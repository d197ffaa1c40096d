//! CXL of made-up machines: memory cards with all their objects, regions over them, and accelerators.
//!
//! Eight root ports behind each host bridge, one window for each host bridge; what is plugged in later stands behind. Kernel
//! names are given in the order of plugging, as the kernel does.

use std::path::{Path, PathBuf};

use super::{ConfigSpace, FakePciFunction, MachineTree};

/// Vendor of CXL's designated vendor-specific capabilities.
const CXL: u16 = 0x1e98;
const BUS: &str = "sys/bus/cxl/devices";
const ROOT: &str = "sys/devices/platform/ACPI0017:00/root0";
const PORTS_OF_A_BRIDGE: usize = 8;
const GIB: u64 = 1 << 30;
/// How large the window of a host bridge is.
const WINDOW: u64 = 512 * GIB;
/// How large a memory block is; what is mapped begins and ends with one.
const BLOCK: u64 = 4 * GIB;
/// Decoders of an endpoint.
const DECODERS: usize = 4;

/// A memory card to be.
#[derive(Clone, Debug)]
pub struct CxlCard {
    /// Its serial number; 0 where the maker gave none.
    pub serial: u64,
    /// Volatile capacity, bytes.
    pub ram_bytes: u64,
    /// Persistent capacity, bytes.
    pub pmem_bytes: u64,
    /// What it says of its memory, as the CDAT that the kernel has read from it.
    pub cdat: Option<Vec<u8>>,
}

impl CxlCard {
    /// A card of 16 GiB of volatile memory.
    pub fn new(serial: u64) -> Self {
        Self { serial, ram_bytes: 16 * GIB, pmem_bytes: 0, cdat: None }
    }
}

/// A card that is plugged in.
#[derive(Clone, Debug)]
pub struct PluggedCard {
    /// Number of its memory device, its place and its endpoint: `mem0`.
    pub index: usize,
    /// Its PCI function.
    pub function: FakePciFunction,
    /// Folder of its memory device.
    pub memdev: PathBuf,
    /// Folder of its endpoint.
    pub endpoint: PathBuf,
    ram_bytes: u64,
}

/// What becomes of a region's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RegionUse {
    /// Memory of the system, on a node, through a dax device.
    SystemRam(u32),
    /// Memory of the system, on a node, as firmware has arranged it: without a dax device.
    Firmware(u32),
    /// A dax device that would be of a node.
    DevDax(u32),
}

/// Builds the CXL of a machine into a tree.
#[derive(Debug)]
pub struct CxlHost<'a> {
    tree: &'a MachineTree,
    cards: Vec<PluggedCard>,
    regions: usize,
    /// What regions have taken of each window, bytes.
    taken: Vec<u64>,
}

impl<'a> CxlHost<'a> {
    /// A machine with the root of CXL and nothing below it. Its memory blocks have 4 GiB.
    pub fn new(tree: &'a MachineTree) -> Self {
        tree.folder(BUS).folder("sys/bus/dax/devices");
        tree.file("sys/devices/system/memory/block_size_bytes", format!("{BLOCK:x}"));
        object(tree, "root0", Path::new(ROOT));
        Self { tree, cards: Vec::new(), regions: 0, taken: Vec::new() }
    }

    /// Plugs a card in, with its driver bound.
    pub fn plug(&mut self, card: &CxlCard) -> PluggedCard {
        let index = self.cards.len();
        let bridge = index / PORTS_OF_A_BRIDGE;
        if index.is_multiple_of(PORTS_OF_A_BRIDGE) {
            self.bridge(bridge);
        }
        let function = card_function(index, card.serial);
        let folder = function.plug(self.tree);
        let memdev = folder.join(format!("mem{index}"));
        self.memdev(&memdev, index, card);
        let endpoint = Path::new(ROOT).join(format!("port{}/endpoint{}", bridge + 1, 100 + index));
        self.endpoint(&endpoint, &memdev, index, card);
        let plugged = PluggedCard { index, function, memdev, endpoint, ram_bytes: card.ram_bytes };
        self.cards.push(plugged.clone());
        plugged
    }

    /// Makes a committed region of all volatile memory of cards, all behind one host bridge, and gives its folder.
    pub fn region(&mut self, cards: &[&PluggedCard], used: RegionUse) -> PathBuf {
        let number = self.regions;
        self.regions += 1;
        let bridge = cards[0].index / PORTS_OF_A_BRIDGE;
        let size: u64 = cards.iter().map(|card| card.ram_bytes).sum();
        let start = window_start(bridge) + self.taken[bridge];
        self.taken[bridge] += size;
        let folder = Path::new(ROOT).join(format!("decoder0.{bridge}/region{number}"));
        object(self.tree, &format!("region{number}"), &folder);
        let ways = cards.len().to_string();
        self.tree.files(
            &folder,
            &[
                ("mode", "ram"),
                ("commit", "1"),
                ("size", &format!("{size:#x}")),
                ("resource", &format!("{start:#x}")),
                ("interleave_ways", &ways),
                ("interleave_granularity", "256"),
                ("locked", "0"),
                ("uuid", ""),
            ],
        );
        for (way, card) in cards.iter().enumerate() {
            let decoder = format!("decoder{}.0", 100 + card.index);
            self.tree.file(folder.join(format!("target{way}")), &decoder);
            self.tree.files(
                card.endpoint.join(decoder),
                &[
                    ("mode", "ram"),
                    ("dpa_resource", "0x0"),
                    ("dpa_size", &format!("{:#018x}", card.ram_bytes)),
                    ("region", &format!("region{number}")),
                ],
            );
            self.tree.file(card.endpoint.join("decoders_committed"), "1");
        }
        self.fill(&folder, number, start, size, used);
        folder
    }

    fn fill(&self, region: &Path, number: usize, start: u64, size: u64, used: RegionUse) {
        let (RegionUse::SystemRam(node) | RegionUse::Firmware(node) | RegionUse::DevDax(node)) = used;
        if !matches!(used, RegionUse::Firmware(_)) {
            let driver = if matches!(used, RegionUse::DevDax(_)) { "device_dax" } else { "kmem" };
            let name = format!("dax{number}.0");
            dax(self.tree, &region.join(format!("dax_region{number}")).join(&name), start, size, node, driver);
        }
        if !matches!(used, RegionUse::DevDax(_)) {
            online(self.tree, node, start, size);
        }
    }

    /// A host bridge with its port and its window.
    fn bridge(&mut self, bridge: usize) {
        let pci = bridge_name(bridge);
        let port = Path::new(ROOT).join(format!("port{}", bridge + 1));
        object(self.tree, &format!("port{}", bridge + 1), &port);
        let uid = bridge_bus(bridge);
        self.tree.folder(format!("sys/devices/{pci}"));
        self.tree.link(Path::new(ROOT).join(format!("dport{uid}")), format!("sys/devices/{pci}"));
        let window = Path::new(ROOT).join(format!("decoder0.{bridge}"));
        object(self.tree, &format!("decoder0.{bridge}"), &window);
        self.tree.files(
            &window,
            &[
                ("start", &format!("{:#x}", window_start(bridge))),
                ("size", &format!("{WINDOW:#x}")),
                ("cap_ram", "1"),
                ("cap_pmem", "1"),
                ("interleave_ways", "1"),
                ("interleave_granularity", "256"),
                ("qos_class", "0"),
                ("locked", "0"),
                ("target_list", &uid.to_string()),
                ("create_ram_region", "region99"),
            ],
        );
        self.taken.push(0);
    }

    fn memdev(&self, folder: &Path, index: usize, card: &CxlCard) {
        let name = format!("mem{index}");
        object(self.tree, &name, folder);
        driver(self.tree, "cxl", folder, "cxl_mem");
        self.tree.files(
            folder,
            &[
                ("serial", &format!("{:#x}", card.serial)),
                ("firmware_version", "1.0"),
                ("numa_node", "0"),
                ("ram/size", &format!("{:#x}", card.ram_bytes)),
                ("ram/qos_class", "0"),
                ("pmem/size", &format!("{:#x}", card.pmem_bytes)),
                ("pmem/qos_class", "0"),
                ("security/state", "disabled"),
                ("dev", &format!("251:{index}")),
                ("uevent", &format!("MAJOR=251\nMINOR={index}\nDEVNAME=cxl/{name}\nDEVTYPE=cxl_memdev")),
            ],
        );
        self.tree.link(format!("sys/dev/char/251:{index}"), folder);
    }

    fn endpoint(&self, folder: &Path, memdev: &Path, index: usize, card: &CxlCard) {
        object(self.tree, &format!("endpoint{}", 100 + index), folder);
        driver(self.tree, "cxl", folder, "cxl_port");
        self.tree.link(folder.join("uport"), memdev).file(folder.join("decoders_committed"), "0");
        if let Some(cdat) = &card.cdat {
            self.tree.bytes(folder.join("CDAT"), cdat);
        }
        for decoder in 0..DECODERS {
            let name = format!("decoder{}.{decoder}", 100 + index);
            let decoder = folder.join(&name);
            object(self.tree, &name, &decoder);
            let free = [
                ("mode", "none"),
                ("dpa_size", "0x0000000000000000"),
                ("region", ""),
                ("locked", "0"),
                ("interleave_ways", "1"),
                ("interleave_granularity", "256"),
            ];
            self.tree.files(decoder, &free);
        }
    }
}

/// Puts a dax device of memory that firmware has set aside into a tree, as number `number`; no CXL object knows of it.
pub fn plug_hmem(tree: &MachineTree, number: usize, start: u64, size: u64, node: u32, driver: &str) -> PathBuf {
    let folder = Path::new("sys/devices/platform").join(format!("hmem.{number}/dax{number}.0"));
    dax(tree, &folder, start, size, node, driver);
    if driver == "kmem" {
        online(tree, node, start, size);
    }
    folder
}

fn dax(tree: &MachineTree, folder: &Path, start: u64, size: u64, node: u32, bound: &str) {
    let name = folder.file_name().unwrap();
    tree.link(Path::new("sys/bus/dax/devices").join(name), folder);
    driver(tree, "dax", folder, bound);
    tree.files(
        folder,
        &[
            ("size", &size.to_string()),
            ("resource", &format!("{start:#x}")),
            ("target_node", &node.to_string()),
            ("align", "2097152"),
        ],
    );
}

/// Memory blocks of a range, online on a node, and what the node has to say.
fn online(tree: &MachineTree, node: u32, start: u64, size: u64) {
    let folder = format!("sys/devices/system/node/node{node}");
    for number in start / BLOCK..(start + size) / BLOCK {
        let block = format!("sys/devices/system/memory/memory{number}");
        tree.files(&block, &[("state", "online"), ("valid_zones", "Movable")]);
        tree.link(format!("{block}/node{node}"), &folder).link(format!("{folder}/memory{number}"), &block);
    }
    let blocks = std::fs::read_dir(tree.path(&folder)).unwrap();
    let blocks = blocks.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("memory"));
    let kilobytes = blocks.count() as u64 * (BLOCK >> 10);
    tree.file(format!("{folder}/meminfo"), format!("Node {node} MemTotal:       {kilobytes} kB"));
}

fn object(tree: &MachineTree, name: &str, folder: &Path) {
    tree.folder(folder).link(Path::new(BUS).join(name), folder);
}

fn driver(tree: &MachineTree, bus: &str, folder: &Path, name: &str) {
    let driver = Path::new("sys/bus").join(bus).join("drivers").join(name);
    tree.folder(&driver).link(folder.join("driver"), driver);
}

fn bridge_bus(bridge: usize) -> usize {
    0x10 + 0x10 * bridge
}

fn bridge_name(bridge: usize) -> String {
    format!("pci0000:{:02x}", bridge_bus(bridge))
}

fn window_start(bridge: usize) -> u64 {
    1024 * GIB * (bridge as u64 + 1)
}

fn card_function(index: usize, serial: u64) -> FakePciFunction {
    let (bridge, port) = (index / PORTS_OF_A_BRIDGE, index % PORTS_OF_A_BRIDGE);
    let bus = bridge_bus(bridge);
    let mut config = ConfigSpace::new(CXL, 0x000d);
    config.capability(3, 1, &serial.to_le_bytes());
    put_cxl(&mut config, 3, true, 16 * GIB);
    FakePciFunction {
        above: vec![bridge_name(bridge), format!("0000:{bus:02x}:{port:02x}.0")],
        class: 0x05_0210,
        numa_node: 0,
        driver: Some("cxl_pci".to_owned()),
        config: config.bytes(),
        ..FakePciFunction::new(&format!("0000:{:02x}:00.0", bus + 1 + port), CXL, 0x000d)
    }
}

/// A function of an accelerator: type 1 or 2; type 3 gives a card that no driver knows.
pub fn cxl_function(address: &str, kind: u8, negotiated: bool, memory_bytes: u64) -> FakePciFunction {
    let mut config = ConfigSpace::new(0x1234, 0x0c00 + u16::from(kind));
    config.capability(3, 1, &[0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0]);
    put_cxl(&mut config, kind, negotiated, memory_bytes);
    let link = [
        ("current_link_speed", "32.0 GT/s PCIe"),
        ("max_link_speed", "32.0 GT/s PCIe"),
        ("current_link_width", "8"),
        ("max_link_width", "16"),
        ("power_state", "D0"),
    ];
    FakePciFunction {
        class: 0x12_0000,
        config: config.bytes(),
        attributes: link.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..FakePciFunction::new(address, 0x1234, 0x0c00 + u16::from(kind))
    }
}

/// Appends the capabilities of a CXL device and of its link.
pub fn put_cxl(config: &mut ConfigSpace, kind: u8, negotiated: bool, memory_bytes: u64) {
    // Bit 0 caches, bit 1 is always there, bit 2 has memory, bits 5:4 count its ranges.
    let able: u16 = [0x0003, 0x0017, 0x0016][usize::from(kind) - 1];
    let protocols = if negotiated { able & 7 } else { 2 };
    let [high, low] = [memory_bytes >> 32, memory_bytes & 0xf000_0000].map(|half| u32::try_from(half).unwrap());
    let low = if memory_bytes == 0 { 0 } else { low | if negotiated { 3 } else { 1 } };
    let mut body = [0; 0x2e];
    body[0..2].copy_from_slice(&able.to_le_bytes());
    body[2..4].copy_from_slice(&protocols.to_le_bytes());
    body[0x0e..0x12].copy_from_slice(&high.to_le_bytes());
    body[0x12..0x16].copy_from_slice(&low.to_le_bytes());
    config.dvsec(CXL, 0, 1, &body);
    let [low, high] = protocols.to_le_bytes();
    config.dvsec(CXL, 7, 2, &[0, 0, 0, 0, low, high]);
}

/// Makes a character device of a function, as its driver does: `class` is a folder below the function's.
pub fn plug_node(tree: &MachineTree, function: &FakePciFunction, class: &str, name: &str, number: &str) {
    let device = function.folder().join(class);
    tree.file(device.join("dev"), number).file(device.join("uevent"), format!("MAJOR=1\nMINOR=1\nDEVNAME={name}"));
    tree.link(format!("sys/dev/char/{number}"), &device);
    tree.file(Path::new("dev").join(name), "");
}
