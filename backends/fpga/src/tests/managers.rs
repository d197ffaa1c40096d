//! Made-up systems on a chip.

use hostler_backend::testkit::{Samples, conformance};
use hostler_linux::testkit::{FakeDflCard, FakePciFunction, MachineTree};

use super::*;
use crate::{FpgaDevice, manager};

const DEVICE: &str = "devices/platform/firmware:zynqmp-firmware/firmware:zynqmp-firmware:pcap";

fn soc(number: u32) -> MachineTree {
    let tree = MachineTree::new();
    plug(&tree, number);
    tree
}

pub(super) fn plug(tree: &MachineTree, number: u32) {
    let folder = format!("sys/{DEVICE}/fpga_manager/fpga{number}");
    tree.files(&folder, &[("name", "Xilinx ZynqMP FPGA Manager"), ("state", "operating"), ("status", "")]);
    tree.link(format!("sys/class/fpga_manager/fpga{number}"), folder);
}

#[test]
fn a_manager_of_a_system_on_a_chip_is_named_by_its_device() {
    let tree = soc(4);
    FakeDflCard::new("0000:b1:00.0").plug(&tree);
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    let manager = device(&found, "manager-firmware-zynqmp-firmware-pcap");
    let expected = ["kind=manager", "model=Xilinx ZynqMP FPGA Manager", "platformDevice=firmware:zynqmp-firmware:pcap"];
    assert_eq!(attributes(manager), expected);
    let managers = found.devices.iter().filter(|device| device.name.as_str().starts_with("manager"));
    assert_eq!(managers.count(), 1, "the manager of a card is the card's");
    assert_eq!(FpgaDevice::of(manager).unwrap(), FpgaDevice::Manager { device: DEVICE.to_owned() });
    let today = tree.look(|tree| manager::find(tree, DEVICE)).unwrap().folder;
    assert!(today.ends_with("fpga_manager/fpga4"));
}

/// A manager in a folder below `sys/devices`.
fn plug_at(tree: &MachineTree, device: &str, number: u32) {
    let folder = format!("sys/devices/{device}/fpga_manager/fpga{number}");
    tree.files(&folder, &[("name", "a manager"), ("state", "operating")]);
    tree.link(format!("sys/class/fpga_manager/fpga{number}"), folder);
}

#[test]
fn a_function_that_is_programmed_as_a_whole_is_a_manager_and_nothing_else() {
    let tree = MachineTree::new();
    let function = FakePciFunction {
        class: 0x12_0000,
        driver: Some("altera-cvp".into()),
        ..FakePciFunction::new("0000:01:00.0", 0x1172, 0xe003)
    };
    function.plug(&tree);
    plug_at(&tree, "pci0000:01/0000:01:00.0", 2);
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    assert_eq!(names(&found.devices), ["manager-0000-01-00-0"]);
    let attributes = attributes(&found.devices[0]);
    for expected in ["vendor=0x1172", "resource.kubernetes.io/pciBusID=0000:01:00.0", "model=a manager"] {
        assert!(attributes.contains(&expected.to_owned()), "{attributes:?}");
    }
    let passed_on = FpgaBackendConfig { vfio: vec!["1172:e003".to_owned()], ..FpgaBackendConfig::default() };
    assert_eq!(names(&enumerated(tree.root(), passed_on).devices), ["vfio-0000-01-00-0"]);
}

#[test]
fn an_fpga_on_a_serial_bus_is_named_without_the_number_of_the_bus() {
    let tree = MachineTree::new();
    FakePciFunction::new("0000:00:1e.2", 0x8086, 0xa324).plug(&tree);
    plug_at(&tree, "pci0000:00/0000:00:1e.2/pxa2xx-spi.7/spi_master/spi3/spi3.0", 0);
    let name = "manager-0000-00-1e-2-spi-0";
    assert_eq!(names(&enumerated(tree.root(), FpgaBackendConfig::default()).devices), [name]);
}

#[test]
fn managers_of_cards_are_left_to_their_cards() {
    let tree = MachineTree::new();
    plug_at(&tree, "pci0000:00/0000:05:00.0/fpga_region/region0/dfl-fme.0", 0);
    plug_at(&tree, "pci0000:b1/0000:b1:00.0/fmgr.m.45312", 1);
    assert_eq!(enumerated(tree.root(), FpgaBackendConfig::default()).devices, []);
}

#[test]
fn what_the_last_programming_has_left_speaks_against_a_manager() {
    let tree = soc(0);
    tree.file(format!("sys/{DEVICE}/fpga_manager/fpga0/state"), "write complete error");
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    assert_eq!(reason(&found.devices[0]), "fpga_manager/state is write complete error");
    conformance(&FpgaBackend::new(soc(0).root(), FpgaBackendConfig::default()), &Samples::default());
}
