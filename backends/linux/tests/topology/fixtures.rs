//! Captured machines, against what their README and other programs say of them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use hostler_linux::{
    IdSet,
    archive::UnpackedCapture,
    testkit::captures_folder,
    topology::{CoreType, Topology},
};

use crate::{
    sound::assert_sound,
    tree::{lists, of_type},
};

/// Packages, cores, threads and NUMA nodes of a fixture: cores and threads that are online, and every online node.
/// With a reason where the README's row reads otherwise.
const MACHINES: [(&str, [usize; 4], &str); 14] = [
    ("hwloc-128arm-2pa2n8cluster4co", [2, 128, 128, 4], ""),
    ("hwloc-20em64t-hybrid-1p6c2t+2ca4co1t", [1, 14, 20, 1], ""),
    ("hwloc-nvidia-dgx-gb10", [1, 20, 20, 1], ""),
    ("hwloc-memorysidecaches", [2, 40, 80, 4], ""),
    ("hwloc-fakememinitiators-1np2c+1npp+gi", [2, 8, 8, 11], "five of the eleven nodes have no memory, and count"),
    ("hwloc-32em64t-2n8c+dax+nvme+mic+dimms", [2, 16, 16, 2], ""),
    ("hwloc-offline-cpu0-node0", [2, 17, 17, 1], ""),
    ("hwloc-32amd64-4s2n4c-cgroup2", [4, 32, 32, 8], "the limits narrow what may be handed out, not what is there"),
    ("hwloc-48amd64-4pa2n6c-sparse", [4, 48, 48, 8], ""),
    ("lscpu-x86_64-epyc_7451", [2, 48, 96, 8], ""),
    ("qemu-cxl-7.3.4-boot", [3, 3, 6, 4], "the README gives no numbers; these are the emulator's command line"),
    ("qemu-cxl-7.3.4-regions", [3, 3, 6, 6], "as above, and two nodes of CXL memory"),
    ("qemu-cxl-7.3.4-hotadd", [3, 3, 6, 6], "as above, and two nodes of CXL memory"),
    ("qemu-cxl-7.3.4-removed", [3, 3, 6, 4], "as above, and the CXL memory is gone"),
];

/// Fixtures that say nothing about CPUs.
const OTHERS: [(&str, &str); 4] = [
    ("lsmem-x86_64-16g", "memory blocks only"),
    ("opae-dfl_n3000_nlb0", "FPGA card only"),
    ("opae-dfl_n6000_sku1_nlb0", "FPGA card only"),
    ("pciutils-cap-dvsec-cxl", "PCI configuration space only"),
];

/// A machine as read, and what other programs say of it.
struct MachineFixture {
    name: &'static str,
    topology: Topology,
    expected: BTreeMap<&'static str, String>,
}

impl MachineFixture {
    fn read(path: &Path, name: &'static str) -> Self {
        let capture = UnpackedCapture::open(path).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let root = capture.root();
        let topology = Topology::read(&root).unwrap();
        assert_sound(&topology);
        let expected = ["EXPECTED.xml", "EXPECTED.console", "EXPECTED.lscpu"];
        let expected = expected.into_iter().filter_map(|file| Some((file, root.text(file).unwrap()?))).collect();
        Self { name, topology, expected }
    }
}

/// All fixtures, unpacked and read once for all tests. Our own captures are in the repository; the others are absent
/// where their folder is.
fn fixtures() -> impl Iterator<Item = &'static MachineFixture> {
    static FIXTURES: LazyLock<Vec<MachineFixture>> = LazyLock::new(|| {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees");
        let folders: Vec<PathBuf> = [Some(own), captures_folder()].into_iter().flatten().collect();
        let path =
            |name| folders.iter().map(|folder| folder.join(format!("{name}.tar.zst"))).find(|path| path.exists());
        let names = MACHINES.iter().map(|(name, ..)| *name).chain(OTHERS.iter().map(|(name, _)| *name));
        names.filter_map(|name| Some(MachineFixture::read(&path(name)?, name))).collect()
    });
    FIXTURES.iter()
}

fn machines() -> impl Iterator<Item = &'static MachineFixture> {
    fixtures().filter(|fixture| !fixture.topology.cpus.is_empty())
}

/// One fixture; the test has nothing to do where their folder is absent.
fn fixture(name: &str) -> Option<&'static MachineFixture> {
    fixtures().find(|fixture| fixture.name == name)
}

fn counts(topology: &Topology) -> [usize; 4] {
    [topology.packages.len(), topology.cores.len(), topology.cpus.len(), topology.nodes.len()]
}

#[test]
fn every_fixture_is_read_as_its_readme_says() {
    let Some(folder) = captures_folder() else { return };
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    for file in fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()) {
        let Some(name) = file.strip_suffix(".tar.zst") else { continue };
        if let Some((name, reason)) = OTHERS.iter().find(|(other, _)| *other == name) {
            eprintln!("skipped: {name}: {reason}");
            continue;
        }
        let (_, expected, deviation) = MACHINES.iter().find(|(machine, ..)| *machine == name).expect(name);
        assert_eq!(counts(&fixture(name).unwrap().topology), *expected, "{name}");
        let row = readme.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap_or_default();
        let column = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default().trim();
        let said = expected.map(|count| count.to_string()).join(" / ");
        assert_eq!(
            column == said,
            deviation.is_empty(),
            "{name}: README says {column}, table says {said}; {deviation}"
        );
    }
}

#[test]
fn our_own_captures_are_there_and_read_as_expected() {
    let own = machines().filter(|fixture| fixture.name.starts_with("qemu-cxl"));
    let counts: Vec<_> = own.map(|fixture| (fixture.name, counts(&fixture.topology))).collect();
    let table = MACHINES.iter().filter(|(name, ..)| name.starts_with("qemu-cxl"));
    assert_eq!(counts, table.map(|(name, counts, _)| (*name, *counts)).collect::<Vec<_>>());
}

#[test]
fn fixtures_without_cpus_say_so_and_give_the_rest() {
    for (name, _) in OTHERS {
        let Some(MachineFixture { topology, .. }) = fixture(name) else { return };
        assert_eq!(counts(topology), [0; 4], "{name}");
        assert_eq!(lists_of_warnings(topology), ["/sys/devices/system/cpu"], "{name}");
    }
    let Some(fixture) = fixture("lsmem-x86_64-16g") else { return };
    let blocks = fixture.topology.memory_blocks.as_ref().unwrap();
    assert_eq!((blocks.block_bytes, blocks.online, blocks.offline), (128 << 20, 128, 0));
    assert_eq!(blocks.by_node, BTreeMap::from([(0, 128)]));
}

fn lists_of_warnings(topology: &Topology) -> Vec<&str> {
    topology.warnings.iter().map(|warning| warning.path.as_str()).collect()
}

#[test]
fn only_the_machine_with_an_offline_node_contradicts_itself() {
    for MachineFixture { name, topology, .. } in machines() {
        let expected: &[&str] = match *name {
            "hwloc-offline-cpu0-node0" => {
                &["/sys/devices/system/node/node0", "/sys/devices/system/node/node1/distance"]
            }
            _ => &[],
        };
        assert_eq!(lists_of_warnings(topology), expected, "{}", name);
    }
}

/// How many objects of each kind hwloc shows, in either of its formats.
fn hwloc_counts(expected: &BTreeMap<&str, String>) -> Option<BTreeMap<String, usize>> {
    if let Some(xml) = expected.get("EXPECTED.xml") {
        let mut counts = BTreeMap::new();
        let types = xml.lines().filter_map(|line| line.trim().strip_prefix("<object type=\"")?.split('"').next());
        types.for_each(|kind| *counts.entry(kind.to_owned()).or_default() += 1);
        return Some(counts);
    }
    let console = expected.get("EXPECTED.console")?;
    let depths = console.lines().filter(|line| line.contains("(type #"));
    let count = |line: &str| {
        let mut words = line.split(':').nth(1)?.split_whitespace();
        let count = words.next()?.parse().ok()?;
        Some((words.next()?.to_owned(), count))
    };
    Some(depths.filter_map(count).collect())
}

#[test]
fn objects_are_as_many_as_hwloc_counts() {
    let mut compared = 0;
    for MachineFixture { name, topology, expected } in machines() {
        // The limited machine: hwloc counts what it may use.
        let Some(hwloc) = hwloc_counts(expected).filter(|_| !name.ends_with("cgroup2")) else { continue };
        let count = |kinds: &[&str]| kinds.iter().filter_map(|kind| hwloc.get(*kind)).sum::<usize>();
        let caches = |level, kind| {
            topology.caches.iter().filter(|cache| cache.level == level && cache.cache_type == kind).count()
        };
        let with_memory = topology.nodes.values().filter(|node| node.memory_bytes != Some(0)).count();
        let side_caches: usize = topology.nodes.values().map(|node| node.memory_side_caches.len()).sum();
        let ours = [
            topology.packages.len(),
            topology.cores.len(),
            topology.cpus.len(),
            with_memory,
            caches(3, "Unified"),
            caches(2, "Unified"),
            caches(1, "Data"),
            caches(1, "Instruction"),
            side_caches,
        ];
        let theirs = [
            count(&["Package"]),
            count(&["Core"]),
            count(&["PU"]),
            count(&["NUMANode"]),
            count(&["L3Cache"]),
            count(&["L2Cache"]),
            count(&["L1Cache", "L1dCache"]),
            count(&["L1iCache"]),
            count(&["MemCache"]),
        ];
        assert_eq!(ours, theirs, "{}", name);
        compared += 1;
    }
    assert!(compared == 8 || captures_folder().is_none(), "{compared}");
}

/// The node ids in hwloc's logical order, from lines `NUMANode L#1 (P#33 …)`.
fn hwloc_nodes(console: &str) -> BTreeMap<usize, u32> {
    let nodes = console.lines().filter(|line| line.trim_start().starts_with("NUMANode") && line.contains("(P#"));
    let number = |line: &str, mark: &str| -> Option<u32> {
        let digits = line.split(mark).nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    nodes.filter_map(|line| Some((number(line, "L#")? as usize, number(line, "(P#")?))).collect()
}

#[test]
fn distances_are_those_of_the_matrix_that_hwloc_prints() {
    let mut compared = 0;
    for MachineFixture { name, topology, expected } in machines() {
        let Some(console) = expected.get("EXPECTED.console") else { continue };
        let nodes = hwloc_nodes(console);
        // Rows and columns are labelled with logical indexes, not always in ascending order.
        let mut matrix = console.lines().skip_while(|line| !line.starts_with("Relative latency matrix")).skip(1);
        let numbers = |line: &str| line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<usize>>();
        let columns = numbers(matrix.next().unwrap_or_default());
        for row in matrix.take(columns.len()).map(numbers) {
            for (column, distance) in columns.iter().zip(&row[1..]) {
                let ours = topology.nodes[&nodes[&row[0]]].distances.get(&nodes[column]).copied();
                assert_eq!(ours, u32::try_from(*distance).ok(), "{name} {row:?} {column}");
                compared += 1;
            }
        }
    }
    // 4 × 4 nodes twice, 8 × 8 and 6 × 6.
    assert!(compared == 132 || captures_folder().is_none(), "{compared}");
}

#[test]
fn every_cpu_of_the_epyc_is_where_lscpu_puts_it() {
    let Some(fixture) = fixture("lscpu-x86_64-epyc_7451") else { return };
    let (topology, lscpu) = (&fixture.topology, &fixture.expected["EXPECTED.lscpu"]);
    // CPU,Core,Socket,Node,,L1d,L1i,L2,L3, one row per CPU; a second table repeats them with the kernel's ids.
    let rows = lscpu.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).take(96);
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 96);
    let groups = |column: usize| {
        let mut groups: BTreeMap<&str, IdSet> = BTreeMap::new();
        rows.iter().for_each(|row| _ = groups.entry(row[column]).or_default().insert(row[0].parse().unwrap()));
        let mut groups: Vec<IdSet> = groups.into_values().collect();
        groups.sort_by_key(IdSet::first);
        lists(&groups)
    };
    let caches = |level, kind: &str| {
        let caches = topology.caches.iter().filter(|cache| cache.level == level && cache.cache_type == kind);
        lists(caches.map(|cache| &cache.cpus))
    };
    assert_eq!(lists(topology.cores.iter().map(|core| &core.cpus)), groups(1));
    assert_eq!(lists(topology.packages.iter().map(|package| &package.cpus)), groups(2));
    assert_eq!(lists(topology.nodes.values().map(|node| &node.cpus)), groups(3));
    let ours = [caches(1, "Data"), caches(1, "Instruction"), caches(2, "Unified"), caches(3, "Unified")];
    assert_eq!(ours, [groups(5), groups(6), groups(7), groups(8)]);
    assert_eq!(
        (topology.cpu_model.as_deref(), &topology.nohz_full),
        (Some("AMD EPYC 7451 24-Core Processor"), &IdSet::new())
    );
}

#[test]
fn arm_clusters_and_huge_pages_are_read_and_nameless_dies_are_not() {
    let Some(MachineFixture { topology, .. }) = fixture("hwloc-128arm-2pa2n8cluster4co") else { return };
    assert_eq!((topology.arch.as_deref(), topology.dies.len()), (Some("aarch64"), 0));
    let clusters = lists(topology.clusters.iter().map(|cluster| &cluster.cpus));
    assert_eq!((clusters.len(), clusters[1].as_str()), (32, "4-7"));
    assert_eq!(topology.packages[0].id, Some(36));
    assert_eq!(topology.huge_page_sizes, [64 << 10, 2 << 20, 32 << 20, 1 << 30]);
    assert_eq!(topology.nodes[&0].huge_pages.keys().copied().collect::<Vec<_>>(), topology.huge_page_sizes);
    assert_eq!(topology.cpus[&5].capacity, Some(1024));
    assert_eq!(topology.caches[topology.cpus[&127].l3.unwrap()].cpus.to_string(), "96-127");
}

#[test]
fn hybrid_fixtures_have_the_kinds_that_hwloc_finds() {
    // Kinds with CPUs 0x00000fff and 0x000ff000 in EXPECTED.console.
    let Some(MachineFixture { topology, .. }) = fixture("hwloc-20em64t-hybrid-1p6c2t+2ca4co1t") else { return };
    let kinds = [CoreType::Performance, CoreType::Balanced, CoreType::Efficiency, CoreType::Uniform];
    assert_eq!(kinds.map(|kind| of_type(topology, kind)), ["0-11", "", "12-19", ""]);
    // Kinds with CPUs 0x00007c1f and 0x000f83e0 in EXPECTED.xml.
    let Some(MachineFixture { topology, .. }) = fixture("hwloc-nvidia-dgx-gb10") else { return };
    assert_eq!(kinds.map(|kind| of_type(topology, kind)), ["5-9,15-19", "", "0-4,10-14", ""]);
    for MachineFixture { name, topology, .. } in machines() {
        let hybrid = name.contains("hybrid") || name.contains("gb10");
        assert_eq!(of_type(topology, CoreType::Uniform).is_empty(), hybrid, "{}", name);
    }
}

#[test]
fn limits_of_control_groups_narrow_what_may_be_handed_out() {
    let allowed = |name: &str| {
        let topology = &fixture(name)?.topology;
        Some((topology.allowed_cpus.to_string(), topology.allowed_nodes.to_string()))
    };
    // CPU 5 is isolated at boot, which does not take it from us.
    assert_eq!(allowed("qemu-cxl-7.3.4-regions").unwrap(), ("0-5".to_owned(), "0-3,5-6".to_owned()));
    let Some(limited) = allowed("hwloc-32amd64-4s2n4c-cgroup2") else { return };
    // As allowed_cpuset and allowed_nodeset in EXPECTED.xml.
    assert_eq!(limited, ("0-5".to_owned(), "0-5".to_owned()));
    assert_eq!(allowed("hwloc-offline-cpu0-node0").unwrap(), ("4-20".to_owned(), "1".to_owned()));
    assert_eq!(allowed("hwloc-fakememinitiators-1np2c+1npp+gi").unwrap(), ("0-7".to_owned(), "5-10".to_owned()));
    // No cpuset at all in the tree.
    assert_eq!(allowed("lscpu-x86_64-epyc_7451").unwrap(), ("0-95".to_owned(), "0-7".to_owned()));
}

#[test]
fn made_up_initiators_are_those_of_cpus_not_of_the_generic_one() {
    let Some(MachineFixture { topology, .. }) = fixture("hwloc-fakememinitiators-1np2c+1npp+gi") else { return };
    let access = topology.nodes[&7].access.as_ref().unwrap();
    assert_eq!((access.class, access.initiators.to_string().as_str()), (1, "0,2"));
    assert_eq!((access.read_bandwidth, access.read_latency), (Some(78_644), Some(77)));
    let generic: Vec<u32> =
        topology.nodes.iter().filter(|(_, node)| node.generic_initiator).map(|(id, _)| *id).collect();
    assert_eq!(generic, [4]);
    assert_eq!(topology.nodes[&4].memory_bytes, Some(0));
}

#[test]
fn the_emulated_machine_shows_what_it_was_told_to_be() {
    let topology = &fixture("qemu-cxl-7.3.4-regions").unwrap().topology;
    assert_eq!((topology.isolated.to_string(), topology.nohz_full.to_string()), ("5".to_owned(), "5".to_owned()));
    assert_eq!(topology.possible_nodes.to_string(), "0-6");
    let far = &topology.nodes[&3];
    assert!(far.cpus.is_empty());
    assert_eq!((far.distances[&1], far.tier), (14, Some(1)));
    let access = far.access.as_ref().unwrap();
    assert_eq!((access.class, access.read_bandwidth, access.read_latency), (1, Some(60_000), Some(130)));
    let caches = &topology.nodes[&2].memory_side_caches;
    assert_eq!((caches.len(), caches[0].level, caches[0].size_bytes, caches[0].line_bytes), (1, 1, 64 << 20, Some(64)));
    // CXL memory: the kernel knows neither its speed nor its distance.
    let cxl = &topology.nodes[&5];
    assert_eq!((cxl.distances[&6], cxl.tier, &cxl.access), (20, Some(14), &None));
    let blocks = topology.memory_blocks.as_ref().unwrap();
    assert_eq!((blocks.block_bytes, blocks.online, blocks.by_node[&5]), (128 << 20, 28, 6));
    assert_eq!(topology.nodes[&0].huge_pages[&(2 << 20)].total, 2);
}
