//! PCI functions of captured and of made-up machines.

#![cfg(test)]

use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc};

use hostler_linux::{
    IdSet, SysRoot, TreeWarning,
    pci::{self, Dvsec, PciAddress, PciFunction, PcieRootError, Sriov},
    testkit::{self, FakePciFunction, capture},
};

fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn find<'a>(functions: &'a [PciFunction], text: &str) -> &'a PciFunction {
    functions.iter().find(|function| function.address == address(text)).unwrap_or_else(|| panic!("no {text}"))
}

fn all(root: &SysRoot) -> Vec<PciFunction> {
    let (functions, warnings) = root.look(pci::functions).unwrap();
    assert_eq!(warnings, []);
    assert!(functions.is_sorted_by_key(|function| function.address));
    functions
}

/// A made-up machine.
struct PciTree(tempfile::TempDir);

impl PciTree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> SysRoot {
        SysRoot::new(self.0.path())
    }

    fn put(&self, path: &str, text: &str) -> &Self {
        let path = self.root().path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// A function at `folder` below `sys/devices`, linked to from the bus.
    fn function(&self, folder: &str, attributes: &[(&str, &str)]) -> &Self {
        let place = format!("sys/devices/{folder}");
        self.put(&format!("{place}/vendor"), "0x8086\n").put(&format!("{place}/device"), "0x0d93\n");
        for (name, text) in attributes {
            self.put(&format!("{place}/{name}"), text);
        }
        let name = Path::new(folder).file_name().unwrap().to_str().unwrap();
        self.link(&format!("sys/bus/pci/devices/{name}"), &format!("../../../devices/{folder}"))
    }

    fn link(&self, path: &str, target: &str) -> &Self {
        let path = self.root().path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
        self
    }
}

#[test]
fn an_fpga_card_with_virtual_functions_is_read() {
    let Some(capture) = capture("opae-dfl_n6000_sku1_nlb0") else { return };
    let functions = all(&capture.root());
    assert_eq!(functions.len(), 8);
    let physical = find(&functions, "0000:b1:00.0");
    assert_eq!((physical.vendor, physical.device, physical.class), (0x8086, 0xbcce, Some(0x12_0000)));
    assert_eq!((physical.base_class(), physical.numa_node), (Some(0x12), Some(1)));
    assert_eq!(physical.sriov, Some(Sriov { total: 3, enabled: 3, autoprobe: Some(true) }));
    assert_eq!(physical.virtual_functions, ["0000:b1:00.5", "0000:b1:00.6", "0000:b1:00.7"].map(address));
    assert_eq!(physical.pcie_root().as_deref(), Ok("pci0000:b0"));
    assert_eq!(physical.pci_bus_id().as_deref(), Some("0000:b1:00.0"));
    assert!(!physical.is_virtual() && !physical.reset_methods.is_empty());
    // Its configuration space says ffff:ffff.
    let virtual_function = find(&functions, "0000:b1:00.5");
    assert_eq!((virtual_function.vendor, virtual_function.device), (0x8086, 0xbccf));
    assert_eq!(virtual_function.physical_function, Some(physical.address));
    let config = pci::read_config(&capture.root(), virtual_function.address).unwrap();
    assert_eq!(config[..4], [0xff; 4]);
}

#[test]
fn a_card_with_few_attributes_is_read() {
    let Some(capture) = capture("opae-dfl_n3000_nlb0") else { return };
    let functions = all(&capture.root());
    assert_eq!(functions.len(), 1);
    let function = &functions[0];
    assert_eq!((function.vendor, function.class, function.revision), (0x8086, None, None));
    assert_eq!((function.numa_node, function.iommu_group, &function.driver), (None, None, &None));
    assert_eq!(function.path.as_deref(), Some(Path::new("/sys/devices/pci0000:00/0000:00:02.0/0000:05:00.0")));
}

#[test]
fn a_server_full_of_functions_is_read() {
    let Some(capture) = capture("hwloc-32em64t-2n8c+dax+nvme+mic+dimms") else { return };
    let functions = all(&capture.root());
    assert_eq!(functions.len(), 137);
    let of_class = |class| functions.iter().filter(|function| function.base_class() == Some(class)).count();
    assert!(of_class(0x06) > 10 && of_class(0x01) > 0);
    // 93 do not know their node and have no ancestor that does.
    assert_eq!(functions.iter().filter(|function| function.numa_node.is_none()).count(), 93);
    assert!(functions.iter().all(|function| function.pcie_root().is_ok()));
}

#[test]
fn a_machine_with_cxl_is_read() {
    let Some(capture) = capture("qemu-cxl-7.3.4-regions") else { return };
    let functions = all(&capture.root());
    assert_eq!(functions.len(), 22);
    let behind_switch = find(&functions, "0000:c4:00.0");
    assert_eq!((behind_switch.class, behind_switch.numa_node), (Some(0x05_0210), Some(2)));
    assert_eq!(behind_switch.driver.as_deref(), Some("cxl_pci"));
    assert_eq!(behind_switch.reset_methods, ["cxl_bus"]);
    assert_eq!(behind_switch.pcie_root().as_deref(), Ok("pci0000:c0"));
    assert_eq!(find(&functions, "0000:01:00.0").sriov.map(|sriov| (sriov.total, sriov.enabled)), Some((8, 0)));
    let config = pci::read_config(&capture.root(), behind_switch.address).unwrap();
    let found = pci::extended_capabilities(&config);
    let cxl: Vec<u16> = found
        .iter()
        .filter_map(|entry| entry.dvsec.filter(|dvsec| dvsec.vendor == 0x1e98))
        .map(|dvsec| dvsec.id)
        .collect();
    assert!(cxl.contains(&0) && cxl.contains(&8), "{cxl:?}");
    let conventional = pci::read_config(&capture.root(), address("0000:00:00.0")).unwrap();
    assert_eq!((conventional.len(), pci::extended_capabilities(&conventional).len()), (256, 0));
}

#[test]
fn capabilities_of_real_cxl_cards_are_found() {
    let Some(capture) = capture("pciutils-cap-dvsec-cxl") else { return };
    let mut cards = Vec::new();
    for name in capture.root().names("").unwrap().iter().filter(|name| name.ends_with(".config")) {
        let found = pci::extended_capabilities(&capture.root().required_bytes(name, u64::MAX).unwrap());
        let vendor_specific = found.iter().filter_map(|entry| Some((entry.offset, entry.dvsec?)));
        cards.push(vendor_specific.filter(|(_, dvsec)| dvsec.vendor == 0x1e98).collect::<Vec<(u16, Dvsec)>>());
    }
    let places: Vec<Vec<(u16, u16)>> =
        cards.iter().map(|card| card.iter().map(|(offset, dvsec)| (*offset, dvsec.id)).collect()).collect();
    assert!(places.contains(&vec![(0xe00, 0)]), "{places:x?}");
    assert!(places.contains(&vec![(0x500, 0), (0x540, 7), (0x560, 8), (0x590, 5)]), "{places:x?}");
}

#[test]
fn the_node_comes_from_the_nearest_ancestor_that_knows() {
    let tree = PciTree::new();
    tree.function("pci0000:00/0000:00:02.0", &[("numa_node", "1\n")]);
    tree.function("pci0000:00/0000:00:02.0/0000:01:00.0", &[("numa_node", "-1\n")]);
    tree.function("pci0000:00/0000:00:02.0/0000:01:00.0/0000:02:00.0", &[("local_cpus", "000000ff,00000000\n")]);
    tree.function("pci0000:80/0000:80:00.0", &[("numa_node", "-1\n"), ("local_cpulist", "0-3\n")]);
    tree.put("sys/devices/pci0000:40/numa_node", "3\n").function("pci0000:40/0000:40:00.0", &[]);
    // Not an ancestor of any function in the sense meant here.
    tree.put("sys/devices/numa_node", "7\n");
    let functions = all(&tree.root());
    let node = |text| find(&functions, text).numa_node;
    assert_eq!((node("0000:00:02.0"), node("0000:01:00.0"), node("0000:02:00.0")), (Some(1), Some(1), Some(1)));
    assert_eq!((node("0000:80:00.0"), node("0000:40:00.0")), (None, Some(3)));
    let cpus = |text| find(&functions, text).local_cpus.as_ref().map(ToString::to_string);
    assert_eq!(cpus("0000:80:00.0").as_deref(), Some("0-3"));
    assert_eq!(cpus("0000:02:00.0").as_deref(), Some("32-39"));
    assert_eq!(cpus("0000:00:02.0"), None);
}

#[test]
fn standard_attributes_fail_where_kubernetes_fails() {
    let tree = PciTree::new();
    tree.function("pci0000:00/0000:00:05.5/pci10000:00/10000:00:02.0/10000:e1:00.0", &[]);
    tree.function("platform/soc/40000000.pcie/pci0001:00/0001:00:00.0", &[]);
    tree.function("pci0002:00/0002:00:00.0", &[]);
    tree.put("sys/bus/pci/devices/0003:00:00.0/vendor", "0x1\n")
        .put("sys/bus/pci/devices/0003:00:00.0/device", "0x2\n");
    let functions = all(&tree.root());
    let root = |text| find(&functions, text).pcie_root();
    let name = |text| find(&functions, text).pci_bus_id();
    let vmd = "10000:e1:00.0";
    assert_eq!((root(vmd), name(vmd)), (Err(PcieRootError::Domain(address(vmd))), None));
    assert!(matches!(root("0001:00:00.0"), Err(PcieRootError::NotUnderPci { .. })));
    assert_eq!(name("0001:00:00.0").as_deref(), Some("0001:00:00.0"));
    assert_eq!(root("0002:00:00.0").as_deref(), Ok("pci0002:00"));
    assert_eq!(root("0003:00:00.0"), Err(PcieRootError::NoLink(address("0003:00:00.0"))));
}

#[test]
fn what_makes_no_sense_is_left_out_with_a_warning() {
    let tree = PciTree::new();
    tree.function("pci0000:00/0000:00:01.0", &[("class", "rubbish\n"), ("revision", "0x01\n")]);
    tree.link("sys/devices/pci0000:00/0000:00:01.0/driver", "../../../bus/pci/drivers/vfio-pci");
    tree.link("sys/devices/pci0000:00/0000:00:01.0/iommu_group", "../../../kernel/iommu_groups/17");
    tree.link("sys/bus/pci/devices/0000:00:02.0", "../../../devices/pci0000:00/0000:00:02.0");
    tree.put("sys/bus/pci/devices/README", "");
    let (functions, warnings) = tree.root().look(pci::functions).unwrap();
    assert_eq!(functions.len(), 1);
    assert_eq!((functions[0].class, functions[0].revision, functions[0].iommu_group), (None, Some(1), Some(17)));
    assert_eq!(functions[0].driver.as_deref(), Some("vfio-pci"));
    let paths: Vec<&str> = warnings.iter().map(|TreeWarning { path, .. }| path.as_str()).collect();
    let bus = "/sys/bus/pci/devices";
    assert_eq!(paths, [format!("{bus}/0000:00:02.0"), format!("{bus}/README")]);
    assert!(warnings[0].reason.contains("`vendor`"), "{}", warnings[0].reason);
    assert!(warnings[1].reason.contains("is not a PCI address"), "{}", warnings[1].reason);
}

#[test]
fn what_is_garbage_in_an_attribute_is_absent_with_a_warning() {
    let tree = PciTree::new();
    let attributes = [
        ("class", "rubbish"),
        ("subsystem_vendor", "many"),
        ("revision", "0x100"),
        ("local_cpulist", "near"),
        ("local_cpus", "ff"),
        ("sriov_totalvfs", "8"),
        ("sriov_numvfs", "some"),
        ("sriov_drivers_autoprobe", "yes"),
        // As the kernel writes what it does not know.
        ("numa_node", "-1"),
    ];
    tree.function("pci0000:00/0000:00:01.0", &attributes);
    tree.put("sys/devices/pci0000:00/numa_node", "1");
    tree.link("sys/devices/pci0000:00/0000:00:01.0/iommu_group", "../../../kernel/iommu_groups/first");
    tree.link("sys/devices/pci0000:00/0000:00:01.0/physfn", "../somewhere");
    let ((functions, left_out), warnings) = tree.root().look_warned(pci::functions).unwrap();
    assert_eq!((functions.len(), left_out.len()), (1, 0));
    let function = &functions[0];
    assert_eq!((function.numa_node, function.local_cpus.as_ref().map(IdSet::len)), (Some(1), Some(8)));
    assert_eq!(function.sriov, Some(Sriov { total: 8, enabled: 0, autoprobe: None }));
    let warned: Vec<&str> = warnings.iter().filter_map(|TreeWarning { path, .. }| path.rsplit('/').next()).collect();
    let expected = ["iommu_group", "local_cpulist", "physfn", "revision", "sriov_drivers_autoprobe", "sriov_numvfs"];
    // The class is read where the bus links to the function.
    assert_eq!(warned, [&["class"][..], &expected, &["subsystem_vendor"]].concat());
    assert!(warnings.iter().all(|warning| warning.reason.ends_with("taken as absent")), "{warnings:?}");
}

#[test]
fn a_numa_node_that_is_garbage_is_warned_of_and_no_other_takes_its_place() {
    let tree = PciTree::new();
    tree.function("pci0000:00/0000:00:01.0", &[("numa_node", "left")]).put("sys/devices/pci0000:00/numa_node", "1");
    let (function, warnings) =
        tree.root().look_warned(|tree| pci::function(tree, address("0000:00:01.0")).unwrap()).unwrap();
    assert_eq!(function.numa_node, None);
    let [TreeWarning { path, reason }] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!(path, "/sys/devices/pci0000:00/0000:00:01.0/numa_node");
    assert_eq!(reason, "\"left\" is not the number of a node; taken as absent");
}

#[test]
fn a_function_that_cannot_be_reached_is_not_taken_for_an_absent_one() {
    let tree = testkit::MachineTree::new();
    tree.raw_link("sys/bus/pci/devices/0000:00:03.0", "0000:00:03.0");
    let failure = tree.root().look(pci::functions).unwrap_err();
    assert_eq!(failure.to_string(), "failed to read /sys/bus/pci/devices/0000:00:03.0/vendor");
}

#[test]
fn functions_that_nobody_wants_cost_three_files_each() {
    let tree = testkit::MachineTree::new();
    let (network, fpga) =
        (FakePciFunction::new("0000:01:00.0", 0x8086, 0x1521), FakePciFunction::new("0000:02:00.0", 0x8086, 0xbcce));
    network.plug(&tree);
    fpga.plug(&tree);
    let counts = Arc::new(testkit::AccessCounts::default());
    let tapped = tree.root().tapped(counts.clone());
    let (found, _) = tapped.look(|tree| pci::functions_where(tree, |function| function.device == 0xbcce)).unwrap();
    assert_eq!(found, [tree.look(|tree| pci::function(tree, address("0000:02:00.0"))).unwrap()]);
    let touched = counts.take();
    let of_network = touched.keys().filter(|(_, path)| path.to_string_lossy().contains("0000:01:00.0"));
    assert_eq!(of_network.count(), 3, "{touched:?}");
    assert!(tree.look(|tree| pci::function(tree, address("0000:03:00.0"))).is_err());
    assert_eq!(tree.look(|tree| pci::folder(tree, address("0000:02:00.0"))), fpga.folder());
}

#[test]
fn a_machine_without_pci_has_no_functions() {
    assert_eq!(all(&PciTree::new().root()), []);
}

#[test]
fn this_machine_is_read() {
    let functions = all(&SysRoot::host());
    for function in &functions {
        let config = pci::read_config(&SysRoot::host(), function.address).unwrap();
        assert!(config.len() >= 64, "{}", function.address);
    }
}
