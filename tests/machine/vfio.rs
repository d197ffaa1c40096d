//! Functions that are passed on whole: a virtual function of the network card changes its driver for a claim, and back.

use crate::guest::Guest;

const FUNCTION: &str = "/sys/bus/pci/devices/0000:01:10.0";

fn with_functions() -> Guest {
    let mut guest = Guest::boot();
    guest.configure("[backends.fpga]\nvfio = [\"8086:10ca\"]\n");
    guest.ok("echo 2 >/sys/bus/pci/devices/0000:01:00.0/sriov_numvfs");
    guest.start_daemon();
    guest
}

fn driver(guest: &mut Guest, function: &str) -> String {
    guest.ok(&format!("basename $(readlink /sys/bus/pci/devices/{function}/driver || echo none)"))
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn a_function_is_handed_over_for_a_claim_and_given_back() {
    let mut guest = with_functions();
    assert_eq!(driver(&mut guest, "0000:01:10.0"), "igbvf");
    let claim = guest.claim("nic", &["fpga/vfio-0000-01-10-0"]);
    assert_eq!(driver(&mut guest, "0000:01:10.0"), "vfio-pci");
    let group = guest.ok(&format!("basename $(readlink {FUNCTION}/iommu_group)"));
    let nodes = guest.cdi_nodes(&claim);
    assert_eq!(nodes, ["/dev/vfio/vfio".to_owned(), format!("/dev/vfio/{group}")]);
    for node in nodes {
        guest.ok(&format!("test -c {node}"));
    }
    assert_eq!(driver(&mut guest, "0000:01:10.2"), "igbvf", "the other function is nobody's");

    guest.kill_daemon();
    guest.start_daemon();
    assert_eq!(driver(&mut guest, "0000:01:10.0"), "vfio-pci", "a restart takes nothing away");

    // Unbinding waits in the kernel for ever while somebody has the group open.
    guest.ok(&format!("(exec 4<>/dev/vfio/{group}; echo $$ >/run/user; exec sleep 1000) >/dev/null 2>&1 &"));
    guest.wait_for("the group to be open", |guest| {
        (guest.run(&format!("ls -l /proc/[0-9]*/fd | grep -q /dev/vfio/{group}")).code == 0).then_some(())
    });
    let refusal = guest.refused("hostler claim delete nic");
    assert!(refusal.contains("in use by") && refusal.contains("sleep"), "{refusal}");
    assert_eq!(driver(&mut guest, "0000:01:10.0"), "vfio-pci");
    guest.ok("kill $(pidof sleep)");
    guest.ok("hostler claim delete nic");
    assert_eq!(driver(&mut guest, "0000:01:10.0"), "igbvf");
    assert_eq!(guest.ok(&format!("cat {FUNCTION}/driver_override")), "(null)");
    guest.assert_alive();
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn a_function_that_goes_under_its_claim_is_unhealthy_and_its_claim_can_be_taken_back() {
    let mut guest = with_functions();
    guest.claim("nic", &["fpga/vfio-0000-01-10-0"]);
    guest.ok("echo 0 >/sys/bus/pci/devices/0000:01:00.0/sriov_numvfs");
    let absent = guest.wait_for("the function to be missed", |guest| {
        guest.known_device("fpga/vfio-0000-01-10-0").filter(|device| device["health"] != "Healthy")
    });
    assert_eq!(absent["holders"], serde_json::json!(["default/nic"]), "{absent:#}");
    guest.ok("hostler claim delete nic");
    assert_eq!(guest.known_device("fpga/vfio-0000-01-10-0"), None);
    guest.assert_alive();
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn a_card_that_is_passed_on_leaves_by_order_and_comes_back_with_a_rescan() {
    const CARD: &str = "fpga/vfio-0000-01-00-0";
    const PLACE: &str = "/sys/bus/pci/devices/0000:01:00.0";
    let mut guest = Guest::boot();
    guest.configure("[backends.fpga]\nvfio = [\"8086:10c9\"]\n");
    guest.start_daemon();
    let order = format!("hostler device detach {CARD} --remove");
    assert_eq!(driver(&mut guest, "0000:01:00.0"), "igb");
    let refusal = guest.refused(&format!("{order} --sanitize"));
    assert!(refusal.contains("its logic cannot be cleared from this host"), "{refusal}");

    let interface = guest.ok(&format!("ls {PLACE}/net"));
    guest.ok(&format!("ip link set {interface} up"));
    let refusal = guest.refused(&order);
    assert!(refusal.contains(&format!("its network interface {interface} is up; nothing is changed")), "{refusal}");
    guest.ok(&format!("ip link set {interface} down"));

    guest.ok(&format!("echo 2 >{PLACE}/sriov_numvfs"));
    let refusal = guest.refused(&order);
    assert!(refusal.contains("has virtual functions") && refusal.contains("nothing is changed"), "{refusal}");
    guest.ok(&format!("echo 0 >{PLACE}/sriov_numvfs"));

    guest.claim("nic", &[CARD]);
    assert_eq!(driver(&mut guest, "0000:01:00.0"), "vfio-pci");
    let refusal = guest.refused(&order);
    assert!(refusal.contains("is already prepared for claim") && refusal.contains("(default/nic)"), "{refusal}");
    guest.ok("hostler claim delete nic");
    assert_eq!(driver(&mut guest, "0000:01:00.0"), "igb");

    let would = guest.ok(&format!("{order} --dry-run"));
    guest.ok(&format!("test -e {PLACE}/driver"));
    let done = guest.ok(&order);
    assert_eq!(would.split_once("detached: ").unwrap().1, done.split_once("detached: ").unwrap().1);
    guest.ok(&format!("test ! -e {PLACE}"));
    guest.wait_for("the card to be missed", |guest| guest.known_device(CARD).is_none().then_some(()));
    guest.ok("echo 1 >/sys/bus/pci/rescan");
    guest.wait_for("the card to be noticed", |guest| guest.known_device(CARD));
    assert_eq!(driver(&mut guest, "0000:01:00.0"), "igb");
    guest.assert_alive();
}
