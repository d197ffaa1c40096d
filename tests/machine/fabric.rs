//! Cards that a fabric manager attaches to machines: from the claim to the container and back into the enclosure, with
//! deaths on the way, and from one machine to the other.

use hostler_testing::redfish::PlayedWrite;
use serde_json::json;

use crate::{
    container::Container,
    rack::{Rack, node},
};

/// Waits for a pod's node and prepares its claim there; a container writes these words into the card.
fn use_card(rack: &mut Rack, pod: &str, words: &str) -> (u32, Container) {
    let at = rack.until_bound(pod);
    rack.kubelet(at, "prepare", pod);
    let uid = rack.claim_uid(pod);
    let machine = rack.machine(at);
    let nodes = machine.ok("cat /sys/devices/system/node/has_memory");
    assert_eq!(nodes, "0-1", "the card is a node of memory");
    let container = Container::with_claim(machine, pod, &uid);
    assert_eq!(container.bound(machine).mems, "0-1");
    machine.ok(&format!("mkdir /run/{pod}/files; mount -t tmpfs -o mpol=bind:1 files /run/{pod}/files"));
    container.run(machine, &format!("yes {words} | head -c 1000000 >/run/{pod}/files/one"));
    assert!(rack.is_in_card(0, words), "they are written into the card");
    (at, container)
}

fn end_container(rack: &mut Rack, at: u32, pod: &str, container: Container) {
    container.kill(rack.machine(at));
    rack.machine(at).ok(&format!("umount /run/{pod}/files"));
    rack.kubelet(at, "unprepare", pod);
}

/// No region, no memory of the system on a node of its own, no card.
fn assert_gone(rack: &mut Rack, at: u32) {
    rack.until("the card is out of the machine", |rack| {
        (rack.machine(at).ok("ls /sys/bus/cxl/devices | grep -E '^(region|mem)' || true").is_empty()).then_some(())
    });
    assert_eq!(rack.machine(at).ok("cat /sys/devices/system/node/has_memory"), "0");
    rack.machine(at).assert_alive();
}

#[test]
#[ignore = "needs emulated machines: make test-fabric"]
fn a_card_goes_from_one_machine_to_the_other_and_no_byte_with_it() {
    let mut rack = Rack::boot(2, 1);
    rack.create_pod("first", None);
    let (at, container) = use_card(&mut rack, "first", "SECRET-OF-THE-FIRST");
    let other = 1 - at;
    rack.create_pod("second", Some(other));
    end_container(&mut rack, at, "first", container);
    rack.delete_pod("first");
    rack.until("the card is the second pod's", |rack| {
        (rack.attachment(0)["spec"]["nodeName"] == node(other)).then_some(())
    });
    assert!(!rack.is_in_card(0, "SECRET-OF-THE-FIRST"), "a byte of the first tenant is left");
    assert_gone(&mut rack, at);
    let (second, container) = use_card(&mut rack, "second", "SECRET-OF-THE-SECOND");
    assert_eq!(second, other);
    assert!(!rack.is_in_card(0, "SECRET-OF-THE-FIRST"));
    end_container(&mut rack, other, "second", container);
    rack.delete_pod("second");
    let detached = rack.until_phase(0, "Detached");
    assert_eq!(detached["status"]["used"], json!(null), "{detached:#}");
    assert!(!rack.is_in_card(0, "SECRET-OF-THE-SECOND"), "a byte of the second tenant is left");
    assert_gone(&mut rack, other);
    rack.assert_no_right_is_missing();
}

#[test]
#[ignore = "needs emulated machines: make test-fabric"]
fn a_card_comes_and_goes_whatever_dies_meanwhile() {
    let mut rack = Rack::boot(1, 1);
    // The manager does not answer, the controller dies over it, and the daemon before the card comes.
    rack.manager.set(|knobs| knobs.writes = [PlayedWrite::Hang].into());
    rack.create_pod("train", None);
    rack.until("the manager was asked", |rack| (rack.manager.count("POST") == 1).then_some(()));
    rack.kill_controller();
    rack.machine(0).kill_daemon();
    rack.start_controller();
    rack.until_phase(0, "Attached");
    rack.until("the kernel has the card", |rack| {
        (rack.machine(0).run("ls /sys/bus/cxl/devices/mem0").code == 0).then_some(())
    });
    rack.machine(0).start_daemon();
    let (at, container) = use_card(&mut rack, "train", "SECRET-OF-TRAIN");

    rack.machine(0).kill_daemon();
    rack.machine(0).start_daemon();
    end_container(&mut rack, at, "train", container);
    rack.delete_pod("train");
    rack.until_phase(0, "Releasing");
    rack.machine(0).kill_daemon();
    rack.kill_controller();
    rack.machine(0).start_daemon();
    rack.manager.set(|knobs| knobs.writes = [PlayedWrite::EndAfter].into());
    rack.start_controller();
    let detached = rack.until_phase(0, "Detached");
    assert_eq!(detached["status"]["used"], json!(null), "{detached:#}");
    assert!(!rack.is_in_card(0, "SECRET-OF-TRAIN"), "a byte of the tenant is left");
    assert_gone(&mut rack, 0);
}

#[test]
#[ignore = "needs emulated machines: make test-fabric"]
fn the_card_of_a_machine_without_power_is_erased_before_the_next_tenant_has_it() {
    let mut rack = Rack::boot(2, 1);
    rack.create_pod("first", Some(0));
    let (at, _container) = use_card(&mut rack, "first", "SECRET-OF-THE-FIRST");
    assert_eq!(at, 0);
    rack.power_off(0);
    rack.delete_pod("first");
    rack.create_pod("second", Some(1));
    rack.until_phase(0, "Releasing");
    assert_eq!(rack.manager.connections().len(), 1, "nothing is detached under a kernel that may use it");
    assert!(rack.is_in_card(0, "SECRET-OF-THE-FIRST"));
    rack.server.delete("nodes", &node(0));
    let ready = rack.until_phase(0, "Ready");
    assert_eq!((&ready["spec"]["nodeName"], &ready["spec"]["erase"]), (&json!("n1"), &json!(true)), "{ready:#}");
    assert_eq!(ready["status"]["node"]["erased"], "Sanitize", "{ready:#}");
    assert!(!rack.is_in_card(0, "SECRET-OF-THE-FIRST"), "a byte of the first tenant is left");
    let (at, container) = use_card(&mut rack, "second", "SECRET-OF-THE-SECOND");
    assert_eq!(at, 1);
    end_container(&mut rack, 1, "second", container);
    rack.delete_pod("second");
    rack.until_phase(0, "Detached");
    assert!(!rack.is_in_card(0, "SECRET-OF-THE-SECOND"), "a byte of the second tenant is left");
    assert_gone(&mut rack, 1);
}

#[test]
#[ignore = "needs emulated machines: make test-fabric"]
fn a_card_with_persistent_memory_is_overwritten() {
    let mut rack = Rack::boot(1, 1);
    rack.have_lasting_memory = true;
    rack.create_pod("train", None);
    let (at, container) = use_card(&mut rack, "train", "SECRET-OF-TRAIN");
    end_container(&mut rack, at, "train", container);
    rack.delete_pod("train");
    let detached = rack.until_phase(0, "Detached");
    let status = &detached["status"];
    assert_eq!((&status["used"], &status["node"]["erased"]), (&json!(null), &json!("Overwrite")), "{detached:#}");
    assert!(!rack.is_in_card(0, "SECRET-OF-TRAIN"), "a byte of the tenant is left");
    assert_gone(&mut rack, at);
}

#[test]
#[ignore = "needs emulated machines: make test-fabric"]
fn memory_that_is_made_for_a_claim_goes_to_another_card_and_no_byte_with_it() {
    let mut rack = Rack::boot_shared(2, 2);
    let ask = |card: u32, mib: u32| {
        let serial = format!("device.attributes['hostler.dev'].serial == '0x4c1d9600000000{card:02x}'");
        json!({"capacity": {"requests": {"memory": format!("{mib}Mi")}}, "selectors": [{"cel": {"expression": serial}}]})
    };
    rack.ask = ask(0, 200);
    rack.create_pod("first", None);
    let (at, container) = use_card(&mut rack, "first", "SECRET-OF-THE-FIRST");
    let ready = rack.attachment(0);
    assert_eq!(ready["spec"]["memory"], (200_u32 << 20).to_string(), "{ready:#}");
    // All of the memory is the first one's, so there is nothing that the other card could have.
    rack.ask = ask(1, 1);
    rack.create_pod("second", Some(1 - at));
    end_container(&mut rack, at, "first", container);
    assert_eq!(rack.attachment(1), json!(null), "the memory is given twice");
    rack.delete_pod("first");
    let (other, container) = use_card(&mut rack, "second", "SECRET-OF-THE-SECOND");
    assert_eq!(other, 1 - at);
    assert!(!rack.is_in_card(1, "SECRET-OF-THE-FIRST"), "a byte of the first tenant is left");
    end_container(&mut rack, other, "second", container);
    rack.delete_pod("second");
    rack.until("the memory is given back", |rack| {
        let chunks = rack.manager.document("/redfish/v1/Chassis/Pool/MemoryDomains/0/MemoryChunks").unwrap();
        chunks["Members"].as_array().unwrap().is_empty().then_some(())
    });
    assert!(!rack.is_in_card(1, "SECRET-OF-THE-SECOND"), "a byte of the second tenant is left");
    assert_gone(&mut rack, other);
    rack.assert_no_right_is_missing();
}
