//! Made-up AMD cards.

use hostler_backend::{
    Sharing,
    testkit::{Samples, conformance},
};
use hostler_linux::testkit::{FakePciFunction, FakeXrtCard, MachineTree};

use super::*;
use crate::{FpgaDevice, xrt};

fn look(card: &FakeXrtCard, change: impl Fn(&MachineTree)) -> Enumeration {
    let tree = MachineTree::new();
    card.plug(&tree);
    change(&tree);
    enumerated(tree.root(), FpgaBackendConfig::default())
}

#[test]
fn two_functions_of_a_slot_are_one_card_that_is_opened_by_its_render_node() {
    let card = FakeXrtCard {
        xclbin_id: Some("b5d1a3d4-9d3c-4a49-8a5e-1f27b9ea2b10".into()),
        ..FakeXrtCard::new("0000:b1:00")
    };
    let found = look(&card, |tree| _ = tree.file(card.user.folder().join("mig_calibration"), "0xf"));
    assert_eq!(names(&found.devices), ["xrt-0000-b1-00-1"]);
    let expected = [
        "device=0x5005",
        "interfaceID=862c7020a250293e32036f19956669e5",
        "kind=xrt",
        "linkWidth=16",
        "logicID=f465b0a3ae8c64f619bc150384ace69b",
        "memoryBanks=4",
        "resource.kubernetes.io/numaNode=0",
        "resource.kubernetes.io/pciBusID=0000:b1:00.1",
        "resource.kubernetes.io/pcieRoot=pci0000:b1",
        "serial=21320621V01M",
        "shell=xilinx_u250_gen3x16_xdma_shell_4_1",
        "subsystemDevice=0x0000",
        "subsystemVendor=0x0000",
        "vendor=0x10ee",
        "virtualFunction=false",
        "xclbinID=b5d1a3d49d3c4a498a5e1f27b9ea2b10",
    ];
    let device = &found.devices[0];
    assert_eq!(attributes(device), expected);
    assert_eq!((nodes(device), &device.health), (vec!["/dev/dri/renderD128"], &Health::Healthy));
}

#[test]
fn a_target_finds_the_nodes_of_both_functions() {
    let tree = MachineTree::new();
    FakeXrtCard { render: 140, ..FakeXrtCard::new("0000:b1:00") }.plug(&tree);
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    let FpgaDevice::Xrt { user, management } = FpgaDevice::of(&found.devices[0]).unwrap() else { panic!("{found:?}") };
    let card = tree.look(|tree| xrt::find(tree, user, management)).unwrap();
    assert_eq!(card.render_node, Some("dev/dri/renderD140".into()));
    assert_eq!(card.management_node, Some("dev/xclmgmt45312".into()));
    tree.remove(card.management.unwrap().folder.join("instance"));
    let computed = tree.look(|tree| xrt::find(tree, user, management)).unwrap().management_node;
    assert_eq!(computed, Some("dev/xclmgmt45312".into()), "domain, bus, device and function in one number");
}

#[test]
fn a_card_is_as_sound_as_its_files_say() {
    let loaded = FakeXrtCard {
        xclbin_id: Some("b5d1a3d4-9d3c-4a49-8a5e-1f27b9ea2b10".into()),
        ..FakeXrtCard::new("0000:b1:00")
    };
    let empty = FakeXrtCard::new("0000:b1:00");
    assert_eq!(look(&empty, |_| {}).devices[0].health, Health::Healthy, "no design uses the memory");
    assert_eq!(reason(&look(&loaded, |_| {}).devices[0]), "mig_calibration is 0x0");
    for (file, value) in [("ready", "0"), ("dev_offline", "1")] {
        let found = look(&empty, |tree| _ = tree.file(empty.user.folder().join(file), value));
        assert_eq!(reason(&found.devices[0]), format!("{file} is {value}"));
    }
    let tripped = look(&empty, |tree| {
        tree.files(empty.management_part("firewall"), &[("level", "2"), ("status", "0x80000")]);
    });
    assert_eq!(reason(&tripped.devices[0]), "firewall.m.45312/level is 2 (status 0x80000)");
    let closed = look(&empty, |tree| _ = tree.remove(empty.user.folder().join("drm")));
    assert_eq!(reason(&closed.devices[0]), "drm has no render node: programs cannot open the card");
}

#[test]
fn a_user_function_alone_is_a_card() {
    let tree = MachineTree::new();
    let card = FakeXrtCard { management: None, ..FakeXrtCard::new("0000:00:05") };
    card.plug(&tree);
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    assert_eq!(names(&found.devices), ["xrt-0000-00-05-1"]);
    conformance(&FpgaBackend::new(tree.root(), FpgaBackendConfig::default()), &Samples::default());
}

#[test]
fn processes_of_several_claims_share_a_card_where_the_configuration_says_so() {
    let tree = MachineTree::new();
    FakeXrtCard::new("0000:b1:00").plug(&tree);
    let sharing = |share_xrt| {
        let config = FpgaBackendConfig { share_xrt, ..FpgaBackendConfig::default() };
        enumerated(tree.root(), config).devices[0].sharing
    };
    assert_eq!([sharing(false), sharing(true)], [Sharing::Exclusive, Sharing::Shared]);
}

/// A function of class 12.
fn accelerator(address: &str, device: u16, driver: Option<&str>) -> FakePciFunction {
    let driver = driver.map(str::to_owned);
    let group = if address.ends_with("0") { 7 } else { 8 };
    FakePciFunction {
        class: 0x12_0000,
        driver,
        iommu_group: Some(group),
        ..FakePciFunction::new(address, 0x10ee, device)
    }
}

#[test]
fn a_function_that_looks_after_a_card_is_never_offered_by_itself() {
    for driver in [Some("xclmgmt"), Some("ami")] {
        let tree = MachineTree::new();
        accelerator("0000:c1:00.0", 0x513c, driver).plug(&tree);
        let found = enumerated(tree.root(), FpgaBackendConfig::default());
        assert!(found.devices.is_empty(), "{driver:?}: {:?}", names(&found.devices));
        let [warning] = &found.warnings[..] else { panic!("{driver:?}: {:?}", found.warnings) };
        assert!(warning.path.ends_with("0000:c1:00.0") && warning.reason.contains("not offered"), "{warning:?}");
    }
    // Told by the attribute of XRT, whatever the driver is called.
    let tree = MachineTree::new();
    let folder = accelerator("0000:c1:00.0", 0x513c, Some("xrt-mgmt")).plug(&tree);
    tree.file(folder.join("mgmt_pf"), "");
    assert!(enumerated(tree.root(), FpgaBackendConfig::default()).devices.is_empty());
}

#[test]
fn without_drivers_only_the_function_for_users_is_advised_for_vfio() {
    for driver in [None, Some("vfio-pci")] {
        let tree = MachineTree::new();
        tree.folder("sys/bus/pci/drivers/vfio-pci");
        accelerator("0000:c1:00.0", 0x5004, driver).plug(&tree);
        accelerator("0000:c1:00.1", 0x5005, None).plug(&tree);
        let found = enumerated(tree.root(), FpgaBackendConfig::default());
        assert_eq!(names(&found.devices), ["vfio-0000-c1-00-1"], "{driver:?}");
        assert!(reason(&found.devices[0]).contains("name 10ee:5005"), "{}", reason(&found.devices[0]));
        assert_eq!(found.warnings, []);
    }
}

#[test]
fn a_driver_that_serves_no_users_does_not_make_management_a_function_for_them() {
    for driver in ["uio_pci_generic", "pci-stub", "pciback"] {
        let tree = MachineTree::new();
        accelerator("0000:c1:00.0", 0x513c, Some(driver)).plug(&tree);
        accelerator("0000:c1:00.1", 0x513d, None).plug(&tree);
        let found = enumerated(tree.root(), FpgaBackendConfig::default());
        assert_eq!(names(&found.devices), ["vfio-0000-c1-00-1"], "{driver}");
        assert_eq!(found.warnings, [], "{driver}");
    }
}

#[test]
fn a_management_function_without_the_one_for_users_is_told_by_its_id() {
    for driver in [None, Some("uio_pci_generic"), Some("vfio-pci")] {
        for device in [0x5000, 0x504e, 0x50b4, 0x513c, 0x6098, 0x6a8f, 0xd004] {
            let tree = MachineTree::new();
            tree.folder("sys/bus/pci/drivers/vfio-pci");
            accelerator("0000:c1:00.0", device, driver).plug(&tree);
            let found = enumerated(tree.root(), FpgaBackendConfig::default());
            assert!(found.devices.is_empty(), "{device:04x} {driver:?}: {:?}", names(&found.devices));
            let [warning] = &found.warnings[..] else { panic!("{device:04x} {driver:?}: {:?}", found.warnings) };
            assert!(warning.path.ends_with("0000:c1:00.0") && warning.reason.contains("not offered"), "{warning:?}");
        }
    }
}

/// A virtual machine has the function for users as the first of a slot.
#[test]
fn a_function_for_users_and_a_design_of_ones_own_are_still_advised_where_they_are_alone() {
    for (device, driver) in [(0x5005, None), (0x513d, Some("uio_pci_generic")), (0x6a90, None), (0x903f, Some("xdma"))]
    {
        let tree = MachineTree::new();
        accelerator("0000:00:05.0", device, driver).plug(&tree);
        let found = enumerated(tree.root(), FpgaBackendConfig::default());
        assert_eq!(names(&found.devices), ["vfio-0000-00-05-0"], "{device:04x} {driver:?}");
        let advice = format!("name 10ee:{device:04x} in backends.fpga.vfio");
        assert!(reason(&found.devices[0]).contains(&advice), "{}", reason(&found.devices[0]));
    }
}

#[test]
fn an_administrator_who_names_the_management_function_gets_it() {
    let tree = MachineTree::new();
    tree.folder("sys/bus/pci/drivers/vfio-pci");
    accelerator("0000:c1:00.0", 0x5004, Some("xclmgmt")).plug(&tree);
    let config = FpgaBackendConfig { vfio: vec!["0000:c1:00.0".to_owned()], ..FpgaBackendConfig::default() };
    assert_eq!(names(&enumerated(tree.root(), config).devices), ["vfio-0000-c1-00-0"]);
}

#[test]
fn cards_of_other_classes_are_known_by_their_ids() {
    for (vendor, device, driver, way) in [
        (0x1d0f, 0xf000, None, "name 1d0f:f000 in backends.fpga.vfio, or install the driver"),
        (0x1d0f, 0xf010, None, "name 1d0f:f010 in backends.fpga.vfio, or install the driver"),
        (0x10ee, 0x903f, Some("xdma"), "name 10ee:903f in backends.fpga.vfio: the nodes of this driver are windows"),
        (0x10ee, 0x9038, Some("qdma-pf"), "name 10ee:9038 in backends.fpga.vfio: the nodes of this driver are windows"),
        (0x10ee, 0x7024, None, "name 10ee:7024 in backends.fpga.vfio"),
    ] {
        let tree = MachineTree::new();
        let driver = driver.map(str::to_owned);
        FakePciFunction { class: 0x05_8000, driver, ..FakePciFunction::new("0000:00:1d.0", vendor, device) }
            .plug(&tree);
        let found = enumerated(tree.root(), FpgaBackendConfig::default());
        assert_eq!(names(&found.devices), ["vfio-0000-00-1d-0"], "{vendor:04x}:{device:04x}");
        assert!(reason(&found.devices[0]).contains(way), "{}", reason(&found.devices[0]));
    }
    // A network card of the same maker is none.
    let tree = MachineTree::new();
    FakePciFunction { class: 0x02_0000, ..FakePciFunction::new("0000:00:1d.0", 0x10ee, 0x0505) }.plug(&tree);
    assert!(enumerated(tree.root(), FpgaBackendConfig::default()).devices.is_empty());
}

/// A V80: management with the AMI driver, and the function for users, which is passed on.
pub(super) fn plug_ami(tree: &MachineTree, state: &str) {
    let folder = accelerator("0000:21:00.0", 0x50b4, Some("ami")).plug(tree);
    let uuid = ("logic_uuid", "27c54c71-9f1d-4a1c-9a3c-5b8c9c0f4a7e");
    tree.files(folder, &[("dev_state", state), ("dev_name", "Alveo V80"), ("amc_version", "2.3.0 +0 *0"), uuid]);
    tree.file("sys/bus/pci/drivers/ami/devices", "1\n21:00.0 3 6");
    tree.folder("sys/bus/pci/drivers/vfio-pci");
    accelerator("0000:21:00.1", 0x50b5, Some("vfio-pci")).plug(tree);
}

#[test]
fn the_node_of_the_ami_driver_stays_with_the_administrator() {
    let ami = |state: &str| {
        let tree = MachineTree::new();
        plug_ami(&tree, state);
        enumerated(tree.root(), FpgaBackendConfig::default())
    };
    let found = ami("READY");
    assert_eq!((names(&found.devices), found.warnings.len()), (vec!["vfio-0000-21-00-1"], 0));
    let device = &found.devices[0];
    assert_eq!((nodes(device), &device.health), (vec!["/dev/vfio/vfio", "/dev/vfio/8"], &Health::Healthy));
    let attributes = attributes(device);
    for expected in ["kind=vfio", "model=Alveo V80", "firmware=2.3.0 +0 *0", "logicID=27c54c719f1d4a1c9a3c5b8c9c0f4a7e"]
    {
        assert!(attributes.contains(&expected.to_owned()), "{attributes:?}");
    }
    assert_eq!(reason(&ami("NO_AMC").devices[0]), "dev_state is NO_AMC");
}
