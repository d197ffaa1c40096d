//! Usage by pods: pods, containers, notes of containers and claim records, joined. Pure; [`reader`] keeps the result.
//!
//! ```text
//!   pods of this node (API) ──┐   says which container is to have which request of a claim
//!   containers (runtime) ─────┼──► NodePodUsage
//!   notes (hooks) ────────────┤   say which container was made with which claim
//!   claim records ────────────┘   say what the claim holds, and for whom it was reserved
//! ```
//!
//! The API server's facts on a pod come first. A runtime and the notes add pods that the daemon may not watch, and
//! containers that no pod has. For a claim without a known container, the record's `reservedFor` still names the pod.

mod device;
mod join;
pub mod reader;

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{ClaimRef, ClaimState, ClaimUid};

use crate::{
    claims::{ClaimTable, naming::CdiNaming},
    containers::{ClaimContainer, seen::SeenContainers},
    inventory::Inventory,
    pods::{PodContainerKind, PodName, PodsOfNode},
    registry::BackendRegistry,
};

pub use device::{UsedDevice, UsedMemory, is_of_node, memory_of};
pub use reader::{PodUsageParts, PodUsageReader};

/// The running containers of each claim, as hooks have noted them.
pub type ContainerNotes = BTreeMap<ClaimUid, Vec<ClaimContainer>>;

/// Inputs of the join, from every source.
#[derive(Clone, Copy, Debug)]
pub struct PodUsageFacts<'a> {
    /// This node's pods.
    pub pods: &'a PodsOfNode,
    /// Containers of a runtime that is connected.
    pub seen: &'a SeenContainers,
    /// Notes.
    pub notes: &'a ContainerNotes,
    /// Records.
    pub claims: &'a ClaimTable,
    /// Devices.
    pub inventory: &'a Inventory,
    /// Backends, which know the kinds of devices.
    pub backends: &'a BackendRegistry,
    /// Names of devices in CDI files.
    pub naming: &'a CdiNaming,
}

/// Usage by the pods of this node, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePodUsage {
    /// Every pod that has not ended, by namespace and name; where pods cannot be watched, only pods with claims.
    pub pods: Vec<PodUsage>,
    /// Claims on record that no pod is known to use.
    pub unused: Vec<ClaimUse>,
    /// Pods that are known to have ended.
    pub ended: BTreeSet<PodName>,
}

/// A pod with what it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUsage {
    /// Namespace and name of the pod. A container without a pod counts as one, in its claim's namespace.
    pub name: PodName,
    /// Best source that knows of the pod.
    pub known_by: PodEvidence,
    /// Containers of the pod, in the order of its specification where that is known.
    pub containers: Vec<ContainerUsage>,
    /// Claims for which no using container is known.
    pub claims: Vec<ClaimUse>,
}

/// A source that knows of a pod, the best first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PodEvidence {
    /// The API server.
    Api,
    /// The container runtime.
    Runtime,
    /// A hook that ran in front of one of its containers.
    Note,
    /// The kubelet, where it is asked for its own pods.
    Kubelet,
    /// The record of a claim that was reserved for it.
    Reservation,
}

impl PodEvidence {
    /// Returns the source in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Runtime => "runtime",
            Self::Note => "note",
            Self::Kubelet => "kubelet",
            Self::Reservation => "reservation",
        }
    }
}

/// A container with what it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerUsage {
    /// Name of the container; empty where it is not known.
    pub name: String,
    /// Kind of the container, absent where it is not known.
    pub kind: Option<PodContainerKind>,
    /// The id that its runtime has for it, if it is known.
    pub id: Option<String>,
    /// The claims that it has, or requests of them.
    pub claims: Vec<ClaimUse>,
}

/// Devices that a pod or container has by a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimUse {
    /// The claim; without names where its record is damaged.
    pub claim: ClaimRef,
    /// State of the claim.
    pub state: ClaimState,
    /// Devices of the claim, or of the requests that the container uses.
    pub devices: Vec<UsedDevice>,
}

impl NodePodUsage {
    /// Joins the inputs.
    pub fn of(facts: &PodUsageFacts<'_>) -> Self {
        join::join(facts)
    }

    /// Returns the pod of this name, and adds it if it is not known yet.
    pub fn pod(&mut self, name: &PodName, known_by: PodEvidence) -> &mut PodUsage {
        let place = match self.pods.binary_search_by(|pod| pod.name.cmp(name)) {
            Ok(place) => place,
            Err(place) => {
                self.pods.insert(place, PodUsage::new(name.clone(), known_by));
                place
            }
        };
        &mut self.pods[place]
    }
}

impl PodUsage {
    fn new(name: PodName, known_by: PodEvidence) -> Self {
        Self { name, known_by, containers: Vec::new(), claims: Vec::new() }
    }

    /// Returns the container of this name, and adds it if it is not known yet.
    pub fn container(&mut self, name: &str) -> &mut ContainerUsage {
        let place = self.containers.iter().position(|container| container.name == name);
        let place = place.unwrap_or_else(|| {
            let new = ContainerUsage { name: name.to_owned(), kind: None, id: None, claims: Vec::new() };
            self.containers.push(new);
            self.containers.len() - 1
        });
        &mut self.containers[place]
    }
}

impl ContainerUsage {
    /// Adds devices that the container has by a claim. An earlier entry for the claim is better, and stays.
    pub fn add(&mut self, used: ClaimUse) {
        if self.claims.iter().all(|known| known.claim != used.claim) {
            self.claims.push(used);
        }
    }
}

#[cfg(test)]
mod tests;
