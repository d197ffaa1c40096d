//! Accelerators, and cards that no driver shows, by the capabilities in their configuration spaces.

use std::sync::Arc;

use hostler_backend::{Backend, Device, Enumeration, Health};
use hostler_linux::testkit::{
    AccessCounts, ConfigSpace, CxlCard, CxlHost, FakePciFunction, MachineTree, cxl_function, plug_node,
};

use super::{attribute, backend, device};
use crate::{CxlBackend, CxlBackendConfig, device::CxlDevice};

const GIB: u64 = 1 << 30;

fn scan(tree: &MachineTree) -> Enumeration {
    backend(&tree.root()).enumerate().unwrap()
}

fn nodes(device: &Device) -> Vec<&str> {
    device.edits.device_nodes.iter().map(|node| node.path.as_str()).collect()
}

fn reason(device: &Device) -> &str {
    device.health.reason().unwrap_or("healthy")
}

/// A type-2 accelerator with a driver that has made nodes, of which one is a mailbox.
fn working() -> (MachineTree, FakePciFunction) {
    let tree = MachineTree::new();
    let function =
        FakePciFunction { driver: Some("shiny".to_owned()), ..cxl_function("0000:21:00.0", 2, true, 16 * GIB) };
    function.plug(&tree);
    plug_node(&tree, &function, "drm/renderD128", "dri/renderD128", "226:128");
    plug_node(&tree, &function, "accel/accel0", "accel/accel0", "261:0");
    plug_node(&tree, &function, "mem0", "cxl/mem0", "251:0");
    (tree, function)
}

#[test]
fn an_accelerator_says_what_it_is_and_is_handed_over_by_the_nodes_of_its_driver() {
    let (tree, _) = working();
    let found = scan(&tree);
    let accelerator = device(&found.devices, "accelerator-0000-21-00-0");
    assert_eq!(found.devices.len(), 1);
    for (name, value) in [
        ("kind", "accelerator"),
        ("cxlType", "2"),
        ("cacheCapable", "true"),
        ("memCapable", "true"),
        ("cxlNegotiated", "true"),
        ("hdmRanges", "1"),
        ("linkSpeed", "32.0 GT/s PCIe"),
        ("linkWidth", "8"),
        ("linkWidthMax", "16"),
        ("vendor", "0x1234"),
        ("device", "0x0c02"),
        ("class", "0x120000"),
        ("serial", "0x12345678"),
        ("driver", "shiny"),
        ("resource.kubernetes.io/pciBusID", "0000:21:00.0"),
        ("resource.kubernetes.io/pcieRoot", "pci0000:21"),
    ] {
        assert_eq!(attribute(accelerator, name), value, "{name}");
    }
    assert_eq!(accelerator.capacity["hdm"].value.as_whole(), Some(16 * GIB));
    assert_eq!(accelerator.health, Health::Healthy);
    assert_eq!(nodes(accelerator), ["/dev/accel/accel0", "/dev/dri/renderD128"]);
}

#[test]
fn types_are_told_by_capability_whatever_the_class() {
    let tree = MachineTree::new();
    cxl_function("0000:21:00.0", 1, true, 0).plug(&tree);
    cxl_function("0000:22:00.0", 2, true, GIB).plug(&tree);
    cxl_function("0000:23:00.0", 3, true, GIB).plug(&tree);
    FakePciFunction::new("0000:24:00.0", 0x8086, 0x1234).plug(&tree);
    // A bridge has the capabilities of a port, and is never asked.
    FakePciFunction { class: 0x06_0400, ..cxl_function("0000:25:00.0", 1, true, 0) }.plug(&tree);
    let found = scan(&tree);
    let types: Vec<String> =
        found.devices.iter().map(|device| format!("{} {}", device.name, attribute(device, "cxlType"))).collect();
    assert_eq!(types, ["accelerator-0000-21-00-0 1", "accelerator-0000-22-00-0 2", "memory-12345678 3"]);
    let card = device(&found.devices, "memory-12345678");
    assert!(reason(card).contains("cxl_pci is not bound"), "{}", reason(card));
    assert!(reason(&found.devices[0]).starts_with("no driver is bound"), "{}", reason(&found.devices[0]));
}

#[test]
fn one_that_works_as_plain_pcie_is_unhealthy() {
    for kind in [1, 2, 3] {
        let tree = MachineTree::new();
        cxl_function("0000:21:00.0", kind, false, GIB).plug(&tree);
        let found = scan(&tree);
        assert!(reason(&found.devices[0]).contains("works as plain PCIe"), "{}", reason(&found.devices[0]));
    }
}

#[test]
fn what_is_configured_for_it_is_handed_over_through_vfio() {
    let (tree, _) = working();
    for text in ["0000:21:00.0", "1234:0c02"] {
        let config = CxlBackendConfig { vfio: vec![text.to_owned()], ..CxlBackendConfig::default() };
        let found = CxlBackend::new(tree.root(), config).enumerate().unwrap();
        let Some(CxlDevice::Accelerator { vfio, .. }) = CxlDevice::of(&found.devices[0]) else { panic!("{found:?}") };
        assert!(vfio, "{text}");
        assert_eq!((nodes(&found.devices[0]), reason(&found.devices[0])), (vec![], "healthy"));
    }
}

#[test]
fn what_is_bound_to_vfio_or_to_a_driver_of_fpgas_without_a_word_here_is_for_others() {
    let (tree, function) = working();
    let bound = |driver: &str| {
        tree.remove(function.folder());
        tree.remove("sys/bus/pci/devices/0000:21:00.0");
        FakePciFunction { driver: Some(driver.to_owned()), ..function.clone() }.plug(&tree);
        plug_node(&tree, &function, "vfio-dev/vfio0", "vfio/devices/vfio0", &format!("510:{}", driver.len()));
        scan(&tree).devices
    };
    let found = bound("vfio-pci");
    assert_eq!(nodes(&found[0]), Vec::<&str>::new());
    assert!(reason(&found[0]).contains("not named in backends.cxl.vfio"), "{}", reason(&found[0]));
    assert_eq!(bound("dfl-pci"), []);
}

#[test]
fn sleeping_functions_are_neither_woken_nor_forgotten() {
    let (tree, function) = working();
    let card = FakePciFunction { class: 0x05_0210, ..cxl_function("0000:31:00.0", 3, true, GIB) };
    card.plug(&tree);
    for function in [&function, &card] {
        tree.file(function.folder().join("power_state"), "D3cold");
    }
    let counts = Arc::new(AccessCounts::default());
    let backend = backend(&tree.root().tapped(counts.clone()));
    let found = backend.enumerate().unwrap();
    let touched = counts.take();
    let registers = ["config", "current_link_speed", "max_link_width"];
    assert!(touched.keys().all(|(_, path)| registers.iter().all(|name| !path.ends_with(name))), "{touched:?}");
    assert_eq!(found.devices.len(), 1);
    assert!(matches!(found.devices[0].health, Health::Unknown { .. }), "{found:?}");
    let set = |state| {
        for function in [&function, &card] {
            tree.file(function.folder().join("power_state"), state);
        }
        backend.enumerate().unwrap()
    };
    let names = |found: &Enumeration| found.devices.iter().map(|device| device.name.to_string()).collect::<Vec<_>>();
    let awake = names(&set("D0"));
    assert_eq!(awake, ["accelerator-0000-21-00-0", "memory-12345678"]);
    counts.take();
    assert_eq!(names(&set("D3hot")), awake);
    assert!(counts.take().keys().all(|(_, path)| !path.ends_with("config")));
}

#[test]
fn without_privileges_there_is_one_warning_and_only_where_there_may_be_cxl() {
    let tree = MachineTree::new();
    for slot in 1..9 {
        let mut function = cxl_function(&format!("0000:0{slot}:00.0"), 2, true, GIB);
        function.config.truncate(64);
        function.plug(&tree);
    }
    assert_eq!(scan(&tree), Enumeration::default());
    CxlHost::new(&tree).plug(&CxlCard::new(1));
    let found = scan(&tree);
    assert_eq!(found.warnings.len(), 1);
    assert!(found.warnings[0].reason.contains("CAP_SYS_ADMIN"), "{:?}", found.warnings);
    assert_eq!(found.devices.len(), 1);
}

#[test]
fn functions_that_are_none_of_cxl_are_asked_once() {
    let tree = MachineTree::new();
    let plain = FakePciFunction::new("0000:21:00.0", 0x8086, 0x1234);
    plain.plug(&tree);
    let counts = Arc::new(AccessCounts::default());
    let backend = backend(&tree.root().tapped(counts.clone()));
    let asked = || {
        backend.enumerate().unwrap();
        counts.take().keys().filter(|(_, path)| path.ends_with("config")).count()
    };
    assert_eq!([asked(), asked()], [1, 0]);
    // Another model in the same slot is another function.
    plain.pull(&tree);
    cxl_function("0000:21:00.0", 1, true, 0).plug(&tree);
    assert_eq!([asked(), asked()], [1, 1]);
}

#[test]
fn broken_configuration_spaces_make_no_devices() {
    let mut endless = ConfigSpace::new(0x1234, 1);
    endless.put(0x100, &[0x23, 0, 1, 0x10]);
    for config in [
        vec![],
        vec![0xff; 4096],
        vec![0; 256],
        endless.bytes(),
        cxl_function("0000:21:00.0", 1, true, 0).config[..0x108].to_vec(),
    ] {
        let tree = MachineTree::new();
        FakePciFunction { config, ..FakePciFunction::new("0000:21:00.0", 0x1234, 1) }.plug(&tree);
        assert_eq!(scan(&tree), Enumeration::default());
    }
}

#[test]
fn an_accelerator_whose_driver_makes_network_interfaces_works_without_a_node() {
    let tree = MachineTree::new();
    let function =
        FakePciFunction { driver: Some("sfc".to_owned()), ..cxl_function("0000:21:00.0", 2, true, 16 * GIB) };
    let folder = function.plug(&tree);
    let health = || device(&scan(&tree).devices, "accelerator-0000-21-00-0").health.clone();
    assert!(health().reason().unwrap_or_default().contains("its driver sfc has made no device node"));
    tree.folder(folder.join("net/enp33s0f0np0"));
    assert_eq!(health(), Health::Healthy);
}
