//! Which pods hold what: pods, containers, notes of containers and claim records, joined. Pure; [`reader`] keeps it.
//!
//! ```text
//!   pods of this node (API) ──┐   says which container is to have which request of a claim
//!   containers (runtime) ─────┼──► NodePodUsage
//!   notes (hooks) ────────────┤   say which container was made with which claim
//!   claim records ────────────┘   say what the claim holds, and for whom it was reserved
//! ```
//!
//! The API's word on a pod comes first. A runtime and the notes add what it does not know: pods where nobody may watch
//! them, containers that no pod has. Where nothing tells of a container, the record's `reservedFor` still tells the pod.

mod device;
mod join;
pub mod reader;

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{ClaimRef, ClaimState, ClaimUid};

use crate::{
    claims::{ClaimTable, spec::CdiNaming},
    containers::{ClaimContainer, seen::SeenContainers},
    inventory::Inventory,
    pods::{PodContainerKind, PodName, PodsOfNode},
    registry::BackendRegistry,
};

pub use device::{UsedDevice, UsedMemory, is_of_node, memory_of};
pub use reader::{PodUsageParts, PodUsageReader};

/// The running containers of each claim, as hooks have noted them.
pub type ContainerNotes = BTreeMap<ClaimUid, Vec<ClaimContainer>>;

/// What is known, from every side.
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
    /// Those who know what devices are.
    pub backends: &'a BackendRegistry,
    /// How devices are called in CDI files.
    pub naming: &'a CdiNaming,
}

/// Which pods of this node hold what, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePodUsage {
    /// Every pod that has not ended, by namespace and name; where pods cannot be watched, those with claims.
    pub pods: Vec<PodUsage>,
    /// Claims on record that no pod is known to use.
    pub unused: Vec<ClaimUse>,
    /// Pods that are known to have ended.
    pub ended: BTreeSet<PodName>,
}

/// A pod with what it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUsage {
    /// Its namespace and name. A container that no pod has is a pod by itself, in its claim's namespace.
    pub name: PodName,
    /// Who tells of it, the best of them.
    pub known_by: PodEvidence,
    /// Its containers, in the order of its specification where that is known.
    pub containers: Vec<ContainerUsage>,
    /// Claims of which no container is known that uses them.
    pub claims: Vec<ClaimUse>,
}

/// Who tells of a pod, the best first.
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
    /// In one word.
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
    /// Its name; empty where nobody tells it.
    pub name: String,
    /// When it runs; absent where nobody tells it.
    pub kind: Option<PodContainerKind>,
    /// The id that its runtime has for it, if it is known.
    pub id: Option<String>,
    /// The claims that it has, or requests of them.
    pub claims: Vec<ClaimUse>,
}

/// What somebody has by a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimUse {
    /// The claim; without names where its record is damaged.
    pub claim: ClaimRef,
    /// How far it is.
    pub state: ClaimState,
    /// Its devices, or those of the requests that the container uses.
    pub devices: Vec<UsedDevice>,
}

impl NodePodUsage {
    /// Joins what is known.
    pub fn of(facts: &PodUsageFacts<'_>) -> Self {
        join::join(facts)
    }

    /// The pod of this name, added where it is not known yet.
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

    /// The container of this name, added where it is not known yet.
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
    /// Adds what the container has by a claim. What is known of that already is known better.
    pub fn add(&mut self, used: ClaimUse) {
        if self.claims.iter().all(|known| known.claim != used.claim) {
            self.claims.push(used);
        }
    }
}

#[cfg(test)]
mod tests;
