//! Made-up AMD cards.

use hostler_backend::testkit::{Samples, conformance};
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
fn a_user_function_alone_is_a_card_and_a_management_function_alone_is_none() {
    let tree = MachineTree::new();
    let card = FakeXrtCard { management: None, ..FakeXrtCard::new("0000:00:05") };
    card.plug(&tree);
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    assert_eq!(names(&found.devices), ["xrt-0000-00-05-1"]);
    conformance(&FpgaBackend::new(tree.root(), FpgaBackendConfig::default()), &Samples::default());
    tree.remove(card.user.folder().join("user_pf")).file(card.user.folder().join("mgmt_pf"), "");
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    assert!(reason(device(&found, "vfio-0000-00-05-1")).starts_with("xocl is bound: name 10ee:5005"));
}

fn ami(state: &str) -> MachineTree {
    let tree = MachineTree::new();
    plug_ami(&tree, state);
    tree
}

/// A V80 with the AMI driver, whose list of cards says which node is whose.
pub(super) fn plug_ami(tree: &MachineTree, state: &str) {
    let function =
        FakePciFunction { driver: Some("ami".into()), ..FakePciFunction::new("0000:21:00.0", 0x10ee, 0x50b4) };
    let folder = function.plug(tree);
    let uuid = ("logic_uuid", "27c54c71-9f1d-4a1c-9a3c-5b8c9c0f4a7e");
    tree.files(folder, &[("dev_state", state), ("dev_name", "Alveo V80"), ("amc_version", "2.3.0 +0 *0"), uuid]);
    tree.file("sys/bus/pci/drivers/ami/devices", "2\n21:00.1 5 7\n21:00.0 3 6");
}

#[test]
fn a_card_with_the_ami_driver_is_opened_by_the_node_that_the_driver_lists() {
    let found = enumerated(ami("READY").root(), FpgaBackendConfig::default());
    assert_eq!((names(&found.devices), found.devices[0].health.clone()), (vec!["ami-0000-21-00-0"], Health::Healthy));
    assert_eq!(nodes(&found.devices[0]), ["/dev/ami3"]);
    let attributes = attributes(&found.devices[0]);
    for expected in ["kind=ami", "model=Alveo V80", "firmware=2.3.0 +0 *0", "logicID=27c54c719f1d4a1c9a3c5b8c9c0f4a7e"]
    {
        assert!(attributes.contains(&expected.to_owned()), "{attributes:?}");
    }
    assert_eq!(
        reason(&enumerated(ami("NO_AMC").root(), FpgaBackendConfig::default()).devices[0]),
        "dev_state is NO_AMC"
    );
}
