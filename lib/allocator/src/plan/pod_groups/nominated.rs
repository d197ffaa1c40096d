//! Pods that are nominated for a node, as kube-scheduler counts them for other pods: on that node alone, and never as
//! ones to be near to, since they may come to another node.

/// Counts of the pods that are nominated for one node.
#[derive(Debug, Default)]
pub(super) struct NominatedCounts {
    /// The label of nodes in whose domain the set's anti-affinity finds one of the pods.
    pub(super) far: Option<String>,
    /// The label of nodes in whose domain one of the pods keeps the set away.
    pub(super) repelling: Option<String>,
    /// Number of the pods that each constraint of the set's topology spread counts.
    pub(super) spread: Vec<u64>,
}

impl NominatedCounts {
    /// Returns true if none of the pods keeps the set away from the node.
    pub(super) fn allows(&self) -> bool {
        self.far.is_none() && self.repelling.is_none()
    }
}
