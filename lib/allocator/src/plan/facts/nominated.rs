//! Pods that wait and are nominated for a node: kube-scheduler gives none of their room there to pods that are not more
//! important. They are few, and are held unpacked.

use std::sync::Arc;

use hostler_api::{ObjectKey, core::Pod};

use super::ClusterFacts;
use crate::plan::{
    node_use::NodeUse,
    pod_terms::{PodIdentity, PodTerm, repelling},
    priority::priority,
};

/// A pod that is nominated for a node.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::plan) struct NominatedPod {
    pub(in crate::plan) node: String,
    pub(in crate::plan) priority: i32,
    pub(in crate::plan) holds: NodeUse,
    pub(in crate::plan) identity: PodIdentity,
}

impl NominatedPod {
    fn of(pod: &Pod) -> Option<Self> {
        let node = pod.nominated_node()?.to_owned();
        let namespace = pod.metadata.namespace.clone();
        let identity = PodIdentity {
            far: PodTerm::of_standing(repelling(&pod.spec), &namespace),
            labels: pod.metadata.labels.clone(),
            namespace,
        };
        Some(Self { node, priority: priority(&pod.spec).0, holds: NodeUse::of_pod(&pod.spec), identity })
    }
}

impl ClusterFacts {
    /// Takes news of a pod that may be nominated.
    pub(super) fn see_nominated(&mut self, key: &ObjectKey, pod: &Pod) {
        match NominatedPod::of(pod) {
            Some(nominated) if self.nominated.get(key).map(|known| &**known) != Some(&nominated) => {
                // The pod may leave a node.
                if Arc::make_mut(&mut self.nominated).insert(key.clone(), Arc::new(nominated)).is_some() {
                    self.changes.gained();
                }
                self.changes.pods();
            }
            Some(_) => {}
            None => self.forget_nominated(key),
        }
    }

    /// Forgets that a pod is nominated.
    pub(super) fn forget_nominated(&mut self, key: &ObjectKey) {
        if self.nominated.contains_key(key) {
            Arc::make_mut(&mut self.nominated).remove(key);
            self.changes.gained();
            self.changes.pods();
        }
    }
}
