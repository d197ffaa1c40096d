//! `[topology_export]`: the export of the node's topology to topology-aware schedulers.

use serde::{Deserialize, Serialize};

/// `[topology_export]`: a NodeResourceTopology of this node.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct TopologyExportConfig {
    /// True if the daemon keeps the object, where the API server has its CRD; only in Kubernetes mode.
    pub enabled: bool,
    /// The kubelet's `topologyManagerPolicy`, which only its configuration says. The export leaves it out where this is
    /// absent.
    pub topology_manager_policy: Option<TopologyManagerPolicy>,
    /// The kubelet's `topologyManagerScope`.
    pub topology_manager_scope: Option<TopologyManagerScope>,
}

/// Alignment of a container's resources by the kubelet.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyManagerPolicy {
    /// No alignment.
    None,
    /// Aligned where that is possible.
    BestEffort,
    /// As well aligned as is possible on an empty node; other pods are refused.
    Restricted,
    /// On one NUMA node; other pods are refused.
    SingleNumaNode,
}

impl TopologyManagerPolicy {
    /// The policy as the kubelet spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }
}

/// Unit whose resources the kubelet aligns.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyManagerScope {
    /// Each container for itself.
    Container,
    /// All containers of a pod together.
    Pod,
}

impl TopologyManagerScope {
    /// The scope as the kubelet spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
        }
    }
}
