//! The device nodes of a function that `vfio-pci` holds.

use super::{VfioError, folder, group};
use crate::{SysRoot, pci::PciAddress};

/// Patterns for the paths of [`VfioNodes::all`]; `#` stands for a number.
pub const NODE_PATTERNS: [&str; 4] = ["/dev/vfio/vfio", "/dev/iommu", "/dev/vfio/#", "/dev/vfio/devices/vfio#"];

/// Paths of device nodes, as on the host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VfioNodes {
    /// The group's own node, `/dev/vfio/<group>`.
    pub group: String,
    /// The function's own node, `/dev/vfio/devices/vfio<N>`, where the kernel has such nodes and iommufd.
    pub device: Option<String>,
}

impl VfioNodes {
    /// Everything that a user of the function opens, in either way: by group or by iommufd.
    pub fn all(&self) -> Vec<String> {
        let shared =
            ["/dev/vfio/vfio".to_owned()].into_iter().chain(self.device.iter().map(|_| "/dev/iommu".to_owned()));
        shared.chain(self.own()).collect()
    }

    /// Nodes that belong to this group or function alone.
    pub fn own(&self) -> Vec<String> {
        [self.group.clone()].into_iter().chain(self.device.clone()).collect()
    }
}

/// The nodes of a function that is bound to `vfio-pci`. Every one is there.
///
/// # Errors
/// When the function is gone, has no group, or a node is absent.
pub fn nodes(root: &SysRoot, address: PciAddress) -> Result<VfioNodes, VfioError> {
    let folder = folder(root, address)?;
    let group = group(root, &folder)?.ok_or(VfioError::NoGroup { address })?;
    // `vfio3`; the folder is absent before Linux 6.1, and iommufd may be switched off later too.
    let names = root.names(folder.join("vfio-dev"))?;
    let own = names.iter().find(|name| name.strip_prefix("vfio").is_some_and(|number| number.parse::<u32>().is_ok()));
    let device = own.map(|name| format!("/dev/vfio/devices/{name}"));
    let exists = |node: &str| root.exists(node.trim_start_matches('/'));
    let device = match device {
        Some(node) if exists(&node)? && exists("dev/iommu")? => Some(node),
        _ => None,
    };
    let nodes = VfioNodes { group: format!("/dev/vfio/{group}"), device };
    for path in nodes.all() {
        if !exists(&path)? {
            return Err(VfioError::NoNode { path, address });
        }
    }
    Ok(nodes)
}
