//! The stock of a cluster's devices, for readers: nodes, and sums over them. A value of one moment; what did not change
//! since the last value is shared with it.

mod account;
mod node;
mod sums;
mod tally;

use std::sync::Arc;

use hostler_api::{SharedMap, hardware::ClusterNodeCounts};

pub(crate) use account::StockAccount;
pub(crate) use node::{NodeCell, NodeSummary};
pub(crate) use sums::ClusterSums;
pub(crate) use tally::{Tally, add_totals};

/// The stock of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterStock {
    /// Nodes by name, including those that are gone, as long as any object names devices of them.
    pub(crate) nodes: SharedMap<Arc<str>, Arc<NodeSummary>>,
    /// Devices that belong to no single node.
    pub(crate) elsewhere: Arc<NodeSummary>,
    /// Sums over all nodes and the devices elsewhere.
    pub(crate) sums: ClusterSums,
    /// Numbers of nodes by the state of their reports.
    pub(crate) reports: ClusterNodeCounts,
}

#[cfg(test)]
mod tests;
