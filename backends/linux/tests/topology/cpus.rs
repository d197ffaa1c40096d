//! CPUs and their groups, on machines of every kind and age.

use std::{fs, path::Path};

use hostler_linux::IdSet;
use proptest::prelude::*;

use crate::tree::{CPU, NODE, TopologyTree, lists, only_warning};

#[test]
fn an_empty_tree_gives_nothing_and_a_warning() {
    let topology = TopologyTree::new().read();
    assert_eq!((topology.cpus.len(), topology.nodes.len(), topology.packages.len()), (0, 0, 0));
    assert_eq!(only_warning(&topology).0, "/sys/devices/system/cpu");
}

#[test]
fn an_s390_with_drawers_and_books_and_no_nodes_is_read() {
    let tree = TopologyTree::with_online("0-7");
    for cpu in 0..8 {
        let topology = format!("{CPU}/cpu{cpu}/topology");
        let pair = format!("{}-{}", cpu / 2 * 2, cpu / 2 * 2 + 1);
        let half = if cpu < 4 { "0-3" } else { "4-7" };
        tree.file(&format!("{topology}/thread_siblings_list"), &pair)
            .file(&format!("{topology}/core_siblings_list"), half);
        tree.file(&format!("{topology}/book_siblings_list"), half)
            .file(&format!("{topology}/drawer_siblings_list"), "0-7");
        tree.file(&format!("{topology}/physical_package_id"), if cpu < 4 { "0" } else { "1" });
        tree.file(&format!("{topology}/book_id"), if cpu < 4 { "2" } else { "4" });
        tree.file(&format!("{topology}/drawer_id"), "1").file(&format!("{CPU}/cpu{cpu}/polarization"), "horizontal");
    }
    tree.file("proc/meminfo", "MemTotal:        4096 kB\nMemFree:         1024 kB");
    tree.file("sys/kernel/mm/hugepages/hugepages-1024kB/nr_hugepages", "7");
    tree.file(
        "proc/cpuinfo",
        "vendor_id       : IBM/S390\n# processors    : 8\nprocessor 0: version = FF,  identification = 0133E8,  machine = 8561",
    );
    let topology = tree.read_clean();
    assert_eq!((topology.packages.len(), topology.cores.len()), (2, 4));
    assert_eq!(topology.books.iter().map(|book| book.id).collect::<Vec<_>>(), [Some(2), Some(4)]);
    assert_eq!(lists(topology.drawers.iter().map(|drawer| &drawer.cpus)), ["0-7"]);
    assert_eq!((topology.arch.as_deref(), topology.cpu_model.as_deref()), (Some("s390x"), Some("IBM machine 8561")));
    let node = &topology.nodes[&0];
    assert_eq!(
        (node.cpus.to_string().as_str(), node.memory_bytes, node.free_bytes),
        ("0-7", Some(4 << 20), Some(1 << 20))
    );
    assert_eq!((node.huge_pages[&(1 << 20)].total, node.distances[&0]), (7, 10));
}

#[test]
fn a_ppc64_with_four_threads_and_nameless_packages_is_read() {
    let tree = TopologyTree::with_online("0-7");
    for cpu in 0..8 {
        let topology = format!("{CPU}/cpu{cpu}/topology");
        let core = if cpu < 4 { "0-3" } else { "4-7" };
        tree.file(&format!("{topology}/thread_siblings_list"), core)
            .file(&format!("{topology}/core_siblings_list"), core);
        tree.file(&format!("{topology}/physical_package_id"), "-1");
        tree.file(&format!("{topology}/core_id"), if cpu < 4 { "8" } else { "16" });
    }
    tree.file("proc/cpuinfo", "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz");
    tree.file(&format!("{NODE}/online"), "0").node(0, "0-7", "10", 1 << 20);
    tree.file(&format!("{NODE}/node0/hugepages/hugepages-16777216kB/nr_hugepages"), "1");
    let topology = tree.read_clean();
    assert_eq!(lists(topology.cores.iter().map(|core| &core.cpus)), ["0-3", "4-7"]);
    assert_eq!(topology.packages.iter().map(|package| package.id).collect::<Vec<_>>(), [None, None]);
    assert_eq!(topology.cpus[&5].core_id, Some(16));
    assert_eq!(
        (topology.arch.as_deref(), topology.cpu_model.as_deref()),
        (Some("ppc64"), Some("POWER9, altivec supported"))
    );
    assert_eq!(topology.huge_page_sizes, [16 << 30]);
}

#[test]
fn a_riscv_board_is_read() {
    let tree = TopologyTree::with_cores(4);
    for cpu in 0..4 {
        tree.file(&format!("{CPU}/cpu{cpu}/cpu_capacity"), "1024");
        tree.file(&format!("{CPU}/cpu{cpu}/topology/cluster_id"), "-1");
        tree.file(&format!("{CPU}/cpu{cpu}/topology/cluster_cpus_list"), "0-3");
    }
    tree.file(
        "proc/cpuinfo",
        "processor\t: 0\nhart\t\t: 2\nisa\t\t: rv64imafdc\nmmu\t\t: sv39\nuarch\t\t: sifive,u74-mc",
    );
    tree.file("proc/meminfo", "MemTotal: 8 kB");
    let topology = tree.read_clean();
    assert_eq!((topology.packages.len(), topology.cores.len(), topology.clusters.len()), (1, 4, 0));
    assert_eq!((topology.arch.as_deref(), topology.cpu_model.as_deref()), (Some("riscv64"), Some("sifive,u74-mc")));
    assert_eq!(topology.cpus[&3].capacity, Some(1024));
}

#[test]
fn a_uniprocessor_without_any_topology_is_one_core_of_one_package() {
    let tree = TopologyTree::with_online("0");
    tree.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: ARMv7 Processor rev 4 (v7l)\nCPU architecture: 7");
    tree.file("proc/meminfo", "MemTotal: 524288 kB");
    let topology = tree.read_clean();
    assert_eq!((topology.packages.len(), topology.cores.len(), topology.nodes.len()), (1, 1, 1));
    assert_eq!(topology.nodes[&0].memory_bytes, Some(512 << 20));
    assert_eq!((topology.arch.as_deref(), topology.smt_active), (Some("arm"), None));
}

#[test]
fn an_old_kernel_with_masks_only_and_no_online_list_is_read() {
    let tree = TopologyTree::new();
    for (cpu, mask) in [(0, "00000000,00000005"), (1, "00000000,0000000a"), (2, "00000000,00000005"), (3, "0000000a")] {
        let topology = format!("{CPU}/cpu{cpu}/topology");
        tree.file(&format!("{topology}/thread_siblings"), mask).file(&format!("{topology}/core_siblings"), "0000000f");
        tree.file(&format!("{topology}/physical_package_id"), "0");
    }
    // The boot CPU cannot be switched off and says nothing; the fifth is off, and has no topology.
    tree.file(&format!("{CPU}/cpu1/online"), "1").file(&format!("{CPU}/cpu4/online"), "0");
    tree.folder(&format!("{CPU}/cpufreq")).folder(&format!("{CPU}/cpuidle"));
    tree.file(&format!("{NODE}/node0/cpumap"), "00000000,00000005").file(&format!("{NODE}/node1/cpumap"), "0000001a");
    let topology = tree.read_clean();
    assert_eq!((topology.online.to_string(), topology.present.to_string()), ("0-3".to_owned(), "0-4".to_owned()));
    assert_eq!(topology.possible, topology.present);
    assert_eq!(lists(topology.cores.iter().map(|core| &core.cpus)), ["0,2", "1,3"]);
    assert_eq!(lists(topology.nodes.values().map(|node| &node.cpus)), ["0,2", "1,3"]);
    assert_eq!((topology.packages.len(), topology.nodes[&0].memory_bytes), (1, None));
}

#[test]
fn a_machine_whose_first_cpu_is_offline_is_read() {
    let tree = TopologyTree::with_cores(4);
    tree.file(&format!("{CPU}/online"), "1-3").file(&format!("{CPU}/possible"), "0-7");
    for file in ["core_cpus_list", "package_cpus_list", "physical_package_id", "core_id"] {
        tree.remove(&format!("{CPU}/cpu0/topology/{file}"));
    }
    // Stale masks still name the one that went.
    let topology = tree.read_clean();
    assert_eq!(lists(topology.packages.iter().map(|package| &package.cpus)), ["1-3"]);
    assert_eq!((topology.cores.len(), topology.possible.len()), (3, 8));
}

#[test]
fn threads_with_distant_numbers_are_one_core_and_equal_core_ids_are_not() {
    let tree = TopologyTree::with_online("0-7");
    for cpu in 0..8 {
        let package = if cpu % 2 == 0 { "0,2,4,6" } else { "1,3,5,7" };
        tree.cpu(cpu, &format!("{},{}", cpu % 4, cpu % 4 + 4), package);
    }
    let topology = tree.read_clean();
    assert_eq!(lists(topology.cores.iter().map(|core| &core.cpus)), ["0,4", "1,5", "2,6", "3,7"]);
    assert_eq!(lists(topology.packages.iter().map(|package| &package.cpus)), ["0,2,4,6", "1,3,5,7"]);
}

#[test]
fn isolation_and_the_tick_are_read_and_null_is_nothing() {
    let tree = TopologyTree::with_cores(4);
    tree.file(&format!("{CPU}/isolated"), "2-3").file(&format!("{CPU}/nohz_full"), "              (null)");
    tree.file(&format!("{CPU}/smt/active"), "0");
    let topology = tree.read_clean();
    assert_eq!(
        (topology.isolated.to_string(), topology.nohz_full, topology.smt_active),
        ("2-3".into(), IdSet::new(), Some(false))
    );
    tree.file(&format!("{CPU}/nohz_full"), "3").file(&format!("{CPU}/smt/active"), "1");
    let topology = tree.read_clean();
    assert_eq!((topology.nohz_full.to_string(), topology.smt_active), ("3".into(), Some(true)));
}

#[test]
fn a_boot_list_that_is_garbage_is_warned_of() {
    let tree = TopologyTree::with_cores(4);
    tree.file(&format!("{CPU}/isolated"), "all of them").file(&format!("{CPU}/nohz_full"), "");
    let topology = tree.read();
    assert_eq!((&topology.isolated, &topology.nohz_full), (&IdSet::new(), &IdSet::new()));
    let (path, reason) = only_warning(&topology);
    assert_eq!(path, "/sys/devices/system/cpu/isolated");
    assert!(reason.ends_with("taken as absent"), "{reason}");
}

#[test]
fn of_an_attribute_that_is_absent_the_older_name_serves() {
    let tree = TopologyTree::with_online("0-3");
    for cpu in 0..4 {
        let pair = if cpu < 2 { "0-1" } else { "2-3" };
        tree.cpu(cpu, pair, "0-3").file(&format!("{CPU}/cpu{cpu}/topology/thread_siblings_list"), pair);
        for file in ["core_cpus_list", "physical_package_id", "core_id"] {
            tree.remove(&format!("{CPU}/cpu{cpu}/topology/{file}"));
        }
    }
    tree.remove(&format!("{CPU}/online"));
    let topology = tree.read_clean();
    assert_eq!((topology.cpus.len(), topology.cores.len(), topology.packages.len()), (4, 2, 1));
    assert_eq!((topology.packages[0].id, topology.cpus[&0].core_id, topology.cpus[&0].capacity), (None, None, None));
}

#[test]
fn a_cpu_that_names_no_siblings_is_a_core_of_its_own() {
    let tree = TopologyTree::with_cores(3);
    tree.remove(&format!("{CPU}/cpu1/topology/core_cpus_list"));
    let topology = tree.read();
    assert_eq!(lists(topology.cores.iter().map(|core| &core.cpus)), ["0", "1", "2"]);
    assert_eq!(only_warning(&topology).0, "/sys/devices/system/cpu/cpu1/topology");
}

#[test]
fn masks_that_overlap_keep_the_first_group_and_name_the_file() {
    let tree = TopologyTree::with_cores(3);
    tree.cpu(0, "0-1", "0-2").cpu(1, "1-2", "0-2").cpu(2, "1-2", "0-2");
    let topology = tree.read();
    assert_eq!(lists(topology.cores.iter().map(|core| &core.cpus)), ["0-1", "2"]);
    let (path, reason) = only_warning(&topology);
    assert_eq!(path, "/sys/devices/system/cpu/cpu2/topology/core_cpus_list");
    assert!(reason.contains("CPUs 1"), "{reason}");
}

#[test]
fn a_mask_that_leaves_out_its_own_cpu_is_completed() {
    let tree = TopologyTree::with_cores(2);
    tree.cpu(0, "", "0-1").cpu(1, "1", "0-1");
    let topology = tree.read();
    assert_eq!(lists(topology.cores.iter().map(|core| &core.cpus)), ["0", "1"]);
    assert_eq!(only_warning(&topology).0, "/sys/devices/system/cpu/cpu0/topology/core_cpus_list");
}

#[test]
fn text_that_is_no_list_is_absent_and_named() {
    let tree = TopologyTree::with_cores(2);
    tree.file(&format!("{CPU}/online"), "all of them").file(&format!("{CPU}/cpu0/topology/core_id"), "first");
    let topology = tree.read();
    assert_eq!((topology.online.to_string().as_str(), topology.cpus[&0].core_id), ("0-1", None));
    let paths: Vec<&str> = topology.warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(paths, ["/sys/devices/system/cpu/cpu0/topology/core_id", "/sys/devices/system/cpu/online"]);
}

#[test]
fn architecture_and_model_are_told_as_the_document_says() {
    let document =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/inventory-json.md")).unwrap();
    let row = document.lines().find(|line| line.starts_with("| `arch` |")).unwrap();
    for (cpuinfo, arch, model) in [
        ("model name : Xeon\nflags : fpu lm", Some("x86_64"), Some("Xeon")),
        ("model name : Pentium III\nflags : fpu", Some("x86"), Some("Pentium III")),
        ("processor : 0\nCPU architecture: 8", Some("aarch64"), None),
        (
            "Processor : ARMv7 Processor rev 10 (v7l)\nCPU architecture: 7",
            Some("arm"),
            Some("ARMv7 Processor rev 10 (v7l)"),
        ),
        ("isa : rv64imafdc\nuarch : sifive,u74", Some("riscv64"), Some("sifive,u74")),
        ("isa : rv32imac", Some("riscv32"), None),
        (
            "cpu : PPC970MP, altivec supported\nrevision : 1.1 (pvr 0044 0101)",
            Some("ppc64"),
            Some("PPC970MP, altivec supported"),
        ),
        (
            "cpu : 7447A, altivec supported\nrevision : 0.5 (pvr 8003 0105)",
            Some("ppc"),
            Some("7447A, altivec supported"),
        ),
        ("cpu : e500mc\nrevision : 2.0 (pvr 8023 0020)", Some("ppc"), Some("e500mc")),
        ("ISA : loongarch32 loongarch64\nModel Name : Loongson-3A5000", Some("loongarch64"), Some("Loongson-3A5000")),
        ("Model Name : something new", None, Some("something new")),
        ("cpu : UltraSparc T2 (Niagara2)", None, None),
    ] {
        let tree = TopologyTree::with_cores(1);
        tree.file("proc/cpuinfo", cpuinfo);
        let topology = tree.read_clean();
        assert_eq!((topology.arch.as_deref(), topology.cpu_model.as_deref()), (arch, model), "{cpuinfo}");
        assert!(arch.is_none_or(|arch| row.contains(&format!("`{arch}`"))), "{row}");
    }
    // Both widths of Power number their CPUs.
    for (file, arch) in [("physical_id", None), ("purr", Some("ppc64"))] {
        let tree = TopologyTree::with_cores(1);
        tree.file(&format!("{CPU}/cpu0/{file}"), "0");
        assert_eq!(tree.read_clean().arch.as_deref(), arch, "{file}");
    }
}

#[test]
fn isolated_cpus_are_those_that_are_there() {
    let tree = TopologyTree::with_cores(2);
    tree.file(&format!("{CPU}/isolated"), "1-63").file(&format!("{CPU}/nohz_full"), "0,40");
    let topology = tree.read_clean();
    assert_eq!(lists([&topology.isolated, &topology.nohz_full]), ["1", "0"]);
}

#[test]
fn a_reason_is_short_however_long_the_text_is_that_it_quotes() {
    let tree = TopologyTree::with_cores(2);
    tree.file(&format!("{CPU}/cpu0/topology/core_id"), &"x".repeat(100_000));
    let topology = tree.read();
    let (_, reason) = only_warning(&topology);
    assert!(reason.len() < 600 && reason.ends_with("bytes in all)"), "{}", reason.len());
}

#[test]
fn dies_and_clusters_count_where_the_kernel_tells_them_apart() {
    let tree = TopologyTree::with_cores(4);
    for cpu in 0..4 {
        let (id, pair) = if cpu < 2 { ("0", "0-1") } else { ("7", "2-3") };
        let topology = format!("{CPU}/cpu{cpu}/topology");
        tree.file(&format!("{topology}/die_id"), id).file(&format!("{topology}/die_cpus_list"), pair);
        // Firmware without clusters makes one of each core.
        tree.file(&format!("{topology}/cluster_id"), "65535");
        tree.file(&format!("{topology}/cluster_cpus_list"), &cpu.to_string());
    }
    let topology = tree.read_clean();
    assert_eq!(topology.dies.iter().map(|die| die.id).collect::<Vec<_>>(), [Some(0), Some(7)]);
    assert_eq!((topology.cpus[&3].die, topology.clusters.len(), topology.cpus[&3].cluster), (Some(1), 0, None));
}

#[test]
fn frequencies_are_read_for_each_core() {
    let tree = TopologyTree::with_cores(2);
    tree.file(&format!("{CPU}/cpu0/cpufreq/cpuinfo_max_freq"), "5200000");
    tree.file(&format!("{CPU}/cpu1/cpufreq/cpuinfo_max_freq"), "5000000");
    let topology = tree.read_clean();
    let frequencies = [0, 1].map(|cpu| topology.cpus[&cpu].max_frequency_khz);
    assert_eq!(frequencies, [Some(5_200_000), Some(5_000_000)]);
}

fn some_set() -> impl Strategy<Value = String> {
    proptest::collection::btree_set(0..8_u32, 0..6).prop_map(|set| IdSet::from(set).to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn masks_that_contradict_each_other_at_random_give_a_sound_machine(
        online in some_set(),
        masks in proptest::collection::vec(some_set(), 32),
    ) {
        let tree = TopologyTree::with_online(&online);
        for (cpu, masks) in (0..).zip(masks.chunks(4)) {
            tree.cpu(cpu, &masks[0], &masks[1]);
            tree.cache(cpu, 0, (1, "Data", "32K"), &masks[2]).cache(cpu, 1, (3, "Unified", "8M"), &masks[3]);
            tree.node(cpu, &masks[(cpu % 4) as usize], "10 20", 1);
        }
        tree.file(&format!("{NODE}/online"), &masks[0]);
        // Reading checks that it is sound.
        prop_assert_eq!(tree.read().online.to_string(), online);
    }
}
