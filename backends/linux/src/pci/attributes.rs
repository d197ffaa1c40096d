//! Attributes of one function, with a warning of each that makes no sense.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use super::{PciAddress, Sriov};
use crate::{IdSet, TreeReading, place};

/// Reads the attributes in a function's folder. One that is absent or makes no sense is `None`, the latter with a
/// warning.
#[derive(Clone, Copy)]
pub(super) struct FunctionAttributes<'a> {
    pub(super) tree: &'a TreeReading<'a>,
    pub(super) folder: &'a Path,
}

impl FunctionAttributes<'_> {
    /// The text of an attribute that is there and not empty.
    pub(super) fn text(self, name: &str) -> Option<String> {
        self.tree.attribute(place(self.folder, name)).filter(|text| !text.is_empty())
    }

    /// An id, which is hexadecimal.
    pub(super) fn id<T: TryFrom<u32>>(self, name: &str) -> Option<T> {
        self.understood(name, &self.text(name)?, "a hexadecimal number in range", hex)
    }

    /// The group that the function is isolated with.
    pub(super) fn iommu_group(self) -> Option<u32> {
        let group = self.tree.link_name(place(self.folder, "iommu_group"))?;
        self.understood("iommu_group", &group, "the number of a group", |group| group.parse().ok())
    }

    /// The node of the function or of its nearest ancestor that has one: firmware often tells it for the host bridge
    /// only. Where the first that says something says garbage, the node is unknown: that of an ancestor may be
    /// another.
    pub(super) fn numa_node(self) -> Option<u32> {
        let above = |folder: &&Path| folder.starts_with("sys/devices") && *folder != Path::new("sys/devices");
        let own = std::iter::once(self.folder);
        let folders = own.chain(self.folder.ancestors().skip(1).take_while(above));
        folders.map(|folder| Self { folder, ..self }.own_node()).find(|node| *node != ToldNode::None)?.known()
    }

    fn own_node(self) -> ToldNode {
        let Some(text) = self.text("numa_node") else { return ToldNode::None };
        let node = self.understood("numa_node", &text, "the number of a node", |text| text.parse::<i32>().ok());
        // -1 is the kernel's word for no node.
        node.map_or(ToldNode::Garbage, |node| u32::try_from(node).map_or(ToldNode::None, ToldNode::Known))
    }

    /// The CPUs that are near. Old kernels have the mask and not the list.
    pub(super) fn local_cpus(self) -> Option<IdSet> {
        let set = |name: &str, expected: &str, parse: fn(&str) -> Option<IdSet>| {
            let text = self.tree.attribute(place(self.folder, name))?;
            self.understood(name, &text, expected, parse)
        };
        set("local_cpulist", "a list of CPUs", |text| IdSet::from_str(text).ok())
            .or_else(|| set("local_cpus", "a mask of CPUs", |text| IdSet::from_mask(text).ok()))
    }

    /// The abilities of the function as the parent of virtual functions.
    pub(super) fn sriov(self) -> Option<Sriov> {
        let number = |name: &str| -> Option<u32> {
            self.understood(name, &self.text(name)?, "a number", |text| text.parse().ok())
        };
        Some(Sriov {
            total: number("sriov_totalvfs")?,
            enabled: number("sriov_numvfs").unwrap_or(0),
            autoprobe: number("sriov_drivers_autoprobe").map(|value| value != 0),
        })
    }

    /// The virtual functions that exist, by index.
    pub(super) fn virtual_functions(self) -> Vec<PciAddress> {
        let names = self.tree.names(self.folder);
        let mut links: Vec<(u32, &String)> =
            names.iter().filter_map(|name| Some((name.strip_prefix("virtfn")?.parse().ok()?, name))).collect();
        links.sort_unstable();
        links.iter().filter_map(|(_, name)| self.linked_function(name)).collect()
    }

    /// The function that a link leads to.
    pub(super) fn linked_function(self, name: &str) -> Option<PciAddress> {
        let target = self.tree.link_name(place(self.folder, name))?;
        self.understood(name, &target, "a PCI address", |target| target.parse().ok())
    }

    fn understood<T>(self, name: &str, text: &str, expected: &str, parse: fn(&str) -> Option<T>) -> Option<T> {
        let file: PathBuf = place(self.folder, name);
        self.tree.understood(file, text, expected, parse)
    }
}

/// The NUMA node that one folder names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ToldNode {
    Known(u32),
    None,
    Garbage,
}

impl ToldNode {
    fn known(self) -> Option<u32> {
        match self {
            Self::Known(node) => Some(node),
            Self::None | Self::Garbage => None,
        }
    }
}

/// A hexadecimal number, with `0x` before it or without.
pub(super) fn hex<T: TryFrom<u32>>(text: &str) -> Option<T> {
    let number = u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()?;
    T::try_from(number).ok()
}
