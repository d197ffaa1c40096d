//! Blocks of made-up trees, and who uses a made-up node.

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use nix::errno::Errno;

use super::*;
use crate::testkit::{AttributeFaults, MachineTree};

const GIB: u64 = 1 << 30;

/// Blocks of 128 MiB with these states, from number 110 on.
fn tree(states: &[&str]) -> MachineTree {
    let tree = MachineTree::new();
    tree.file("sys/devices/system/memory/block_size_bytes", "8000000");
    for (number, state) in (110..).zip(states) {
        let folder = format!("sys/devices/system/memory/memory{number}");
        tree.files(folder, &[("state", state), ("valid_zones", "Movable")]);
    }
    tree
}

fn blocks(tree: &MachineTree, start: u64, bytes: u64) -> Vec<u64> {
    let blocks = in_range(&tree.root(), PhysicalRange { start, bytes }).unwrap();
    blocks.into_iter().map(|block| block.number).collect()
}

#[test]
fn blocks_are_found_by_address_and_those_at_the_edge_belong_to_both_sides() {
    let tree = tree(&["online"; 6]);
    assert_eq!(blocks(&tree, 110 * 0x800_0000, GIB / 2), [110, 111, 112, 113]);
    assert_eq!(blocks(&tree, 114 * 0x800_0000, GIB), [114, 115]);
    assert_eq!(blocks(&tree, 111 * 0x800_0000 + 1, 0x800_0000), [111, 112]);
    assert_eq!(blocks(&tree, 111 * 0x800_0000, 0), [0; 0]);
    assert_eq!(blocks(&tree, u64::MAX - 1, 100), [0; 0]);
    let range = PhysicalRange { start: 0, bytes: u64::MAX };
    assert!(matches!(in_range(&tree.root(), range), Err(MemoryBlockError::Range { .. })));
}

#[test]
fn states_are_told_as_they_are() {
    let tree = tree(&["online", "offline", "going-offline", "poisoned"]);
    let found = in_range(&tree.root(), PhysicalRange { start: 110 * 0x800_0000, bytes: GIB }).unwrap();
    let states: Vec<BlockState> = found.iter().map(|block| block.state.clone()).collect();
    let other = BlockState::Other("poisoned".to_owned());
    assert_eq!(states, [BlockState::Online, BlockState::Offline, BlockState::GoingOffline, other]);
    assert_eq!(listed(&found), "memory110-113");
    assert_eq!(listed(&[found[0].clone(), found[2].clone()]), "memory110, memory112");
}

#[test]
fn a_state_that_cannot_be_read_is_not_taken_for_an_absent_block() {
    let tree = tree(&["offline", "offline"]);
    let range = PhysicalRange { start: 110 * 0x800_0000, bytes: GIB };
    for path in ["memory111/state", "block_size_bytes"] {
        let faults = Arc::new(AttributeFaults::default());
        faults.set(format!("sys/devices/system/memory/{path}"), Errno::EIO);
        let error = in_range(&tree.root().tapped(faults), range).unwrap_err();
        assert_eq!(error.to_string(), format!("failed to read /sys/devices/system/memory/{path}"));
    }
    tree.file("sys/devices/system/memory/block_size_bytes", "-1");
    assert!(matches!(in_range(&tree.root(), range), Err(MemoryBlockError::Size { .. })));
    assert!(
        in_range(&MachineTree::new().root(), range).is_err(),
        "a kernel without blocks knows nothing of what is online"
    );
}

#[test]
fn a_block_that_does_not_follow_is_not_believed() {
    let tree = tree(&["online", "offline"]);
    // Plain files hold what is written: `offline` is the state that was asked for, `online_movable` is none.
    offline(&tree.root(), 110).unwrap();
    offline(&tree.root(), 111).unwrap();
    let error = online_movable(&tree.root(), 111).unwrap_err();
    assert!(error.is_busy(), "{error}");
    assert!(is_movable(&tree.root(), 111).unwrap());
    let faults = Arc::new(AttributeFaults::default());
    faults.set("sys/devices/system/memory/memory111/state", Errno::EBUSY);
    assert!(matches!(offline(&tree.root().tapped(faults), 111), Err(MemoryBlockError::Read { .. })));
}

#[test]
fn users_of_a_node_are_named_the_largest_first() {
    let tree = MachineTree::new();
    tree.file("proc/12/comm", "small")
        .file("proc/12/numa_maps", "7f00 default file=/lib anon=3 N5=2 kernelpagesize_kB=4\n7f01 default N0=9 N5=1")
        .file("proc/13/comm", "large")
        .file("proc/13/numa_maps", "7f00 bind:5 huge anon=1 N5=3 kernelpagesize_kB=2048")
        .file("proc/14/comm", "elsewhere")
        .file("proc/14/numa_maps", "7f00 default anon=1 N50=3 N0=7 kernelpagesize_kB=4")
        .file("proc/meminfo", "no process");
    let pools = "sys/devices/system/node/node5/hugepages";
    tree.files(format!("{pools}/hugepages-2048kB"), &[("nr_hugepages", "8"), ("free_hugepages", "5")]);
    tree.files(format!("{pools}/hugepages-1048576kB"), &[("nr_hugepages", "0"), ("free_hugepages", "0")]);
    let found = users(&tree.root(), 5);
    let user = |pid, command: &str, kb: u64| MemoryUser { pid, command: command.to_owned(), bytes: kb * 1024 };
    let expected = NodeUsers {
        processes: vec![user(13, "large", 6144), user(12, "small", 12)],
        huge_pages: vec![HugePagePool { page_kb: 2048, pages: 8, free: 5 }],
        incomplete: false,
    };
    assert_eq!(found, expected);
    assert_eq!(users(&tree.root(), 6), NodeUsers::default());
}

/// The kernel would keep both for ever.
#[test]
fn a_block_does_not_go_offline_while_tiers_are_read() {
    let tree = tree(&["online"]);
    let reading = memory_tiers::reading();
    thread::scope(|scope| {
        let (done_tx, done_rx) = mpsc::channel();
        let root = tree.root();
        scope.spawn(move || done_tx.send(offline(&root, 110).is_ok()));
        assert_eq!(done_rx.recv_timeout(Duration::from_millis(200)), Err(RecvTimeoutError::Timeout));
        assert_eq!(
            in_range(&tree.root(), PhysicalRange { start: 110 * GIB / 8, bytes: 1 }).unwrap()[0].state,
            BlockState::Online
        );
        drop(reading);
        assert_eq!(done_rx.recv_timeout(Duration::from_secs(30)), Ok(true));
    });
}
