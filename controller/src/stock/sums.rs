//! Sums over nodes. A changed node is subtracted as it was and added as it is; numbers are whole, so nothing of its
//! former state is left.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::hardware::DeviceTotals;

use super::{
    node::NodeSummary,
    tally::{Direction, Tally},
};

/// Sums over all devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClusterSums {
    /// All devices, each counted once.
    pub(crate) all: Tally,
    /// Devices by class. A device that several classes select is in each of them.
    pub(crate) classes: BTreeMap<Arc<str>, Tally>,
    /// Devices that no class selects.
    pub(crate) of_no_class: Tally,
    /// Devices that claims of each namespace have. A device of which two namespaces have parts is in both.
    pub(crate) namespaces: BTreeMap<Arc<str>, Tally>,
    /// Devices of which no claim of the cluster has any part.
    pub(crate) of_nobody: DeviceTotals,
}

impl Direction {
    fn node(self, sums: &mut ClusterSums, node: &NodeSummary) {
        for cell in &node.cells {
            self.tally(&mut sums.all, &cell.tally);
            self.totals(&mut sums.of_nobody, &cell.of_nobody);
            if cell.kind.classes.is_empty() {
                self.tally(&mut sums.of_no_class, &cell.tally);
            }
            for class in cell.kind.classes.iter() {
                self.tally(sums.classes.entry(class.clone()).or_default(), &cell.tally);
            }
        }
        for cell in &node.given {
            self.tally(sums.namespaces.entry(cell.namespace.clone()).or_default(), &cell.tally);
        }
        if let Self::Out = self {
            sums.namespaces.retain(|_, tally| tally.totals.capacity > 0);
        }
    }
}

impl ClusterSums {
    /// Makes sums of no devices, with these classes.
    pub(super) fn of_classes<'c>(classes: impl Iterator<Item = &'c str>) -> Self {
        Self { classes: classes.map(|class| (class.into(), Tally::default())).collect(), ..Self::default() }
    }

    /// Replaces a node's former state by its present state.
    pub(super) fn replace(&mut self, old: Option<&NodeSummary>, new: &NodeSummary) {
        old.iter().for_each(|old| Direction::Out.node(self, old));
        Direction::In.node(self, new);
    }

    /// Removes a node that is not there any more.
    pub(super) fn remove(&mut self, old: &NodeSummary) {
        Direction::Out.node(self, old);
    }
}
