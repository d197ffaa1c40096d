//! Nodes that have memory for the kernel's own use.
//!
//! Memory that may be taken away again, as that of CXL cards, is online as *movable*: it holds what programs allocate,
//! and nothing that the kernel needs for them. A process whose nodes have no other memory cannot even write into a
//! pipe (`Cannot allocate memory`), however much is free.

use std::collections::BTreeMap;

use crate::{IdSet, ReadFailure, SysRoot, TreeReading};

const NODES: &str = "sys/devices/system/node";

/// Nodes on which the kernel can allocate for itself, at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KernelMemory {
    /// Nodes with memory of every kind; `None` where the kernel does not say: it is older than memory that can be
    /// taken away.
    normal: Option<IdSet>,
    /// Nodes with such memory, the nearest first, for each of the other nodes.
    nearest: BTreeMap<u32, Vec<(u32, u32)>>,
}

impl KernelMemory {
    /// Reads which nodes have such memory.
    ///
    /// # Errors
    /// When it cannot be told which nodes have such memory.
    pub fn read(root: &SysRoot) -> Result<Self, ReadFailure> {
        root.look(Self::of_tree)
    }

    fn of_tree(tree: &TreeReading<'_>) -> Self {
        let list = |name: &str| tree.attribute(format!("{NODES}/{name}")).and_then(|text| text.parse::<IdSet>().ok());
        let (Some(normal), Some(online)) = (list("has_normal_memory"), list("online")) else { return Self::default() };
        let nearest = |node| {
            let mut distances = distances(tree, node, &online);
            distances.retain(|(_, node)| normal.contains(*node));
            distances.sort_unstable();
            (node, distances)
        };
        // Mostly there is none, and nothing more is read.
        let nearest = online.difference(&normal).iter().map(nearest).collect();
        Self { normal: Some(normal), nearest }
    }

    /// `mems`, and the node nearest to them that has memory of every kind, unless one is among them or there is none.
    #[must_use]
    pub fn complete(&self, mems: &IdSet) -> IdSet {
        let mut all = mems.clone();
        if let Some(normal) = &self.normal
            && !mems.is_empty()
            && mems.is_disjoint(normal)
        {
            let nearest = mems.iter().filter_map(|node| self.nearest.get(&node)?.first()).min();
            all.extend(nearest.map(|(_, node)| *node).or_else(|| normal.first()));
        }
        all
    }
}

/// Completes as [`KernelMemory::complete`] does, for callers that ask once.
///
/// # Errors
/// When it cannot be told which nodes have such memory.
pub fn with_kernel_memory(root: &SysRoot, mems: &IdSet) -> Result<IdSet, ReadFailure> {
    Ok(KernelMemory::read(root)?.complete(mems))
}

/// Distances of the online nodes from a node: distance, then number.
fn distances(tree: &TreeReading<'_>, node: u32, online: &IdSet) -> Vec<(u32, u32)> {
    let row = tree.attribute(format!("{NODES}/node{node}/distance")).unwrap_or_default();
    let row: Vec<u32> = row.split_whitespace().map_while(|distance| distance.parse().ok()).collect();
    row.into_iter().zip(online.iter()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::MachineTree;

    fn machine() -> MachineTree {
        let tree = MachineTree::new();
        tree.files(
            NODES,
            &[
                ("online", "0-1,5"),
                ("has_normal_memory", "0-1"),
                ("node1/distance", "20 10 30"),
                ("node5/distance", "30 20 10"),
            ],
        );
        tree
    }

    fn with(tree: &MachineTree, mems: &str) -> String {
        with_kernel_memory(&tree.root(), &mems.parse().unwrap()).unwrap().to_string()
    }

    #[test]
    fn movable_nodes_alone_get_the_nearest_node_with_other_memory() {
        assert_eq!(with(&machine(), "5"), "1,5");
    }

    #[test]
    fn nodes_among_which_one_has_such_memory_stay_as_they_are() {
        for mems in ["0", "1", "0,5", "0-1,5", ""] {
            assert_eq!(with(&machine(), mems), mems);
        }
    }

    #[test]
    fn without_distances_it_is_the_first_node_and_without_lists_none() {
        let tree = machine();
        tree.remove(format!("{NODES}/node5/distance"));
        assert_eq!(with(&tree, "5"), "0,5");
        tree.remove(format!("{NODES}/has_normal_memory"));
        assert_eq!(with(&tree, "5"), "5");
    }
}
