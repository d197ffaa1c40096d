//! Made-up systems on a chip.

use hostler_backend::testkit::{Samples, conformance};
use hostler_linux::testkit::{DflCard, Tree};

use super::*;
use crate::{Target, manager};

const DEVICE: &str = "devices/platform/firmware:zynqmp-firmware/firmware:zynqmp-firmware:pcap";

fn soc(number: u32) -> Tree {
    let tree = Tree::new();
    plug(&tree, number);
    tree
}

pub(super) fn plug(tree: &Tree, number: u32) {
    let folder = format!("sys/{DEVICE}/fpga_manager/fpga{number}");
    tree.files(&folder, &[("name", "Xilinx ZynqMP FPGA Manager"), ("state", "operating"), ("status", "")]);
    tree.link(format!("sys/class/fpga_manager/fpga{number}"), folder);
}

#[test]
fn a_manager_of_a_system_on_a_chip_is_named_by_its_device() {
    let tree = soc(4);
    DflCard::new("0000:b1:00.0").plug(&tree);
    let found = enumerated(tree.root(), Config::default());
    let manager = device(&found, "manager-firmware-zynqmp-firmware-pcap");
    let expected = ["kind=manager", "model=Xilinx ZynqMP FPGA Manager", "platformDevice=firmware:zynqmp-firmware:pcap"];
    assert_eq!(attributes(manager), expected);
    let managers = found.devices.iter().filter(|device| device.name.as_str().starts_with("manager"));
    assert_eq!(managers.count(), 1, "the manager of a card is the card's");
    assert_eq!(Target::of(manager).unwrap(), Target::Manager { device: DEVICE.to_owned() });
    let today = manager::find(&tree.root(), DEVICE).unwrap().folder;
    assert!(today.ends_with("fpga_manager/fpga4"));
}

#[test]
fn what_the_last_programming_has_left_speaks_against_a_manager() {
    let tree = soc(0);
    tree.file(format!("sys/{DEVICE}/fpga_manager/fpga0/state"), "write complete error");
    let found = enumerated(tree.root(), Config::default());
    assert_eq!(reason(&found.devices[0]), "fpga_manager/state is write complete error");
    conformance(&FpgaBackend::new(soc(0).root(), Config::default()), &Samples::default());
}
