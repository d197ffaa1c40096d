//! The machine we run on, against what procfs says of it.

use std::thread;

use hostler_linux::{SysRoot, topology::Topology};

use crate::sound::assert_sound;

#[test]
fn this_machine_is_read_as_procfs_tells() {
    let root = SysRoot::host();
    let (Some(cpuinfo), Some(meminfo)) = (root.text("proc/cpuinfo").unwrap(), root.text("proc/meminfo").unwrap())
    else {
        eprintln!("skipped: no /proc here");
        return;
    };
    if !root.exists("sys/devices/system/cpu").unwrap() {
        eprintln!("skipped: no /sys here");
        return;
    }
    let topology = Topology::read(&root).unwrap();
    assert_sound(&topology);
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    assert_eq!(topology.cpus.len(), processors);
    // Our own affinity may be narrower than the machine.
    assert!(thread::available_parallelism().unwrap().get() <= topology.cpus.len());
    assert!(topology.online.is_subset(&topology.present) && topology.present.is_subset(&topology.possible));
    let total: u64 = topology.nodes.values().filter_map(|node| node.memory_bytes).sum();
    let expected =
        meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix("kB")?.trim().parse().ok());
    let expected: u64 = expected.map(|kilobytes: u64| kilobytes * 1024).unwrap();
    // Balloons and hot-plug may move memory between the two readings.
    assert!(total.abs_diff(expected) <= expected / 50, "{total} and {expected}");
    // A build for one architecture runs on it, or on its 64-bit successor.
    let arch = topology.arch.as_deref().unwrap_or(std::env::consts::ARCH);
    assert!(arch.starts_with(&std::env::consts::ARCH[..3]) || std::env::consts::ARCH.starts_with("powerpc"), "{arch}");
}
