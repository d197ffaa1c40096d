//! Handing over and giving back, on a made-up machine whose kernel is played.

use std::{os::unix::fs::symlink, sync::Arc};

use super::*;
use crate::testkit::{FakePciFunction, MachineTree, PciKernel};

const CARD: &str = "0000:b1:00.0";
const NEIGHBOUR: &str = "0000:b1:00.1";
const BRIDGE: &str = "0000:b0:01.0";

struct VfioMachine {
    tree: MachineTree,
    kernel: Arc<PciKernel>,
    root: SysRoot,
}

/// A card with `driver` in group 7, behind a bridge of the same group.
fn machine(driver: Option<&str>, neighbours: &[FakePciFunction]) -> VfioMachine {
    let tree = MachineTree::new();
    let card = FakePciFunction {
        class: 0x12_0000,
        driver: driver.map(str::to_owned),
        iommu_group: Some(7),
        ..FakePciFunction::new(CARD, 0x8086, 0xbcce)
    };
    let bridge = FakePciFunction {
        class: 0x06_0400,
        driver: Some("pcieport".to_owned()),
        iommu_group: Some(7),
        ..FakePciFunction::new(BRIDGE, 0x8086, 0x0001)
    };
    for function in [&card, &bridge].into_iter().chain(neighbours) {
        function.plug(&tree);
    }
    let kernel = Arc::new(PciKernel::new(&tree));
    let root = tree.root().tapped(kernel.clone());
    VfioMachine { tree, kernel, root }
}

fn neighbour(driver: Option<&str>) -> FakePciFunction {
    let driver = driver.map(str::to_owned);
    FakePciFunction {
        class: 0x02_0000,
        driver,
        iommu_group: Some(7),
        ..FakePciFunction::new(NEIGHBOUR, 0x8086, 0x1563)
    }
}

fn card() -> PciAddress {
    CARD.parse().unwrap()
}

#[test]
fn a_function_goes_to_vfio_and_comes_back_to_its_driver() {
    let VfioMachine { tree, kernel, root } = machine(Some("dfl-pci"), &[]);
    let former = binding(&root, card()).unwrap();
    assert_eq!(former, DriverBinding { driver: Some("dfl-pci".to_owned()), driver_override: None });
    let nodes = hand_over(&root, card()).unwrap();
    assert_eq!(nodes.all(), ["/dev/vfio/vfio", "/dev/vfio/7"]);
    assert!(is_bound(&root, card()).unwrap());
    give_back(&root, card(), &former).unwrap();
    assert_eq!(binding(&root, card()).unwrap(), former);
    assert!(!tree.path("dev/vfio/7").exists());
    assert!(!kernel.take_writes().is_empty());
}

#[test]
fn repeating_either_way_writes_nothing() {
    let VfioMachine { tree: _tree, kernel, root } = machine(Some("dfl-pci"), &[]);
    let former = binding(&root, card()).unwrap();
    give_back(&root, card(), &former).unwrap();
    assert_eq!(kernel.take_writes(), Vec::<String>::new());
    let nodes = hand_over(&root, card()).unwrap();
    kernel.take_writes();
    assert_eq!(hand_over(&root, card()).unwrap(), nodes);
    assert_eq!(kernel.take_writes(), Vec::<String>::new());
    give_back(&root, card(), &former).unwrap();
    kernel.take_writes();
    give_back(&root, card(), &former).unwrap();
    assert_eq!(kernel.take_writes(), Vec::<String>::new());
}

#[test]
fn kernels_with_iommufd_give_the_functions_own_node_too() {
    let VfioMachine { tree, root, .. } = machine(None, &[]);
    tree.file("dev/iommu", "");
    let nodes = hand_over(&root, card()).unwrap();
    assert_eq!(nodes.all(), ["/dev/vfio/vfio", "/dev/iommu", "/dev/vfio/7", "/dev/vfio/devices/vfio0"]);
}

#[test]
fn a_member_of_the_group_with_a_driver_is_in_the_way_and_is_named() {
    let VfioMachine { tree: _tree, kernel, root } = machine(Some("dfl-pci"), &[neighbour(Some("ixgbe"))]);
    let error = hand_over(&root, card()).unwrap_err().to_string();
    assert_eq!(
        error,
        "IOMMU group 7 also holds 0000:b1:00.1, which the driver ixgbe uses: all of a group are handed over, or none"
    );
    assert_eq!(kernel.take_writes(), Vec::<String>::new());
}

#[test]
fn members_without_a_driver_or_with_vfio_are_not_in_the_way() {
    for driver in [None, Some("vfio-pci")] {
        let VfioMachine { tree: _tree, root, .. } = machine(Some("dfl-pci"), &[neighbour(driver)]);
        assert_eq!(check(&root, card()).unwrap(), 7, "{driver:?}");
    }
}

#[test]
fn what_is_missing_is_said_before_anything_is_written() {
    let VfioMachine { tree, kernel, root } = machine(Some("dfl-pci"), &[]);
    tree.remove("sys/bus/pci/drivers/vfio-pci");
    assert!(matches!(hand_over(&root, card()), Err(VfioError::NoDriver)));
    tree.folder("sys/bus/pci/drivers/vfio-pci").remove("sys/bus/pci/devices/0000:b1:00.0/iommu_group");
    assert!(matches!(hand_over(&root, card()), Err(VfioError::NoGroup { .. })));
    let gone = "0000:ff:00.0".parse().unwrap();
    assert!(matches!(hand_over(&root, gone), Err(VfioError::Gone { .. })));
    assert_eq!(kernel.take_writes(), Vec::<String>::new());
}

#[test]
fn a_probe_that_binds_nothing_is_noticed_and_undone() {
    let VfioMachine { tree: _tree, kernel, root } = machine(Some("dfl-pci"), &[]);
    let former = binding(&root, card()).unwrap();
    kernel.fails("vfio-pci");
    let error = hand_over(&root, card()).unwrap_err().to_string();
    assert_eq!(error, "PCI function 0000:b1:00.0 should be bound to vfio-pci, and is bound to nothing");
    give_back(&root, card(), &former).unwrap();
    assert_eq!(binding(&root, card()).unwrap(), former);
}

#[test]
fn a_driver_that_does_not_come_back_is_an_error_until_it_does() {
    let VfioMachine { tree: _tree, kernel, root } = machine(Some("dfl-pci"), &[]);
    let former = binding(&root, card()).unwrap();
    hand_over(&root, card()).unwrap();
    kernel.fails("dfl-pci");
    let error = give_back(&root, card(), &former).unwrap_err();
    assert!(matches!(&error, VfioError::Write { path, .. } if path.ends_with("dfl-pci/bind")), "{error:?}");
    kernel.works("dfl-pci");
    give_back(&root, card(), &former).unwrap();
    assert_eq!(binding(&root, card()).unwrap(), former);
}

#[test]
fn a_function_that_had_no_driver_gets_none_and_an_override_is_restored() {
    let VfioMachine { tree, root, .. } = machine(None, &[]);
    tree.file("sys/bus/pci/devices/0000:b1:00.0/driver_override", "xdma");
    let former = binding(&root, card()).unwrap();
    hand_over(&root, card()).unwrap();
    give_back(&root, card(), &former).unwrap();
    let now = binding(&root, card()).unwrap();
    assert_eq!(now, DriverBinding { driver: None, driver_override: Some("xdma".to_owned()) });
}

#[test]
fn a_function_that_the_operator_gave_to_vfio_stays_there() {
    let VfioMachine { tree: _tree, kernel, root } = machine(None, &[]);
    hand_over(&root, card()).unwrap();
    kernel.take_writes();
    let former = binding(&root, card()).unwrap();
    hand_over(&root, card()).unwrap();
    give_back(&root, card(), &former).unwrap();
    assert!(is_bound(&root, card()).unwrap());
    assert_eq!(kernel.take_writes(), Vec::<String>::new());
}

#[test]
fn a_function_in_use_is_not_taken_away_and_its_user_is_named() {
    let VfioMachine { tree, root, .. } = machine(Some("dfl-pci"), &[]);
    let former = binding(&root, card()).unwrap();
    hand_over(&root, card()).unwrap();
    tree.file("proc/4711/comm", "qemu").file("proc/4712/comm", "other").folder("proc/4711/fd").folder("proc/4712/fd");
    symlink("/dev/vfio/7", tree.path("proc/4711/fd/9")).unwrap();
    let error = give_back(&root, card(), &former).unwrap_err().to_string();
    assert_eq!(error, "PCI function 0000:b1:00.0 is in use by process 4711 (qemu)");
    tree.remove("proc/4711");
    give_back(&root, card(), &former).unwrap();
    assert_eq!(binding(&root, card()).unwrap(), former);
}

#[test]
fn a_function_that_is_gone_needs_nothing() {
    let VfioMachine { tree: _tree, root, .. } = machine(Some("dfl-pci"), &[]);
    give_back(&root, "0000:ff:00.0".parse().unwrap(), &DriverBinding::default()).unwrap();
}

#[test]
fn names_of_drivers_cannot_lead_elsewhere() {
    let VfioMachine { tree: _tree, kernel, root } = machine(None, &[]);
    hand_over(&root, card()).unwrap();
    kernel.fails("vfio-pci");
    let former = DriverBinding { driver: Some("../../../../etc".to_owned()), driver_override: None };
    assert!(matches!(give_back(&root, card(), &former), Err(VfioError::DriverName { .. })));
}
