//! Caches and who shares them.

use std::sync::Arc;

use hostler_linux::{testkit::AccessCounts, topology::Topology};

use crate::tree::{CPU, TopologyTree, only_warning};

/// Level, the first letter of the type, size in KiB and the CPUs of each cache.
fn shown(topology: &Topology) -> Vec<String> {
    let caches = topology.caches.iter();
    caches
        .map(|cache| {
            format!("{}{} {} {}", cache.level, &cache.cache_type[..1], cache.size_bytes.unwrap_or(0) >> 10, cache.cpus)
        })
        .collect()
}

#[test]
fn caches_are_keyed_by_who_shares_them_and_carry_their_ids() {
    let tree = TopologyTree::with_cores(4);
    for cpu in 0..4 {
        tree.cache(cpu, 0, (1, "Data", "48K"), &cpu.to_string());
        tree.cache(cpu, 1, (1, "Instruction", "32K"), &cpu.to_string());
        tree.cache(cpu, 2, (2, "Unified", "2M"), &cpu.to_string());
        tree.cache(cpu, 3, (3, "Unified", "32768K"), if cpu < 2 { "0-1" } else { "2-3" });
        tree.file(&format!("{CPU}/cpu{cpu}/cache/index0/id"), &cpu.to_string());
        tree.file(&format!("{CPU}/cpu{cpu}/cache/index3/id"), if cpu < 2 { "0" } else { "9" });
    }
    let topology = tree.read_clean();
    assert_eq!(shown(&topology)[..4], ["1D 48 0", "1D 48 1", "1D 48 2", "1D 48 3"]);
    assert_eq!(
        shown(&topology)[8..],
        ["2U 2048 0", "2U 2048 1", "2U 2048 2", "2U 2048 3", "3U 32768 0-1", "3U 32768 2-3"]
    );
    assert_eq!((topology.cpus[&1].l3, topology.cpus[&2].l3), (Some(12), Some(13)));
    assert_eq!((topology.caches[13].id, topology.caches[8].id), (Some(9), None));
}

#[test]
fn an_instruction_cache_may_span_more_cpus_than_the_data_cache() {
    let tree = TopologyTree::with_online("0-1");
    for cpu in 0..2 {
        tree.cpu(cpu, "0-1", "0-1").cache(cpu, 0, (1, "Data", "16K"), &cpu.to_string());
        tree.cache(cpu, 1, (1, "Instruction", "64K"), "0-1").cache(cpu, 2, (2, "Unified", "2M"), "0-1");
    }
    assert_eq!(shown(&tree.read_clean()), ["1D 16 0", "1D 16 1", "1I 64 0-1", "2U 2048 0-1"]);
}

#[test]
fn a_cpu_with_fewer_leaves_than_its_neighbour_is_read_by_level_not_by_position() {
    let tree = TopologyTree::with_cores(2);
    tree.cache(0, 0, (1, "Data", "32K"), "0").cache(0, 1, (1, "Instruction", "32K"), "0");
    tree.cache(0, 2, (3, "Unified", "8M"), "0-1");
    tree.cache(1, 0, (1, "Unified", "64K"), "1").cache(1, 1, (2, "Unified", "1M"), "1").cache(
        1,
        2,
        (3, "Unified", "8M"),
        "0-1",
    );
    assert_eq!(shown(&tree.read_clean()), ["1D 32 0", "1I 32 0", "1U 64 1", "2U 1024 1", "3U 8192 0-1"]);
}

#[test]
fn parts_of_a_cache_may_be_absent() {
    let tree = TopologyTree::with_cores(2);
    for cpu in 0..2 {
        tree.cache(cpu, 0, (1, "Data", "32K"), "0-1").cache(cpu, 1, (2, "Unified", "1M"), "0-1");
        tree.cache(cpu, 2, (3, "Unified", "8M"), "0-1");
        tree.remove(&format!("{CPU}/cpu{cpu}/cache/index0/level"));
        tree.remove(&format!("{CPU}/cpu{cpu}/cache/index1/shared_cpu_list"));
        tree.file(&format!("{CPU}/cpu{cpu}/cache/index1/shared_cpu_map"), "3");
        tree.remove(&format!("{CPU}/cpu{cpu}/cache/index2/size"));
    }
    assert_eq!(shown(&tree.read_clean()), ["2U 1024 0-1", "3U 0 0-1"]);
}

#[test]
fn a_cache_that_names_nobody_is_the_cpus_own_or_of_the_last_level_nobodys() {
    let tree = TopologyTree::with_cores(2);
    for cpu in 0..2 {
        tree.cache(cpu, 0, (2, "Unified", "1M"), "").cache(cpu, 1, (3, "Unified", "8M"), "");
        tree.remove(&format!("{CPU}/cpu{cpu}/cache/index0/shared_cpu_list"));
    }
    let topology = tree.read();
    assert_eq!(shown(&topology), ["2U 1024 0", "2U 1024 1"]);
    assert_eq!((topology.cpus[&0].l3, topology.cpus[&1].l3), (None, None));
    let [first, _] = &topology.warnings[..] else { panic!("{:?}", topology.warnings) };
    assert_eq!(first.path, "/sys/devices/system/cpu/cpu0/cache/index1/shared_cpu_list");
    assert!(
        first.reason.contains("does not name CPU 0 itself") && first.reason.contains("left out"),
        "{}",
        first.reason
    );
    // Without any file of sharers it is the same.
    for cpu in 0..2 {
        tree.remove(&format!("{CPU}/cpu{cpu}/cache/index1/shared_cpu_list"));
    }
    let topology = tree.read();
    assert_eq!((shown(&topology).len(), topology.warnings.len()), (2, 2));
}

#[test]
fn a_list_that_does_not_name_its_own_cpu_gives_way_to_the_map() {
    let tree = TopologyTree::with_cores(4);
    for cpu in 0..4 {
        tree.cache(cpu, 0, (1, "Data", "32K"), "").cache(cpu, 1, (3, "Unified", "8M"), "2");
        tree.file(&format!("{CPU}/cpu{cpu}/cache/index1/shared_cpu_map"), if cpu < 2 { "3" } else { "c" });
    }
    let topology = tree.read();
    assert_eq!(shown(&topology)[4..6], ["3U 8192 0-1", "3U 8192 2"]);
    let warning = &topology.warnings[1];
    assert_eq!(warning.path, "/sys/devices/system/cpu/cpu0/cache/index1/shared_cpu_list");
    assert_eq!(warning.reason, "does not name CPU 0 itself; shared_cpu_map is believed");
}

#[test]
fn a_leaf_that_is_not_there_hides_none_behind_it() {
    let tree = TopologyTree::with_cores(2);
    for cpu in 0..2 {
        tree.cache(cpu, 0, (1, "Data", "32K"), &cpu.to_string()).cache(cpu, 3, (3, "Unified", "8M"), "0-1");
        tree.cache(cpu, 41, (2, "Unified", "1M"), &cpu.to_string());
    }
    assert_eq!(shown(&tree.read_clean()), ["1D 32 0", "1D 32 1", "2U 1024 0", "2U 1024 1", "3U 8192 0-1"]);
}

#[test]
fn a_cache_of_no_known_kind_is_left_out_and_a_sharer_may_know_better() {
    let tree = TopologyTree::with_cores(2);
    for cpu in 0..2 {
        tree.cache(cpu, 0, (0, "Data", "32K"), "0-1").cache(cpu, 1, (900, "Unified", "8M"), "0-1");
        tree.cache(cpu, 2, (2, "unified", "1M"), "0-1").cache(cpu, 3, (3, "Unified", "8M"), "0-1");
    }
    tree.file(&format!("{CPU}/cpu1/cache/index2/type"), "Unified");
    let topology = tree.read();
    assert_eq!(shown(&topology), ["2U 1024 0-1", "3U 8192 0-1"]);
    let paths: Vec<&str> =
        topology.warnings.iter().map(|warning| warning.path.trim_start_matches("/sys/devices/system/cpu/")).collect();
    assert_eq!(
        paths,
        ["cpu0/cache/index0", "cpu0/cache/index1", "cpu0/cache/index2", "cpu1/cache/index0", "cpu1/cache/index1"]
    );
}

#[test]
fn sharers_that_contradict_each_other_stay_with_the_first() {
    let tree = TopologyTree::with_cores(3);
    tree.cache(0, 0, (3, "Unified", "8M"), "0-1").cache(1, 0, (3, "Unified", "8M"), "0-1");
    tree.cache(2, 0, (3, "Unified", "8M"), "1-2");
    let topology = tree.read();
    assert_eq!(shown(&topology), ["3U 8192 0-1", "3U 8192 2"]);
    assert_eq!(only_warning(&topology).0, "/sys/devices/system/cpu/cpu2/cache/index0/shared_cpu_list");
}

/// Three CPUs and a stronger one behind one L3 cache.
fn one_of_another_kind() -> TopologyTree {
    let tree = TopologyTree::with_cores(4);
    for cpu in 0..4 {
        let size = if cpu == 3 { "64K" } else { "32K" };
        tree.cache(cpu, 0, (1, "Data", size), &cpu.to_string()).cache(
            cpu,
            1,
            (1, "Instruction", "32K"),
            &cpu.to_string(),
        );
        tree.cache(cpu, 2, (3, "Unified", "8M"), "0-3");
    }
    tree
}

#[test]
fn the_first_cpu_behind_a_cache_tells_what_the_caches_of_those_like_it_are() {
    let tree = one_of_another_kind();
    let counts = Arc::new(AccessCounts::default());
    let topology = Topology::read(&tree.root().tapped(counts.clone())).unwrap();
    let expected =
        ["1D 32 0", "1D 32 1", "1D 32 2", "1D 64 3", "1I 32 0", "1I 32 1", "1I 32 2", "1I 32 3", "3U 8192 0-3"];
    assert_eq!((shown(&topology), &topology.warnings), (expected.map(str::to_owned).to_vec(), &Vec::new()));
    let levels: Vec<String> = counts
        .take()
        .into_keys()
        .map(|(_, path)| path.display().to_string())
        .filter(|path| path.ends_with("level"))
        .collect();
    let asked = ["cpu0/cache/index0", "cpu0/cache/index1", "cpu0/cache/index2", "cpu3/cache/index0"];
    assert_eq!(levels, asked.map(|folder| format!("{CPU}/{folder}/level")));
}

#[test]
fn a_cpu_whose_folders_are_in_another_order_is_asked_itself() {
    let tree = one_of_another_kind();
    // Sharers and sizes differ where kinds do, or it would not matter which is which.
    tree.cache(2, 0, (2, "Unified", "1M"), "2").cache(2, 1, (1, "Data", "48K"), "2");
    let topology = tree.read_clean();
    let of_third: Vec<String> = shown(&topology).into_iter().filter(|cache| cache.ends_with(" 2")).collect();
    assert_eq!(of_third, ["1D 48 2", "2U 1024 2"]);
}

#[test]
fn a_cpu_with_caches_that_its_first_sharer_does_not_list_is_read() {
    let tree = TopologyTree::with_cores(3);
    for cpu in 0..3 {
        tree.cache(cpu, 3, (3, "Unified", "8M"), "0-2");
    }
    tree.cache(1, 0, (1, "Data", "32K"), "1").cache(2, 1, (2, "Unified", "1M"), "2");
    assert_eq!(shown(&tree.read_clean()), ["1D 32 1", "2U 1024 2", "3U 8192 0-2"]);
}

#[test]
fn a_size_that_is_garbage_is_warned_of() {
    let tree = TopologyTree::with_cores(1);
    tree.cache(0, 0, (1, "Data", "much"), "0").cache(0, 1, (2, "Unified", ""), "0");
    let topology = tree.read();
    assert_eq!(shown(&topology), ["1D 0 0", "2U 0 0"]);
    let expected = "\"much\" is not a size such as 32K; taken as absent";
    assert_eq!(only_warning(&topology), ("/sys/devices/system/cpu/cpu0/cache/index0/size", expected));
}
