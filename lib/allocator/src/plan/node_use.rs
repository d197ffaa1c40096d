//! Resources and ports that pods take of a node.

use hostler_api::core::{ContainerPort, PodSpec};

use super::amounts::Amounts;

/// Taken resources and ports of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NodeUse {
    pub(super) amounts: Amounts,
    pub(super) ports: Vec<ContainerPort>,
}

impl NodeUse {
    /// Returns the resources and ports that a pod takes.
    pub(super) fn of_pod(spec: &PodSpec) -> Self {
        Self { amounts: Amounts::of_pod(&spec.requests()), ports: spec.host_ports() }
    }

    pub(super) fn add(&mut self, pod: &Self, times: i64) {
        self.amounts.add(&pod.amounts, times);
        self.ports.extend(pod.ports.iter().cloned());
    }
}
