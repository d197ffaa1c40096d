//! Kinds of cores, by each source that tells them.

use hostler_linux::topology::{CoreType, Topology};

use crate::tree::{CPU, TopologyTree, of_type};

/// CPUs of performance, balanced, efficiency and uniform cores.
fn kinds(topology: &Topology) -> [String; 4] {
    let kinds = [CoreType::Performance, CoreType::Balanced, CoreType::Efficiency, CoreType::Uniform];
    kinds.map(|kind| of_type(topology, kind))
}

/// A machine of single-threaded cores, whose `file` has these values.
fn with_values(file: &str, values: &[&str]) -> TopologyTree {
    let tree = TopologyTree::with_cores(u32::try_from(values.len()).unwrap());
    set_values(&tree, file, values);
    tree
}

fn set_values(tree: &TopologyTree, file: &str, values: &[&str]) {
    for (cpu, value) in values.iter().enumerate() {
        tree.file(&format!("{CPU}/cpu{cpu}/{file}"), value);
    }
}

const CAPACITY: &str = "cpu_capacity";
const MIDR: &str = "regs/identification/midr_el1";
const PERFORMANCE: &str = "acpi_cppc/highest_perf";

#[test]
fn performance_monitoring_units_come_first() {
    let tree = with_values(CAPACITY, &["1024", "1024", "512", "100"]);
    tree.file("sys/devices/cpu_core/cpus", "0").file("sys/devices/cpu_atom/cpus", "1-3");
    assert_eq!(kinds(&tree.read_clean()), ["0", "", "1-3", ""]);
    tree.file("sys/devices/cpu_atom/cpus", "1-2").file("sys/devices/cpu_lowpower/cpus", "3");
    assert_eq!(kinds(&tree.read_clean()), ["0", "1-2", "3", ""]);
}

#[test]
fn monitoring_units_that_name_one_kind_leave_it_to_the_next_source() {
    let tree = with_values(CAPACITY, &["1024", "512"]);
    tree.file("sys/devices/cpu_core/cpus", "0-1");
    assert_eq!(kinds(&tree.read_clean()), ["0", "", "1", ""]);
}

#[test]
fn monitoring_units_that_leave_cpus_out_are_reported_and_ignored() {
    let tree = with_values(CAPACITY, &["1024", "1024", "512"]);
    tree.file("sys/devices/cpu_core/cpus", "0").file("sys/devices/cpu_atom/cpus", "1");
    let topology = tree.read();
    assert_eq!(kinds(&topology), ["0-1", "", "2", ""]);
    assert!(topology.warnings[0].reason.contains("CPUs 2"), "{:?}", topology.warnings);
}

#[test]
fn part_numbers_make_kinds_and_revisions_do_not() {
    // Two designs, one of them in two revisions; capacity would tell three apart.
    let parts = ["0x00000000410fd871", "0x00000000411fd872", "0x00000000410fd851"];
    let tree = with_values(MIDR, &parts);
    set_values(&tree, CAPACITY, &["718", "600", "1024"]);
    assert_eq!(kinds(&tree.read_clean()), ["2", "", "0-1", ""]);
}

#[test]
fn four_designs_have_a_strongest_a_weakest_and_two_between() {
    let tree = with_values(MIDR, &["0x410fd460", "0x410fd460", "0x410fd470", "0x410fd4d0", "0x410fd4e0"]);
    set_values(&tree, CAPACITY, &["200", "200", "700", "800", "1024"]);
    assert_eq!(kinds(&tree.read_clean()), ["4", "2-3", "0-1", ""]);
}

#[test]
fn without_capacity_frequency_ranks_the_designs() {
    let tree = with_values(MIDR, &["0x410fd080", "0x410fd030"]);
    set_values(&tree, "cpufreq/cpuinfo_max_freq", &["1800000", "1400000"]);
    assert_eq!(kinds(&tree.read_clean()), ["0", "", "1", ""]);
}

#[test]
fn capacities_make_kinds_unless_they_differ_by_a_few_per_cent() {
    assert_eq!(kinds(&with_values(CAPACITY, &["446", "446", "1024", "1024"]).read_clean()), ["2-3", "", "0-1", ""]);
    assert_eq!(kinds(&with_values(CAPACITY, &["1024", "1009", "1003", "990"]).read_clean()), ["", "", "", "0-3"]);
    assert_eq!(kinds(&with_values(CAPACITY, &["160", "768", "1024"]).read_clean()), ["2", "1", "0", ""]);
}

#[test]
fn firmware_performance_makes_kinds_and_favoured_cores_do_not() {
    assert_eq!(kinds(&with_values(PERFORMANCE, &["67", "64", "39", "39"]).read_clean()), ["0-1", "", "2-3", ""]);
    // Preferred cores of a desktop: small steps over a wide range.
    let steps = ["236", "231", "226", "221", "216", "211", "206", "201", "196", "191", "186", "181", "176", "171"];
    assert_eq!(kinds(&with_values(PERFORMANCE, &steps).read_clean()), ["", "", "", "0-13"]);
    assert_eq!(kinds(&with_values(PERFORMANCE, &["0", "0"]).read_clean()), ["", "", "", "0-1"]);
}

#[test]
fn a_small_difference_in_performance_counts_with_a_difference_in_threads() {
    let tree = TopologyTree::with_online("0-3");
    tree.cpu(0, "0-1", "0-3").cpu(1, "0-1", "0-3").cpu(2, "2", "0-3").cpu(3, "3", "0-3");
    set_values(&tree, PERFORMANCE, &["66", "66", "60", "60"]);
    assert_eq!(kinds(&tree.read_clean()), ["0-1", "", "2-3", ""]);
    // Threads alone do not: a sibling may merely be offline.
    set_values(&tree, PERFORMANCE, &["64", "64", "64", "64"]);
    assert_eq!(kinds(&tree.read_clean()), ["", "", "", "0-3"]);
}

#[test]
fn equal_cores_are_uniform_whatever_is_known_of_them() {
    let tree = with_values(CAPACITY, &["1024", "1024"]);
    set_values(&tree, MIDR, &["0x410fd0c0", "0x410fd0c0"]);
    set_values(&tree, PERFORMANCE, &["100", "100"]);
    assert_eq!(kinds(&tree.read_clean()), ["", "", "", "0-1"]);
    assert_eq!(kinds(&TopologyTree::with_cores(2).read_clean()), ["", "", "", "0-1"]);
}
