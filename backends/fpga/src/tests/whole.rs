//! Functions that are passed on whole.

use hostler_linux::testkit::{FakePciFunction, MachineTree};

use super::*;

const NAME: &str = "vfio-0000-b1-00-0";

fn function(driver: Option<&str>) -> FakePciFunction {
    let driver = driver.map(str::to_owned);
    FakePciFunction {
        class: 0x12_0000,
        driver,
        iommu_group: Some(12),
        ..FakePciFunction::new("0000:b1:00.0", 0x8086, 0xbcce)
    }
}

fn look(function: &FakePciFunction, vfio: &[&str], change: impl Fn(&MachineTree)) -> Enumeration {
    let tree = MachineTree::new();
    tree.folder("sys/bus/pci/drivers/vfio-pci");
    function.plug(&tree);
    change(&tree);
    let vfio = vfio.iter().map(|text| (*text).to_owned()).collect();
    enumerated(tree.root(), FpgaBackendConfig { vfio, ..FpgaBackendConfig::default() })
}

#[test]
fn an_fpga_that_is_bound_for_it_is_passed_on_with_its_group() {
    let found = look(&function(Some("vfio-pci")), &[], |_| {});
    let device = device(&found, NAME);
    assert_eq!((nodes(device), &device.health), (vec!["/dev/vfio/vfio", "/dev/vfio/12"], &Health::Healthy));
    assert!(attributes(device).contains(&"kind=vfio".to_owned()));
}

#[test]
fn any_function_can_be_named_to_be_passed_on() {
    let network =
        FakePciFunction { id: (0x8086, 0x1521), class: 0x02_0000, driver: Some("igb".into()), ..function(None) };
    assert!(look(&network, &[], |_| {}).devices.is_empty());
    for name in ["8086:1521", "0000:b1:00.0"] {
        assert_eq!(look(&network, &[name], |_| {}).devices[0].health, Health::Healthy, "{name}");
    }
}

#[test]
fn accelerators_of_makers_without_fpgas_are_left_alone() {
    let other = FakePciFunction { id: (0x1da3, 0x1020), ..function(Some("vfio-pci")) };
    assert!(look(&other, &[], |_| {}).devices.is_empty());
}

#[test]
fn an_fpga_without_a_driver_says_what_would_make_it_usable() {
    let found = look(&function(None), &[], |_| {});
    let expected = "no driver is bound: name 8086:bcce in backends.fpga.vfio, or load dfl-pci (CONFIG_FPGA_DFL_PCI)";
    assert_eq!(reason(device(&found, NAME)), expected);
    let found = look(&function(Some("uio_pci_generic")), &[], |_| {});
    assert!(reason(device(&found, NAME)).starts_with("uio_pci_generic is bound: "));
    let found = look(&function(Some("intel-fpga-pci")), &[], |_| {});
    let expected = "intel-fpga-pci is bound: name 8086:bcce in backends.fpga.vfio, or unload this driver from outside the kernel and \
                    load dfl-pci (CONFIG_FPGA_DFL_PCI)";
    assert_eq!(reason(device(&found, NAME)), expected);
}

#[test]
fn a_neighbour_in_the_group_that_a_driver_uses_is_named() {
    let neighbour = |driver: &str, class| FakePciFunction {
        class,
        driver: Some(driver.into()),
        iommu_group: Some(12),
        ..FakePciFunction::new("0000:b1:00.1", 0x8086, 0x1521)
    };
    let beside =
        |function: FakePciFunction| look(&self::function(Some("vfio-pci")), &[], move |tree| _ = function.plug(tree));
    let found = beside(neighbour("igb", 0x02_0000));
    let why = reason(device(&found, NAME));
    assert!(why.contains("0000:b1:00.1") && why.contains("igb") && why.contains("12"), "{why}");
    for (driver, class) in [("pcieport", 0x06_0400), ("vfio-pci", 0x02_0000)] {
        assert_eq!(device(&beside(neighbour(driver, class)), NAME).health, Health::Healthy, "{driver}");
    }
}

#[test]
fn a_function_without_a_group_or_a_machine_without_the_driver_says_so() {
    let alone = FakePciFunction { iommu_group: None, ..function(Some("dfl-pci")) };
    let found = look(&alone, &["8086:bcce"], |_| {});
    assert!(nodes(device(&found, NAME)).is_empty());
    assert!(reason(device(&found, NAME)).contains("0000:b1:00.0"), "{}", reason(device(&found, NAME)));
    let found = look(&function(None), &["8086:bcce"], |tree| _ = tree.remove("sys/bus/pci/drivers/vfio-pci"));
    assert!(reason(device(&found, NAME)).contains("vfio-pci"));
}
