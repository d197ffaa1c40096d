//! A machine's CPUs, caches, nodes and memory, read from a tree in which every file may hold anything.
#![no_main]

use std::{fs, sync::LazyLock};

use hostler_linux::{SysRoot, topology::Topology};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

/// Files that the topology is made of. Each chunk of the input chooses one and fills it.
const FILES: &[&str] = &[
    "sys/devices/system/cpu/possible",
    "sys/devices/system/cpu/present",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/cpu/nohz_full",
    "sys/devices/system/cpu/smt/active",
    "sys/devices/system/cpu/cpu0/online",
    "sys/devices/system/cpu/cpu0/topology/core_id",
    "sys/devices/system/cpu/cpu0/topology/physical_package_id",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
    "sys/devices/system/cpu/cpu0/topology/core_cpus_list",
    "sys/devices/system/cpu/cpu0/topology/package_cpus_list",
    "sys/devices/system/cpu/cpu0/topology/die_cpus_list",
    "sys/devices/system/cpu/cpu0/topology/cluster_cpus_list",
    "sys/devices/system/cpu/cpu0/cpu_capacity",
    "sys/devices/system/cpu/cpu0/cache/index0/level",
    "sys/devices/system/cpu/cpu0/cache/index0/type",
    "sys/devices/system/cpu/cpu0/cache/index0/size",
    "sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list",
    "sys/devices/system/cpu/cpu1/topology/core_id",
    "sys/devices/system/cpu/cpu1/topology/thread_siblings_list",
    "sys/devices/system/cpu/cpu1/topology/core_siblings_list",
    "sys/devices/system/node/possible",
    "sys/devices/system/node/online",
    "sys/devices/system/node/has_memory",
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/node0/cpumap",
    "sys/devices/system/node/node0/distance",
    "sys/devices/system/node/node0/meminfo",
    "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
    "sys/devices/system/node/node0/access1/initiators/read_bandwidth",
    "sys/devices/system/node/node0/memory_side_cache/index1/size",
    "sys/devices/system/node/node1/cpulist",
    "sys/devices/system/node/node1/distance",
    "sys/devices/system/node/node1/meminfo",
    "sys/devices/system/memory/block_size_bytes",
    "sys/devices/system/memory/memory0/state",
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/cmdline",
    "sys/fs/cgroup/cpuset.cpus.effective",
    "sys/fs/cgroup/cpuset.mems.effective",
];

/// One tree for all runs: each run fills the files that it names and empties the rest.
static TREE: LazyLock<TempDir> = LazyLock::new(|| {
    let tree = TempDir::new().expect("a temporary folder can be made");
    for file in FILES {
        let path = tree.path().join(file);
        fs::create_dir_all(path.parent().expect("every file is in a folder")).expect("folders can be made");
    }
    tree
});

fuzz_target!(|bytes: &[u8]| {
    for file in FILES {
        let _ = fs::remove_file(TREE.path().join(file));
    }
    for chunk in bytes.split(|byte| *byte == 0xff) {
        let Some((choice, content)) = chunk.split_first() else { continue };
        let file = FILES[usize::from(*choice) % FILES.len()];
        fs::write(TREE.path().join(file), content).expect("files can be written");
    }
    let topology = Topology::read(&SysRoot::new(TREE.path())).expect("every file can be read");
    for cpu in topology.cpus.values() {
        assert!(cpu.core < topology.cores.len() && cpu.package < topology.packages.len());
        assert!(cpu.die.is_none_or(|die| die < topology.dies.len()));
        assert!(cpu.l3.is_none_or(|l3| l3 < topology.caches.len()));
    }
    let in_cores: usize = topology.cores.iter().map(|core| core.cpus.len()).sum();
    assert_eq!(in_cores, topology.cpus.len(), "every CPU is in one core");
});
