//! PCI functions of made-up machines.

use std::path::{Path, PathBuf};

use super::MachineTree;

/// A PCI function. [`FakePciFunction::new`] gives an endpoint on bus 0 with 4096 bytes of configuration space; change what
/// matters, then [`plug`](FakePciFunction::plug) it in.
#[derive(Clone, Debug)]
pub struct FakePciFunction {
    /// `0000:b1:00.0`.
    pub address: String,
    /// Folders between `sys/devices` and the function's own, the host bridge first: `pci0000:b0`, `0000:b0:01.0`.
    pub above: Vec<String>,
    /// Maker and model.
    pub id: (u16, u16),
    /// Board maker and board.
    pub subsystem: (u16, u16),
    /// 24 bits.
    pub class: u32,
    /// What `numa_node` says; -1 where nobody knows.
    pub numa_node: i32,
    /// The bound driver.
    pub driver: Option<String>,
    /// The IOMMU group.
    pub iommu_group: Option<u32>,
    /// The configuration space; a virtual function's reads as ffff.
    pub config: Vec<u8>,
    /// More attributes.
    pub attributes: Vec<(String, String)>,
}

impl FakePciFunction {
    /// A function at `address`, in the root bus of its domain.
    pub fn new(address: &str, vendor: u16, device: u16) -> Self {
        let domain_and_bus = address.rsplit_once(':').unwrap().0;
        Self {
            address: address.to_owned(),
            above: vec![format!("pci{domain_and_bus}")],
            id: (vendor, device),
            subsystem: (0, 0),
            class: 0,
            numa_node: -1,
            driver: None,
            iommu_group: None,
            config: ConfigSpace::new(vendor, device).bytes(),
            attributes: Vec::new(),
        }
    }

    /// Its folder in the tree.
    pub fn folder(&self) -> PathBuf {
        let above: PathBuf = self.above.iter().collect();
        Path::new("sys/devices").join(above).join(&self.address)
    }

    /// Puts it into a tree.
    pub fn plug(&self, tree: &MachineTree) -> PathBuf {
        let folder = self.folder();
        let (vendor, device) = self.id;
        let (subsystem_vendor, subsystem_device) = self.subsystem;
        tree.file(folder.join("vendor"), format!("{vendor:#06x}"))
            .file(folder.join("device"), format!("{device:#06x}"))
            .file(folder.join("subsystem_vendor"), format!("{subsystem_vendor:#06x}"))
            .file(folder.join("subsystem_device"), format!("{subsystem_device:#06x}"))
            .file(folder.join("class"), format!("{:#08x}", self.class))
            .file(folder.join("revision"), "0x00")
            .file(folder.join("numa_node"), self.numa_node.to_string())
            .bytes(folder.join("config"), &self.config)
            .link(Path::new("sys/bus/pci/devices").join(&self.address), &folder)
            .link(folder.join("subsystem"), "sys/bus/pci");
        for (name, text) in &self.attributes {
            tree.file(folder.join(name), text);
        }
        if let Some(driver) = &self.driver {
            let driver = Path::new("sys/bus/pci/drivers").join(driver);
            tree.folder(&driver).link(folder.join("driver"), &driver);
            tree.link(driver.join(&self.address), &folder);
        }
        if let Some(group) = self.iommu_group {
            let group = Path::new("sys/kernel/iommu_groups").join(group.to_string());
            tree.link(folder.join("iommu_group"), &group);
            tree.link(group.join("devices").join(&self.address), &folder);
        }
        folder
    }

    /// Takes it out of a tree.
    pub fn pull(&self, tree: &MachineTree) {
        tree.remove(Path::new("sys/bus/pci/devices").join(&self.address)).remove(self.folder());
        if let Some(driver) = &self.driver {
            tree.remove(Path::new("sys/bus/pci/drivers").join(driver).join(&self.address));
        }
        if let Some(group) = self.iommu_group {
            let group = Path::new("sys/kernel/iommu_groups").join(group.to_string());
            tree.remove(group.join("devices").join(&self.address));
        }
    }
}

/// 4096 bytes of configuration space, capability by capability.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: Vec<u8>,
    /// The last extended capability, and where the next one can begin.
    last: Option<usize>,
    free: usize,
}

impl ConfigSpace {
    /// A header with ids and no capability.
    pub fn new(vendor: u16, device: u16) -> Self {
        let mut space = Self { bytes: vec![0; 4096], last: None, free: 0x100 };
        space.put(0, &vendor.to_le_bytes());
        space.put(2, &device.to_le_bytes());
        space
    }

    /// Appends an extended capability with this body after its four-byte header, and gives its offset.
    pub fn capability(&mut self, id: u16, version: u8, body: &[u8]) -> usize {
        let offset = self.free;
        if let Some(last) = self.last {
            let next = u16::try_from(offset).unwrap() << 4 | u16::from(self.bytes[last + 2] & 0xf);
            self.put(last + 2, &next.to_le_bytes());
        }
        self.put(offset, &id.to_le_bytes());
        self.put(offset + 2, &u16::from(version).to_le_bytes());
        self.put(offset + 4, body);
        self.last = Some(offset);
        self.free = (offset + 4 + body.len()).next_multiple_of(16);
        offset
    }

    /// Appends a designated vendor-specific capability: `body` follows its ten-byte header.
    pub fn dvsec(&mut self, vendor: u16, id: u16, revision: u8, body: &[u8]) -> usize {
        let length = u16::try_from(body.len() + 10).unwrap();
        let mut whole = vendor.to_le_bytes().to_vec();
        whole.extend((length << 4 | u16::from(revision)).to_le_bytes());
        whole.extend(id.to_le_bytes());
        whole.extend(body);
        self.capability(0x23, 1, &whole)
    }

    /// Overwrites bytes.
    pub fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// All of it.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::{extended_capabilities, functions, read_config};

    #[test]
    fn a_plugged_function_is_read_as_it_was_made_and_gone_when_pulled() {
        let tree = MachineTree::new();
        let mut config = ConfigSpace::new(0x1e98, 0x0002);
        config.capability(1, 2, &[0; 8]);
        config.dvsec(0x1e98, 7, 2, &[0x26, 0]);
        let card = FakePciFunction {
            above: vec!["pci0000:40".to_owned(), "0000:40:00.0".to_owned()],
            numa_node: 1,
            driver: Some("vfio-pci".to_owned()),
            iommu_group: Some(7),
            config: config.bytes(),
            ..FakePciFunction::new("0000:41:00.0", 0x1e98, 0x0002)
        };
        card.plug(&tree);
        let (found, warnings) = tree.look(functions);
        assert_eq!(warnings, []);
        assert_eq!((found[0].numa_node, found[0].iommu_group), (Some(1), Some(7)));
        assert_eq!(found[0].driver.as_deref(), Some("vfio-pci"));
        let capabilities = extended_capabilities(&read_config(&tree.root(), found[0].address).unwrap());
        let dvsec = capabilities[1].dvsec.unwrap();
        assert_eq!((capabilities[0].id, dvsec.vendor, dvsec.id, dvsec.revision, dvsec.length), (1, 0x1e98, 7, 2, 12));
        card.pull(&tree);
        assert_eq!(tree.look(functions).0, []);
    }
}
