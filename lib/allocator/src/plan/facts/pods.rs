//! Pods that hold something of their node. Replicas have one specification, which is held once.

use hostler_api::core::{Pod, PodSpec, Volume};

use super::{
    compact::Renumbering,
    slices::{from_json, intern_json},
};
use crate::plan::sequences::Texts;

/// A pod on a node, in numbers of texts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::plan) struct PackedPod {
    pub(in crate::plan) node: u32,
    /// Spec of the pod without its node.
    pub(in crate::plan) spec: u32,
    /// True if the pod belongs to its node, as the pods of a DaemonSet and those of files on the node do.
    pub(in crate::plan) is_of_node: bool,
    /// Kind and name of the pod's first owner, if any.
    pub(in crate::plan) owner: Option<u32>,
}

impl PackedPod {
    /// Packs a pod that has a node and has not ended.
    pub(in crate::plan) fn pack(pod: &Pod, texts: &mut Texts) -> Option<Self> {
        if !pod.is_on_a_node() {
            return None;
        }
        let owner = pod.metadata.owner_references.first();
        let mut spec = PodSpec { node_name: None, ..pod.spec.clone() };
        // Every pod has a volume of a name of its own, for its token: replicas would have nothing in common.
        spec.volumes.retain(Volume::is_claimed);
        Some(Self {
            node: texts.intern(pod.node()?),
            spec: intern_json(texts, &spec),
            is_of_node: owner.is_some_and(|owner| matches!(&*owner.kind, "DaemonSet" | "Node")),
            owner: owner.map(|owner| texts.intern(&format!("{} {}", owner.kind, owner.name))),
        })
    }

    /// Returns the pod with other numbers of texts.
    pub(super) fn renumbered(&self, to: &mut impl Renumbering) -> Self {
        Self {
            node: to.text(self.node),
            spec: to.text(self.spec),
            is_of_node: self.is_of_node,
            owner: self.owner.map(|owner| to.text(owner)),
        }
    }

    /// Unpacks the spec of the pod.
    pub(in crate::plan) fn spec(&self, texts: &Texts) -> PodSpec {
        from_json(texts, self.spec).unwrap_or_default()
    }
}
