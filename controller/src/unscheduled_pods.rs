//! Pods that wait for a node, as far as it decides whether a place is kept for them. Pure.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::{
    ObjectKey,
    core::{ContainerPort, Pod, PodSchedulingGate, ResourceList},
    provisioning::CONSUME_ANNOTATIONS,
    reservation::{EXACT_MATCH_RESERVATION, OwnerController, PLACEMENT_GATE, RESERVATION_AFFINITY, RESERVATION_GATE},
};
use hostler_cluster::ObjectVersion;
use hostler_reconcile::ObjectStamp;

use crate::owner_pod::OwnerPod;

/// Pods without a node that the scheduler may place, and pods that wait by the gate `hostler.dev/reservation`.
pub(crate) type UnscheduledPods = BTreeMap<ObjectKey, Arc<UnscheduledPod>>;

/// The scheduling gates of a pod.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum PodGates {
    /// None: the scheduler may place the pod.
    #[default]
    Open,
    /// `hostler.dev/reservation` alone: the pod can be given a place.
    Own,
    /// `hostler.dev/reservation` and gates of other programs, for which the pod waits as well.
    OwnAndOthers,
    /// `hostler.dev/reservation` and the gate of direct mode, which gives the pod its devices and its node.
    OwnAndPlacement,
    /// Gates of other programs alone.
    Others,
}

impl PodGates {
    /// Sums up the gates of a pod.
    pub(crate) fn of(gates: &[PodSchedulingGate]) -> Self {
        let has = |name: &str| gates.iter().any(|gate| gate.name == name);
        match (has(RESERVATION_GATE), has(PLACEMENT_GATE), gates.len()) {
            (_, _, 0) => Self::Open,
            (false, ..) => Self::Others,
            (true, true, _) => Self::OwnAndPlacement,
            (true, false, 1) => Self::Own,
            (true, false, _) => Self::OwnAndOthers,
        }
    }

    /// True if `hostler.dev/reservation` is among them.
    pub(crate) fn has_own(self) -> bool {
        !matches!(self, Self::Open | Self::Others)
    }

    /// True if the pod can be given a place: nothing else holds it back.
    pub(crate) fn let_a_place(self) -> bool {
        matches!(self, Self::Open | Self::Own)
    }
}

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
    /// Creation time, RFC 3339; empty for a pod that is being made.
    pub(crate) created: String,
    /// Scheduling gates.
    pub(crate) gates: PodGates,
}

impl UnscheduledPod {
    /// Returns the pod if it waits for the scheduler or for us: it has no node and no gates of other programs alone, and
    /// is not ending.
    pub(crate) fn of(pod: &Pod, stamp: ObjectStamp) -> Option<Self> {
        let meta = &pod.metadata;
        let ends = meta.deletion_timestamp.is_some() || matches!(&*pod.status.phase, "Succeeded" | "Failed");
        let gates = PodGates::of(&pod.spec.scheduling_gates);
        if pod.node().is_some() || ends || gates == PodGates::Others {
            return None;
        }
        Some(Self::new(pod, stamp, gates))
    }

    /// Returns a pod that is being made, as it would be with the gate `hostler.dev/reservation`.
    pub(crate) fn in_the_making(pod: &Pod) -> Self {
        let nothing = ObjectVersion { uid: String::new(), resource_version: String::new() };
        let mut gates = pod.spec.scheduling_gates.clone();
        gates.push(PodSchedulingGate { name: RESERVATION_GATE.to_owned() });
        Self::new(pod, ObjectStamp::from(&nothing), PodGates::of(&gates))
    }

    fn new(pod: &Pod, stamp: ObjectStamp, gates: PodGates) -> Self {
        let meta = &pod.metadata;
        let is_read = |annotation: &str| {
            [RESERVATION_AFFINITY, EXACT_MATCH_RESERVATION].contains(&annotation)
                || CONSUME_ANNOTATIONS.contains(&annotation)
        };
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
        Self { stamp, owner, requests: pod.spec.requests(), ports: pod.spec.host_ports(), created, gates }
    }
}
