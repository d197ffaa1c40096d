//! The stock of a cluster, as readers see it: nodes, and sums over them. A value of one moment; what did not change
//! since the one before is shared with it.

mod account;
mod node;
mod sums;

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::hardware::ClusterNodeCounts;

pub(crate) use account::StockAccount;
pub(crate) use node::{NodeCell, NodeSummary};
pub(crate) use sums::{ClusterSums, Tally, add_totals};

/// The stock of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterStock {
    /// Nodes by name, also those that are gone, as long as any object says something of their devices.
    pub(crate) nodes: BTreeMap<Arc<str>, Arc<NodeSummary>>,
    /// Devices that belong to no single node.
    pub(crate) elsewhere: Arc<NodeSummary>,
    /// Sums over all of them.
    pub(crate) sums: ClusterSums,
    /// How many nodes report.
    pub(crate) reports: ClusterNodeCounts,
}

#[cfg(test)]
mod tests;
