//! Edits that claims on CXL hardware can have been given, against which their records are checked.

use hostler_api::Chain;
use hostler_backend::{ContainerEdits, EditScope, ForeignEdits, VerifyWork};
use hostler_cdi::DeviceNode;
use hostler_linux::{
    SysRoot, TreeReading,
    pci::{self, PciAddress},
    vfio,
};

use crate::{enumerate, plan::CxlPlan};

/// The node of any dax device: the kernel numbers dax devices anew with every mapping.
const DAX_NODE: &str = "/dev/dax#.#";

/// Checks the edits of a claim's device.
///
/// # Errors
/// When they hold an edit that the device never gives.
pub(crate) fn check(root: &SysRoot, work: &VerifyWork<'_>, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
    // An edit that cannot be judged counts as not given.
    let unread = |failure| ForeignEdits { what: format!("what cannot be checked now ({})", Chain(&failure)) };
    root.look(|tree| check_in(tree, work, edits)).map_err(unread)?
}

fn check_in(tree: &TreeReading<'_>, work: &VerifyWork<'_>, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
    let scope = match CxlPlan::read(work.plan) {
        Ok(Some(CxlPlan::Accelerator { vfio: true, .. })) => EditScope::nodes(vfio::NODE_PATTERNS),
        Ok(Some(CxlPlan::Accelerator { address, .. })) => made_by_driver(tree, address, edits),
        Ok(Some(CxlPlan::Memory { system_ram: false, .. } | CxlPlan::Dax { .. })) => EditScope::nodes([DAX_NODE]),
        Ok(Some(CxlPlan::Memory { .. } | CxlPlan::Node { .. })) | Err(_) => EditScope::default(),
        Ok(None) => return looked_after(tree, work, edits),
    };
    scope.check(edits)
}

/// Administrative access leaves no plan: it gives the nodes of the device that the grant names.
fn looked_after(tree: &TreeReading<'_>, work: &VerifyWork<'_>, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
    let functions = tree.names("sys/bus/pci/devices").into_iter().filter_map(|name| name.parse::<PciAddress>().ok());
    let mut named = functions.filter(|address| work.grant.device.as_str() == enumerate::accelerator_name(*address));
    match named.next() {
        Some(address) => made_by_driver(tree, address, edits).check(edits),
        None => EditScope::nodes([DAX_NODE]).check(edits),
    }
}

/// The nodes that the driver of a function has made. While there are none, because the function or its driver is
/// gone, a record may go on naming them: a node that is not there gives nothing.
fn made_by_driver(tree: &TreeReading<'_>, address: PciAddress, edits: &ContainerEdits) -> EditScope {
    let now = enumerate::driver_nodes(tree, &pci::folder(tree, address));
    let device_nodes = if now.is_empty() {
        edits.device_nodes.iter().filter(|node| is_absent(tree, node)).cloned().collect()
    } else {
        now
    };
    EditScope::exactly(ContainerEdits { device_nodes, ..ContainerEdits::default() })
}

fn is_absent(tree: &TreeReading<'_>, node: &DeviceNode) -> bool {
    let plain = DeviceNode { path: node.path.clone(), ..DeviceNode::default() };
    let below = node.path.strip_prefix("/dev/").filter(|name| name.split('/').all(is_plain));
    *node == plain && below.is_some_and(|name| !tree.exists(format!("dev/{name}")))
}

/// True for a part that leads neither upwards nor nowhere.
fn is_plain(part: &str) -> bool {
    !part.is_empty() && !part.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(path: &str) -> DeviceNode {
        DeviceNode { path: path.to_owned(), ..DeviceNode::default() }
    }

    #[test]
    fn of_a_function_that_is_gone_only_nodes_that_are_gone_too_are_believed() {
        let machine = tempfile::tempdir().unwrap();
        std::fs::create_dir(machine.path().join("dev")).unwrap();
        std::fs::write(machine.path().join("dev/mem"), "").unwrap();
        let root = SysRoot::new(machine.path());
        let check = |node: DeviceNode| {
            let edits = ContainerEdits { device_nodes: vec![node], ..ContainerEdits::default() };
            let address = "0000:17:00.0".parse().unwrap();
            root.look(|tree| made_by_driver(tree, address, &edits)).unwrap().check(&edits)
        };
        check(node("/dev/accel/accel0")).unwrap();
        for path in ["/dev/mem", "/dev/accel/accel0/../../mem", "/dev//mem", "/dev/./mem", "/etc/absent"] {
            assert_eq!(check(node(path)).unwrap_err().what, format!("the device node {path}"));
        }
        check(DeviceNode { host_path: Some("/dev/mem".to_owned()), ..node("/dev/accel/accel0") }).unwrap_err();
    }
}
