//! The memory of CXL cards, claimed whole: a region is made of it, handed over, and taken down again.

use serde_json::{Value, json};

use crate::{
    container::{Bound, Container},
    guest::Guest,
};

const CARD: &str = "memory-1001";

/// What the daemon says that a card's memory is used as.
fn used_as(guest: &mut Guest, card: &str) -> Value {
    guest.seen_device("cxl", card).expect("the card is there")["attributes"]["use"].clone()
}

/// No region, no committed decoder, no memory of the system on a node of its own.
fn assert_untouched(guest: &mut Guest, card: &str) {
    assert_eq!(used_as(guest, card), "none");
    assert_eq!(guest.ok("ls /sys/bus/cxl/devices | grep ^region || true"), "");
    assert_eq!(guest.ok("sort -u /sys/bus/cxl/devices/endpoint*/decoders_committed"), "0");
    assert_eq!(guest.ok("cat /sys/devices/system/node/has_memory"), "0-3");
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn a_card_is_a_device_for_one_claim_and_free_again_after_it() {
    let mut guest = Guest::with_daemon();
    let claim = guest.claim("train", &["cxl/memory-1001"]);
    assert_eq!(guest.cdi_nodes(&claim), ["/dev/dax0.0"]);
    guest.ok("test -c /dev/dax0.0");
    assert_eq!(guest.ok("cat /sys/bus/dax/devices/dax0.0/size"), "536870912");
    assert_eq!(guest.ok("cat /sys/devices/system/node/has_memory"), "0-3", "a device is no memory of the system");
    assert_eq!(used_as(&mut guest, CARD), "devDax");
    let refusal = guest.refused("hostler claim create other -d cxl/memory-1001");
    assert!(refusal.contains("default/train"), "{refusal}");

    guest.kill_daemon();
    guest.start_daemon();
    assert_eq!(guest.ok("hostler claim list -o json | grep -c prepared"), "1");

    // Somebody maps the device: its memory must not go.
    guest.ok("(exec 4<>/dev/dax0.0; exec sleep 1000) >/dev/null 2>&1 &");
    guest.wait_for("the device to be open", |guest| {
        (guest.run("ls -l /proc/[0-9]*/fd | grep -q /dev/dax0.0").code == 0).then_some(())
    });
    let refusal = guest.refused("hostler claim delete train");
    assert!(refusal.contains("dax0.0") && refusal.contains("sleep"), "{refusal}");
    guest.ok("kill $(pidof sleep)");
    guest.ok("hostler claim delete train");
    assert_untouched(&mut guest, CARD);
    guest.assert_alive();
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn a_card_is_a_node_of_memory_for_one_claim_and_free_again_after_it() {
    let mut guest = Guest::with_daemon();
    let claim = guest.claim_with("train", "cxl", CARD, &json!({"kind": "CxlConfig", "useAs": "systemRam"}));
    assert_eq!(used_as(&mut guest, CARD), "systemRam");
    assert_eq!(guest.ok("cat /sys/devices/system/node/has_memory"), "0-3,5");
    let zones = guest.ok("cat /sys/devices/system/node/node5/memory[0-9]*/valid_zones | sort -u");
    assert_eq!(zones, "Movable", "memory in any other zone may never be taken back");
    assert_eq!(guest.seen_device("memory", "node5"), None, "no byte is offered twice");
    let refusal = guest.refused("hostler claim create other -d cxl/node5,memory=64Mi");
    assert!(refusal.contains("default/train"), "{refusal}");

    let container = Container::with_claim(&mut guest, "train", &claim);
    // Node 0 is there for the kernel: without it, nothing that needs a pipe could run here.
    let bound = Bound { cpus: "0-5".into(), mems: "0,5".into() };
    assert_eq!(container.bound(&mut guest), bound);
    container.run(&mut guest, "test $(echo through a pipe | wc -w) = 3");
    guest.ok("mkdir /run/train/files; mount -t tmpfs -o mpol=bind:5 files /run/train/files");
    container.run(&mut guest, "dd if=/dev/zero of=/run/train/files/one bs=1M count=4");
    let pages = container.pages(&mut guest, "shmem");
    assert!(pages[&5] >= 4 << 20, "{pages:?}");

    guest.kill_daemon();
    guest.start_daemon();
    assert_eq!(container.bound(&mut guest), bound);

    container.kill(&mut guest);
    guest.ok("hostler claim delete train");
    assert_untouched(&mut guest, CARD);

    // What was left behind by the first claim does not harm the second.
    guest.claim("again", &["cxl/memory-1001"]);
    guest.ok("hostler claim delete again");
    assert_untouched(&mut guest, CARD);
    guest.assert_alive();
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn cards_below_a_switch_and_beside_each_other_are_claimed_apart() {
    let mut guest = Guest::with_daemon();
    for card in ["memory-1001", "memory-2002", "memory-3001"] {
        guest.claim(&format!("for-{card}"), &[&format!("cxl/{card}")]);
        assert_eq!(used_as(&mut guest, card), "devDax");
    }
    let refusal = guest.refused("hostler claim create persistent -d cxl/memory-2001");
    assert!(refusal.contains("volatile"), "{refusal}");
    for card in ["memory-2002", "memory-1001", "memory-3001"] {
        guest.ok(&format!("hostler claim delete for-{card}"));
        assert_eq!(used_as(&mut guest, card), "none");
    }
    assert_untouched(&mut guest, CARD);
    guest.assert_alive();
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn a_card_that_is_pulled_under_its_claim_is_unhealthy_and_its_claim_can_be_taken_back() {
    let mut guest = Guest::with_daemon();
    guest.plug(&json!({"driver": "cxl-type3", "bus": "rp1", "volatile-memdev": "v1", "id": "late", "sn": 0x4001}));
    guest.wait_for("the card to be noticed", |guest| guest.known_device("cxl/memory-4001"));
    guest.claim("train", &["cxl/memory-4001"]);
    guest.unplug("late");
    let absent = guest.wait_for("the card to be missed", |guest| {
        guest.known_device("cxl/memory-4001").filter(|device| device["health"] != "Healthy")
    });
    assert_eq!(absent["holders"], json!(["default/train"]), "{absent:#}");
    guest.ok("hostler claim delete train");
    assert_eq!(guest.known_device("cxl/memory-4001"), None);
    assert_untouched(&mut guest, CARD);
    guest.assert_alive();
}
