//! An operator's orders: memory of a card into the system for everybody, and a card out of the system; and orders that
//! the kernel would obey and the machine not survive.

use crate::{container::Container, guest::Guest};

const CARD: &str = "cxl/memory-1001";

/// The blocks of the card's memory with their states.
fn blocks(guest: &mut Guest) -> String {
    guest.ok("cd /sys/devices/system/node/node5; for block in memory[0-9]*; do echo $block $(cat $block/state); done")
}

fn use_of_card(guest: &mut Guest) -> String {
    let card = guest.seen_device("cxl", "memory-1001").expect("the card is there");
    card["attributes"]["use"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn memory_is_attached_for_everybody_and_detached_when_nobody_holds_it() {
    let mut guest = Guest::with_daemon();
    // Memory that the kernel would make its own at once could not be taken back.
    guest.ok("echo online_kernel >/sys/devices/system/memory/auto_online_blocks");
    guest.ok(&format!("hostler device attach {CARD}"));
    assert_eq!(use_of_card(&mut guest), "systemRam");
    let zones = guest.ok("cat /sys/devices/system/node/node5/memory[0-9]*/valid_zones | sort -u");
    assert_eq!(zones, "Movable");
    let node = guest.wait_for("the node to be offered", |guest| guest.known_device("cxl/node5"));
    assert_eq!(node["health"], "Healthy");
    assert_eq!(guest.seen_device("cxl", "node5").unwrap()["capacity"]["memory"]["value"], "536870912");

    let claim = guest.claim("part", &["cxl/node5,memory=64Mi"]);
    let container = Container::with_claim(&mut guest, "part", &claim);
    assert_eq!(container.bound(&mut guest).mems, "0,5");
    let refusal = guest.refused(&format!("hostler device detach {CARD}"));
    assert!(refusal.contains("default/part"), "{refusal}");
    let refusal = guest.refused(&format!("hostler claim create whole -d {CARD}"));
    assert!(refusal.contains("default/part") || refusal.contains("node5"), "{refusal}");
    container.kill(&mut guest);
    guest.ok("hostler claim delete part");

    // Pages that can move are moved: what is in a file there stays what it is. It is small, as every byte that is read
    // from emulated CXL memory takes microseconds.
    guest.ok("mkdir /run/files; mount -t tmpfs -o mpol=bind:5 files /run/files");
    guest.ok("dd if=/dev/urandom of=/run/files/one bs=64k count=16 2>/dev/null");
    let before = guest.ok("md5sum /run/files/one");
    guest.ok(&format!("hostler device detach {CARD}"));
    assert_eq!(guest.ok("md5sum /run/files/one"), before);
    assert_eq!(use_of_card(&mut guest), "none");
    assert_eq!(guest.ok("cat /sys/devices/system/node/has_memory"), "0-3");
    assert_eq!(guest.ok("sort -u /sys/bus/cxl/devices/endpoint*/decoders_committed"), "0");
    guest.wait_for("the node to be missed", |guest| guest.known_device("cxl/node5").is_none().then_some(()));
    guest.assert_alive();
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn memory_that_the_kernel_cannot_part_with_is_not_detached_and_the_machine_lives() {
    let mut guest = Guest::with_daemon();
    guest.ok(&format!("hostler device attach {CARD}"));
    let block = guest.ok("cd /sys/devices/system/node/node5; ls -d memory[0-9]* | head -n 1");
    let state = format!("/sys/devices/system/memory/{block}/state");
    guest.ok(&format!("echo offline >{state}; echo online_kernel >{state}"));
    // Folders in memory are objects of the kernel, and those stay where they are. A few: programs whose memory is a CXL
    // device's are slow under emulation.
    guest.ok("mkdir /sys/fs/cgroup/own; echo 5 >/sys/fs/cgroup/own/cpuset.mems; mkdir /tmp/own");
    guest.ok("cp /bin/busybox /run/busybox");
    guest.ok("/run/busybox sh -c 'echo $$ >/sys/fs/cgroup/own/cgroup.procs; cd /tmp/own; mkdir $(seq 1 40)'");
    let before = blocks(&mut guest);
    assert!(before.contains(&format!("{block} online")) && !before.contains("offline"), "{before}");

    for order in ["", "--sanitize --remove"] {
        let refusal = guest.refused(&format!("hostler device detach {CARD} {order}"));
        assert!(refusal.contains(&block) && refusal.contains("node 5 is used by"), "{refusal}");
        assert_eq!(blocks(&mut guest), before, "all memory is where it was");
        assert_eq!(use_of_card(&mut guest), "systemRam");
    }
    assert_eq!(guest.ok("cat /sys/bus/cxl/devices/region0/commit"), "1");
    assert_eq!(guest.ok("ls /tmp/own | wc -l"), "40");
    assert_eq!(guest.known_device(CARD).unwrap()["health"], "Healthy");
    guest.assert_alive();
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn a_card_is_erased_and_removed_by_order_and_comes_back_with_a_rescan() {
    let mut guest = Guest::with_daemon();
    guest.ok(&format!("hostler device attach {CARD}"));
    let said = guest.ok(&format!("hostler device detach {CARD} --sanitize --remove"));
    assert!(said.contains("erased") && said.contains("removed"), "{said}");
    guest.wait_for("the card to be missed", |guest| guest.known_device(CARD).is_none().then_some(()));
    guest.ok("test ! -e /sys/bus/pci/devices/0000:41:00.0");
    guest.ok("echo 1 >/sys/bus/pci/rescan");
    guest.wait_for("the card to be noticed", |guest| guest.known_device(CARD));
    guest.ok(&format!("hostler device attach {CARD}"));
    assert_eq!(use_of_card(&mut guest), "systemRam");
    guest.assert_alive();
}
