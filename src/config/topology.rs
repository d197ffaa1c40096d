//! `[topology_export]`: what is told to topology-aware schedulers.

use serde::{Deserialize, Serialize};

/// `[topology_export]`: a NodeResourceTopology of this node.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct TopologyExportConfig {
    /// Whether one is kept, where the API server has its CRD; only in Kubernetes mode.
    pub enabled: bool,
    /// The kubelet's `topologyManagerPolicy`, which only its configuration says. Nothing is told of it without this.
    pub topology_manager_policy: Option<TopologyManagerPolicy>,
    /// The kubelet's `topologyManagerScope`.
    pub topology_manager_scope: Option<TopologyManagerScope>,
}

/// How the kubelet aligns what containers get.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyManagerPolicy {
    /// Not at all.
    None,
    /// Where that is possible.
    BestEffort,
    /// As well as is possible on an empty node, or not at all.
    Restricted,
    /// On one NUMA node, or not at all.
    SingleNumaNode,
}

impl TopologyManagerPolicy {
    /// As the kubelet spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }
}

/// Of what the kubelet aligns the parts.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyManagerScope {
    /// Each container for itself.
    Container,
    /// All containers of a pod together.
    Pod,
}

impl TopologyManagerScope {
    /// As the kubelet spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
        }
    }
}
