//! Pods that wait for a node, as far as it decides whether a place is kept for them. Pure.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::{
    ObjectKey,
    core::{ContainerPort, Pod, ResourceList},
    provisioning::CONSUME_ANNOTATIONS,
    reservation::{OwnerController, RESERVATION_AFFINITY},
};
use hostler_reconcile::ObjectStamp;

use crate::owner_pod::OwnerPod;

/// Pods without a node that the scheduler may place.
pub(crate) type UnscheduledPods = BTreeMap<ObjectKey, Arc<UnscheduledPod>>;

/// A pod that waits for a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnscheduledPod {
    /// Version of the pod.
    pub(crate) stamp: ObjectStamp,
    /// Identity, labels, annotations and controller.
    pub(crate) owner: OwnerPod,
    /// Amounts that the pod sets aside on its node.
    pub(crate) requests: ResourceList,
    /// Ports of the node that it takes.
    pub(crate) ports: Vec<ContainerPort>,
    /// Creation time, RFC 3339.
    pub(crate) created: String,
}

impl UnscheduledPod {
    /// Returns the pod if it waits for the scheduler: it has no node and no gate, and is not ending.
    pub(crate) fn of(pod: &Pod, stamp: ObjectStamp) -> Option<Self> {
        let meta = &pod.metadata;
        let ends = meta.deletion_timestamp.is_some() || matches!(&*pod.status.phase, "Succeeded" | "Failed");
        if pod.node().is_some() || ends || !pod.spec.scheduling_gates.is_empty() {
            return None;
        }
        let is_read =
            |annotation: &str| annotation == RESERVATION_AFFINITY || CONSUME_ANNOTATIONS.contains(&annotation);
        let annotations = meta.annotations.iter().filter(|(key, _)| is_read(key));
        let controller = meta.owner_references.iter().find(|owner| owner.controller == Some(true));
        let owner = OwnerPod {
            uid: meta.uid.clone().unwrap_or_default(),
            labels: meta.labels.clone(),
            annotations: annotations.map(|(key, value)| (key.clone(), value.clone())).collect(),
            controller: controller.map(|owner| OwnerController {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
                namespace: String::new(),
                name: owner.name.clone(),
                uid: owner.uid.clone(),
            }),
            priority: pod.spec.priority.unwrap_or_default(),
            ..OwnerPod::default()
        };
        let created = meta.creation_timestamp.clone().unwrap_or_default();
        Some(Self { stamp, owner, requests: pod.spec.requests(), ports: pod.spec.host_ports(), created })
    }
}
