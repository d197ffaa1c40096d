//! NUMA nodes and their memory.

use std::{
    collections::BTreeMap,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use hostler_linux::memory_tiers;

use crate::tree::{CPU, NODE, TopologyTree, lists, only_warning};

/// Two CPUs in node 0, one in node 1.
fn two_nodes() -> TopologyTree {
    let tree = TopologyTree::with_cores(3);
    tree.file(&format!("{NODE}/online"), "0-1").file(&format!("{NODE}/possible"), "0-1");
    tree.node(0, "0-1", "10 21", 1024).node(1, "2", "21 10", 2048);
    tree
}

#[test]
fn distances_go_by_the_order_of_online_nodes_not_by_their_ids() {
    let tree = TopologyTree::with_cores(2);
    tree.file(&format!("{NODE}/online"), "8,250,252").file(&format!("{NODE}/possible"), "0-255");
    // The kernel begins with a space where node 0 is offline.
    tree.node(8, "0", " 10 40 80", 1024).node(250, "1", " 40 10 80", 1024).node(252, "", " 80 81 10", 1024);
    tree.node(0, "", "10", 0);
    let topology = tree.read_clean();
    assert_eq!(topology.nodes[&252].distances, BTreeMap::from([(8, 80), (250, 81), (252, 10)]));
    assert_eq!(topology.nodes.keys().copied().collect::<Vec<_>>(), [8, 250, 252]);
    assert_eq!((topology.cpus[&1].node, topology.possible_nodes.len()), (250, 256));
}

#[test]
fn nodes_without_cpus_or_without_memory_are_nodes() {
    let tree = two_nodes();
    tree.file(&format!("{NODE}/online"), "0-3").node(1, "2", "21 10 30 31", 0).node(0, "0-1", "10 21 30 31", 1024);
    tree.node(2, "", "30 30 10 31", 4096).node(3, "", "31 31 31 10", 0);
    tree.file(&format!("{NODE}/has_generic_initiator"), "3");
    let topology = tree.read_clean();
    assert_eq!(lists(topology.nodes.values().map(|node| &node.cpus)), ["0-1", "2", "", ""]);
    let memory: Vec<_> = topology.nodes.values().map(|node| node.memory_bytes).collect();
    assert_eq!(memory, [Some(1 << 20), Some(0), Some(4 << 20), Some(0)]);
    assert_eq!(
        topology.nodes.values().map(|node| node.generic_initiator).collect::<Vec<_>>(),
        [false, false, false, true]
    );
    assert_eq!(topology.nodes[&2].free_bytes, Some(2 << 20));
}

#[test]
fn cpus_that_are_offline_are_in_no_node() {
    let tree = two_nodes();
    tree.node(1, "2-7", "21 10", 2048);
    assert_eq!(lists(tree.read_clean().nodes.values().map(|node| &node.cpus)), ["0-1", "2"]);
}

#[test]
fn a_cpu_in_two_nodes_stays_in_the_first() {
    let tree = two_nodes();
    tree.node(1, "1-2", "21 10", 2048);
    let topology = tree.read();
    assert_eq!(lists(topology.nodes.values().map(|node| &node.cpus)), ["0-1", "2"]);
    assert_eq!(only_warning(&topology).0, "/sys/devices/system/node/node1/cpulist");
}

#[test]
fn a_cpu_that_no_node_lists_is_where_its_folder_says() {
    let tree = two_nodes();
    tree.node(0, "0", "10 21", 1024).folder(&format!("{CPU}/cpu1/node1"));
    let topology = tree.read();
    assert_eq!(
        (topology.cpus[&1].node, lists(topology.nodes.values().map(|node| &node.cpus))),
        (1, vec!["0".into(), "1-2".into()])
    );
    assert_eq!(only_warning(&topology).0, "/sys/devices/system/node/node1");
    // An offline node takes it away from all others.
    let tree = two_nodes();
    tree.node(0, "0", "10 21", 1024).folder(&format!("{CPU}/cpu1/node7"));
    let topology = tree.read();
    assert_eq!((topology.cpus[&1].node, topology.nodes.contains_key(&7)), (7, false));
    assert_eq!(only_warning(&topology).0, "/sys/devices/system/node/node7");
    // No word at all: somewhere it must be.
    let tree = two_nodes();
    tree.node(0, "0", "10 21", 1024);
    let topology = tree.read();
    assert_eq!((topology.cpus[&1].node, only_warning(&topology).0), (0, "/sys/devices/system/node/node0"));
}

#[test]
fn a_row_of_another_length_gives_no_distances() {
    let tree = two_nodes();
    tree.node(1, "2", "21 10 21", 2048);
    let topology = tree.read();
    assert!(topology.nodes[&1].distances.is_empty());
    assert_eq!(topology.nodes[&0].distances[&1], 21);
    assert_eq!(only_warning(&topology).0, "/sys/devices/system/node/node1/distance");
}

#[test]
fn an_online_node_without_attributes_is_kept_and_reported() {
    let tree = two_nodes();
    tree.file(&format!("{NODE}/online"), "0-2").node(0, "0-1", "10 21 40", 8).node(1, "2", "21 10 40", 8);
    let topology = tree.read();
    assert_eq!((topology.nodes.len(), topology.nodes[&2].memory_bytes), (3, None));
    assert_eq!(only_warning(&topology).0, "/sys/devices/system/node/node2");
}

#[test]
fn attributes_of_a_node_may_be_absent() {
    let tree = two_nodes();
    for file in ["meminfo", "distance", "cpulist"] {
        tree.remove(&format!("{NODE}/node1/{file}"));
    }
    tree.file(&format!("{NODE}/node1/cpumap"), "00000004");
    let topology = tree.read_clean();
    let node = &topology.nodes[&1];
    assert_eq!((node.cpus.to_string().as_str(), node.memory_bytes, node.distances.len()), ("2", None, 0));
}

#[test]
fn performance_for_cpus_comes_before_that_for_devices() {
    let tree = two_nodes();
    for (class, initiator, bandwidth, latency) in [(0, 4, "400000", "8"), (1, 0, "131072", "26")] {
        let folder = format!("{NODE}/node1/access{class}/initiators");
        tree.folder(&format!("{folder}/node{initiator}")).file(&format!("{folder}/read_bandwidth"), bandwidth);
        tree.file(&format!("{folder}/write_bandwidth"), "0").file(&format!("{folder}/read_latency"), latency);
    }
    let access = tree.read_clean().nodes.remove(&1).unwrap().access.unwrap();
    assert_eq!((access.class, access.initiators.to_string().as_str()), (1, "0"));
    assert_eq!((access.read_bandwidth, access.read_latency), (Some(131_072), Some(26)));
    // Zero and absent both mean that nobody knows.
    assert_eq!((access.write_bandwidth, access.write_latency), (None, None));
}

#[test]
fn class_zero_serves_where_class_one_says_nothing() {
    let tree = two_nodes();
    tree.file(&format!("{NODE}/node1/access1/initiators/read_bandwidth"), "0");
    tree.file(&format!("{NODE}/node1/access0/initiators/read_bandwidth"), "500");
    tree.folder(&format!("{NODE}/node0/access0/targets/node1")).folder(&format!("{NODE}/node0/access0/initiators"));
    let topology = tree.read_clean();
    let access = topology.nodes[&1].access.as_ref().unwrap();
    assert_eq!((access.class, access.read_bandwidth, access.initiators.len()), (0, Some(500), 0));
    assert_eq!(topology.nodes[&0].access, None);
}

#[test]
fn memory_side_caches_and_tiers_are_read() {
    let tree = two_nodes();
    for (index, size) in [(1, "1048576"), (2, "2097152"), (10, "4194304")] {
        tree.file(&format!("{NODE}/node1/memory_side_cache/index{index}/size"), size);
    }
    tree.file(&format!("{NODE}/node1/memory_side_cache/index1/line_size"), "64");
    tree.folder(&format!("{NODE}/node1/memory_side_cache/index3"));
    tree.file("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0");
    tree.file("sys/devices/virtual/memory_tiering/memory_tier22/nodelist", "1");
    let topology = tree.read_clean();
    let caches = &topology.nodes[&1].memory_side_caches;
    assert_eq!(
        caches.iter().map(|cache| (cache.level, cache.size_bytes >> 20)).collect::<Vec<_>>(),
        [(1, 1), (2, 2), (10, 4)]
    );
    assert_eq!((caches[0].line_bytes, caches[1].line_bytes), (Some(64), None));
    assert_eq!((topology.nodes[&0].tier, topology.nodes[&1].tier), (Some(4), Some(22)));
}

/// The kernel would keep both for ever.
#[test]
fn tiers_are_not_read_while_memory_goes_offline() {
    let tree = two_nodes();
    tree.file("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0-1");
    let going = memory_tiers::going_offline();
    thread::scope(|scope| {
        let (tiers_tx, tiers_rx) = mpsc::channel();
        let tree = &tree;
        scope.spawn(move || tiers_tx.send(tree.read_clean().nodes[&1].tier));
        assert_eq!(tiers_rx.recv_timeout(Duration::from_millis(200)), Err(RecvTimeoutError::Timeout));
        drop(going);
        assert_eq!(tiers_rx.recv_timeout(Duration::from_secs(30)), Ok(Some(4)));
    });
}

#[test]
fn the_memory_of_a_gpu_is_marked() {
    let tree = nodes_without_cpus();
    let status = "proc/driver/nvidia/gpus/0004:04:00.0/numa_status";
    tree.file(status, "Node:                    1\nStatus:                  online\nSize:        0x400000000");
    tree.file("proc/driver/nvidia/gpus/0035:03:00.0/numa_status", "Node:        -1\nStatus:       driver not loaded");
    tree.folder("proc/driver/nvidia/gpus/0035:04:00.0");
    let topology = tree.read_clean();
    assert_eq!((topology.nodes[&1].gpu.as_deref(), &topology.nodes[&0].gpu), (Some("0004:04:00.0"), &None));
}

/// Node 0 has the CPUs, 1 and 2 have memory alone, and 2 is that of a dax device.
fn nodes_without_cpus() -> TopologyTree {
    let tree = TopologyTree::with_cores(2);
    tree.file(&format!("{NODE}/online"), "0-2").node(0, "0-1", "10 20 20", 1 << 20);
    tree.node(1, "", "20 10 20", 1 << 20).node(2, "", "20 20 10", 1 << 20);
    tree.file("sys/bus/dax/devices/dax0.0/target_node", "2");
    tree
}

#[test]
fn memory_that_may_be_a_gpus_is_marked_where_its_driver_does_not_say() {
    const STATUS: &str = "proc/driver/nvidia/gpus/0004:04:00.0/numa_status";
    for status in [None, Some(""), Some("Node:   many"), Some("Node:   0"), Some("garbage")] {
        let tree = nodes_without_cpus();
        tree.folder("proc/driver/nvidia/gpus/0004:04:00.0");
        if let Some(text) = status {
            tree.file(STATUS, text);
        }
        let topology = tree.read();
        let gpus: Vec<_> = topology.nodes.values().map(|node| node.gpu.as_deref()).collect();
        assert_eq!(gpus, [None, Some("0004:04:00.0"), None], "{status:?}");
        let (path, reason) = only_warning(&topology);
        assert_eq!(path, format!("/{STATUS}"));
        assert!(reason.contains("nodes 1 may be, and are not offered"), "{reason}");
    }
    // An x86 has no such file, and its nodes without CPUs are other memory.
    let tree = nodes_without_cpus();
    tree.folder("proc/driver/nvidia/gpus/0000:04:00.0").file("proc/cpuinfo", "flags : fpu lm");
    assert!(tree.read_clean().nodes.values().all(|node| node.gpu.is_none()));
}

#[test]
fn huge_pages_of_every_size_are_read_for_each_node() {
    let tree = two_nodes();
    let sizes = [("64", "5"), ("2048", "3"), ("524288", "0"), ("16777216", "1")];
    for (size, count) in sizes {
        let pool = format!("hugepages/hugepages-{size}kB");
        tree.file(&format!("{NODE}/node0/{pool}/nr_hugepages"), count);
        tree.file(&format!("{NODE}/node0/{pool}/free_hugepages"), "1")
            .file(&format!("{NODE}/node0/{pool}/surplus_hugepages"), "2");
        tree.folder(&format!("sys/kernel/mm/{pool}"));
    }
    tree.folder("sys/kernel/mm/hugepages/hugepages-32768kB");
    // Other names, and pools that cannot be read, are left out.
    tree.folder(&format!("{NODE}/node0/hugepages/uevent")).folder(&format!("{NODE}/node1/hugepages/hugepages-2048kB"));
    let topology = tree.read_clean();
    let pools = &topology.nodes[&0].huge_pages;
    assert_eq!(pools.keys().map(|size| size >> 10).collect::<Vec<_>>(), [64, 2048, 524_288, 16_777_216]);
    let pool = pools[&(2 << 20)];
    assert_eq!((pool.total, pool.free, pool.surplus), (3, 1, 2));
    assert!(topology.nodes[&1].huge_pages.is_empty());
    assert_eq!(
        topology.huge_page_sizes.iter().map(|size| size >> 10).collect::<Vec<_>>(),
        [64, 2048, 32768, 524_288, 16_777_216]
    );
}

#[test]
fn memory_blocks_have_a_hexadecimal_size_and_names_that_others_resemble() {
    let tree = two_nodes();
    let memory = "sys/devices/system/memory";
    tree.file(&format!("{memory}/block_size_bytes"), "10000000");
    for (block, node, state) in [(0, 0, "online"), (1, 0, "going-offline"), (32, 1, "offline")] {
        tree.file(&format!("{memory}/memory{block}/state"), state).folder(&format!("{NODE}/node{node}/memory{block}"));
    }
    tree.folder(&format!("{NODE}/node0/memory_side_cache")).folder(&format!("{NODE}/node0/memory_failure"));
    tree.folder(&format!("{memory}/memory_hotplug"));
    let blocks = tree.read_clean().memory_blocks.unwrap();
    assert_eq!((blocks.block_bytes, blocks.online, blocks.offline), (256 << 20, 1, 2));
    assert_eq!(blocks.by_node, BTreeMap::from([(0, 2), (1, 1)]));
}

#[test]
fn memory_blocks_that_make_no_sense_are_reported() {
    let tree = two_nodes();
    tree.file("sys/devices/system/memory/block_size_bytes", "128M");
    let topology = tree.read();
    assert_eq!(topology.memory_blocks, None);
    assert_eq!(only_warning(&topology).0, "/sys/devices/system/memory/block_size_bytes");
    tree.file("sys/devices/system/memory/block_size_bytes", "8000000").folder("sys/devices/system/memory/memory3");
    let topology = tree.read();
    assert_eq!(topology.memory_blocks.as_ref().map(|blocks| (blocks.online, blocks.offline)), Some((0, 0)));
    assert_eq!(only_warning(&topology).0, "/sys/devices/system/memory/memory3/state");
}

#[test]
fn a_file_that_is_there_and_cannot_be_read_is_not_taken_for_absent() {
    let tree = two_nodes();
    tree.folder(&format!("{NODE}/node1/meminfo"));
    let failure = tree.try_read().unwrap_err();
    assert_eq!(failure.to_string(), "failed to read /sys/devices/system/node/node1/meminfo");
}

#[test]
fn the_only_possible_node_has_the_memory_of_the_machine() {
    let tree = TopologyTree::with_cores(1);
    tree.file(&format!("{NODE}/online"), "0").file(&format!("{NODE}/possible"), "0").node(0, "0", "10", 1024);
    tree.file("proc/meminfo", "MemTotal:        4096 kB\nMemFree:         3000 kB");
    let memory = |tree: &TopologyTree| {
        let node = tree.read_clean().nodes.remove(&0).unwrap();
        (node.memory_bytes.unwrap() >> 10, node.free_bytes.unwrap() >> 10)
    };
    assert_eq!(memory(&tree), (4096, 3000));
    // A container's share of the machine.
    tree.file("proc/meminfo", "MemTotal:        1000 kB\nMemFree:         900 kB");
    assert_eq!(memory(&tree), (1024, 512));
    // Others may come, and may have had a part in the machine's memory.
    tree.file("proc/meminfo", "MemTotal:        4096 kB").file(&format!("{NODE}/possible"), "0-1");
    assert_eq!(memory(&tree), (1024, 512));
}

#[test]
fn an_amount_of_memory_that_is_garbage_is_warned_of() {
    let tree = two_nodes();
    let path = format!("{NODE}/node1/meminfo");
    for (text, reason) in [
        ("Node 1 MemTotal: much kB", "\"Node 1 MemTotal: much kB\" is not an amount in kB; taken as absent"),
        ("Node 1 MemTotal:", "\"Node 1 MemTotal:\" is not an amount in kB; taken as absent"),
        ("rubbish", "has no line MemTotal; taken as absent"),
    ] {
        tree.file(&path, text);
        let topology = tree.read();
        assert_eq!((topology.nodes[&1].memory_bytes, topology.nodes[&0].memory_bytes), (None, Some(1 << 20)));
        assert_eq!(only_warning(&topology), (&*format!("/{path}"), reason));
    }
    // Captures have an empty file where they keep something back.
    tree.file(&path, "");
    assert_eq!(tree.read_clean().nodes[&1].memory_bytes, None);
}
