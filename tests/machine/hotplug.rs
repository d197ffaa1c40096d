//! Devices that come and go while the daemon runs. It looks by itself only once an hour here: what it notices within
//! seconds, the kernel has told it.

use std::time::Instant;

use serde_json::json;

use crate::guest::Guest;

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn a_memory_device_that_is_plugged_is_offered_and_one_that_is_unplugged_is_not() {
    let mut guest = Guest::with_daemon();
    assert_eq!(guest.known_device("cxl/memory-4001"), None);
    let start = Instant::now();
    let card = json!({"driver": "cxl-type3", "bus": "rp1", "volatile-memdev": "v1", "id": "late", "sn": 0x4001});
    guest.plug(&card);
    // A look may come before the kernel's driver has the card: then it is there, and is not healthy yet.
    guest.wait_for("the card to be noticed and healthy", |guest| {
        guest.known_device("cxl/memory-4001").filter(|card| card["health"] == "Healthy")
    });
    println!("healthy {:.1} s after it was plugged", start.elapsed().as_secs_f64());
    assert_eq!(guest.seen_device("cxl", "memory-4001").unwrap()["capacity"]["memory"]["value"], "536870912");

    // The slot waits five seconds for a change of mind.
    let start = Instant::now();
    guest.unplug("late");
    guest.wait_for("the card to be missed", |guest| guest.known_device("cxl/memory-4001").is_none().then_some(()));
    println!("missed {:.1} s after its button was pressed", start.elapsed().as_secs_f64());
    guest.assert_alive();
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn virtual_functions_are_offered_as_they_are_made() {
    let mut guest = Guest::boot();
    guest.configure("[backends.fpga]\nvfio = [\"8086:10ca\"]\n");
    guest.start_daemon();
    let names = |guest: &mut Guest| guest.known_names("fpga");
    assert_eq!(names(&mut guest), Vec::<String>::new());
    guest.ok("echo 2 >/sys/bus/pci/devices/0000:01:00.0/sriov_numvfs");
    let both = ["fpga/vfio-0000-01-10-0", "fpga/vfio-0000-01-10-2"];
    guest.wait_for("both functions to be noticed", |guest| (names(guest) == both).then_some(()));
    guest.ok("echo 0 >/sys/bus/pci/devices/0000:01:00.0/sriov_numvfs");
    guest.wait_for("both functions to be missed", |guest| names(guest).is_empty().then_some(()));
    guest.assert_alive();
}
