//! Trees of made-up machines.

use std::collections::BTreeMap;

use hostler_api::{DeviceName, QualifiedName};
use hostler_backend::{AttributeValue, Device};
use hostler_linux::topology::{CpuCache, CpuCore, CpuGroup, LogicalCpu};

use super::*;
use crate::cli::inventory::{scan::ScannedPool, shares::KnownShares};

fn set(list: &str) -> IdSet {
    list.parse().unwrap()
}

/// Packages of `cores` cores each with `threads` threads, one NUMA node per package, CPUs numbered core by core.
fn topology(packages: u32, cores: u32, threads: u32) -> Topology {
    let mut topology = Topology::default();
    for package in 0..packages {
        let first = package * cores * threads;
        let cpus: IdSet = (first..first + cores * threads).collect();
        for cpu in cpus.iter() {
            let core = (cpu / threads) as usize;
            topology
                .cpus
                .insert(cpu, LogicalCpu { core, package: package as usize, node: package, ..LogicalCpu::default() });
        }
        topology.packages.push(CpuGroup { id: Some(package), cpus: cpus.clone() });
        let node = NumaNode { cpus: cpus.clone(), memory_bytes: Some(1 << 30), ..NumaNode::default() };
        topology.nodes.insert(package, node);
        topology.online = topology.online.union(&cpus);
    }
    topology.cores =
        (0..packages * cores).map(|core| CpuCore { cpus: (core * threads..(core + 1) * threads).collect() }).collect();
    (topology.present, topology.allowed_cpus) = (topology.online.clone(), topology.online.clone());
    topology
}

fn drawn(topology: Topology) -> String {
    let pools = Vec::new();
    tree(&ScannedMachine {
        node: "n1".to_owned(),
        topology,
        pools,
        warnings: Vec::new(),
        failure: None,
        shares: KnownShares::default(),
    })
}

fn l3(cpus: &str) -> CpuCache {
    CpuCache { level: 3, cache_type: "Unified".to_owned(), size_bytes: Some(8 << 20), cpus: set(cpus), id: None }
}

#[test]
fn parts_with_the_same_cpus_share_a_line() {
    let mut topology = topology(1, 2, 2);
    topology.caches = vec![l3("0-3")];
    let expected = "\
n1: 1 package, 2 cores, 4 threads, 1 NUMA node, 1 GiB
└─ package 0 · NUMA node 0 · L3 8 MiB · 2 cores × 2 threads · CPUs 0-3
   └─ memory 1 GiB
";
    assert_eq!(drawn(topology), expected);
}

#[test]
fn a_node_of_several_packages_stands_above_them() {
    let mut topology = topology(2, 2, 1);
    let node = NumaNode { cpus: set("0-3"), memory_bytes: Some(1 << 30), ..NumaNode::default() };
    topology.nodes = BTreeMap::from([(0, node)]);
    let expected = "\
n1: 2 packages, 4 cores, 4 threads, 1 NUMA node, 1 GiB
└─ NUMA node 0
   ├─ memory 1 GiB
   ├─ package 0 · 2 cores · CPUs 0-1
   └─ package 1 · 2 cores · CPUs 2-3
";
    assert_eq!(drawn(topology), expected);
}

#[test]
fn many_equal_parts_are_one_line_and_few_are_not() {
    let mut few = topology(1, 8, 1);
    few.caches = ["0-1", "2-3", "4-5", "6-7"].map(l3).into();
    assert_eq!(drawn(few).matches("L3 8 MiB · 2 cores").count(), 4);
    let mut many = topology(1, 10, 1);
    many.caches = ["0-1", "2-3", "4-5", "6-7", "8-9"].map(l3).into();
    let many = drawn(many);
    assert!(many.contains("└─ 5 × L3 8 MiB, each 2 cores · CPUs 0-9\n"), "{many}");
}

#[test]
fn masks_that_cross_each_other_lose_no_cpu() {
    let mut topology = topology(2, 4, 1);
    // The node takes a part of each package: neither can stand above the other.
    topology.nodes.get_mut(&0).unwrap().cpus = set("2-5");
    topology.nodes.get_mut(&1).unwrap().cpus = IdSet::new();
    let text = drawn(topology);
    for line in ["package 0 · 4 cores · CPUs 0-3", "package 1 · 4 cores · CPUs 4-7", "NUMA node 0 · 4 cores · CPUs 2-5"]
    {
        assert!(text.contains(line), "{text}");
    }
    assert!(text.contains("NUMA node 1 · no CPUs · memory 1 GiB"), "{text}");
}

#[test]
fn cpus_that_are_not_like_the_others_are_named_first() {
    let mut topology = topology(1, 4, 1);
    topology.present = set("0-5");
    topology.isolated = set("3");
    topology.allowed_cpus = set("0-1");
    let text = drawn(topology);
    assert!(text.contains("├─ offline CPUs: 4-5\n├─ isolated CPUs: 3\n"), "{text}");
    assert!(text.contains("├─ CPUs that the host's cpuset withholds: 2-3\n"), "{text}");
}

#[test]
fn kinds_of_cores_are_counted_apart() {
    let mut topology = topology(1, 4, 1);
    for (number, cpu) in &mut topology.cpus {
        cpu.core_type = if *number < 1 {
            hostler_linux::topology::CoreType::Performance
        } else {
            hostler_linux::topology::CoreType::Efficiency
        };
    }
    let text = drawn(topology);
    assert!(text.contains("├─ 1 performance core · CPUs 0\n   └─ 3 efficiency cores · CPUs 1-3\n"), "{text}");
}

/// Each device is asked once where it is; what stands beside a part is not compared with it ([`nesting`]).
#[test]
fn as_many_nodes_as_there_can_be_are_drawn_in_one_pass_over_their_devices() {
    const NODES: u32 = 65_536;
    let mut topology = topology(NODES / 2, 1, 1);
    let cpuless = NumaNode { memory_bytes: Some(1 << 30), ..NumaNode::default() };
    topology.nodes.extend((NODES / 2..NODES).map(|node| (node, cpuless.clone())));
    let device = |node: u32| {
        let mut device = Device::new(DeviceName::new(format!("node-{node}")).unwrap());
        device
            .attributes
            .insert(QualifiedName::new("resource.kubernetes.io/numaNode").unwrap(), AttributeValue::Int(node.into()));
        device
    };
    let devices = (0..NODES).map(device).collect();
    let pools =
        vec![ScannedPool { backend: "memory", name: "n1/memory".to_owned(), devices, counter_sets: Vec::new() }];
    let machine = ScannedMachine {
        node: "n1".to_owned(),
        topology,
        pools,
        warnings: Vec::new(),
        failure: None,
        shares: KnownShares::default(),
    };
    let mut asked = 0;
    let devices = DevicesByNode::of(&machine, |device| {
        asked += 1;
        numa_node(device)
    });
    assert_eq!((asked, devices.of_node(NODES - 1).len(), devices.elsewhere().len()), (NODES, 1, 0));
    let text = tree(&machine);
    assert_eq!(text.matches("▪ memory/node-").count(), NODES as usize);
    assert_eq!(text.matches("NUMA node ").count(), NODES as usize);
}

#[test]
fn distances_of_more_nodes_than_a_table_has_room_for_are_left_out() {
    let mut topology = topology(257, 1, 1);
    topology.nodes.values_mut().for_each(|node| node.distances = BTreeMap::from([(0, 10)]));
    let text = drawn(topology);
    assert!(text.ends_with("\ndistances of 257 NUMA nodes: see -o json\n"), "{}", text.len());
}

#[test]
fn long_lists_are_cut_in_the_middle() {
    let alternate: IdSet = (0..64).map(|cpu| cpu * 2).collect();
    assert_eq!(cores::list(&alternate), "0,2,4,…,126 (64 in all)");
    assert_eq!(cores::list(&set("0-3,8-11")), "0-3,8-11");
}
