//! Everything that was read about a Reservation that keeps claims, at one moment.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{
    ObjectKey,
    hardware::GROUP,
    reservation::{RESERVATION_UID_ANNOTATION, RESERVATIONS, ReservedClaim, made_for},
    resource::{ResourceClaimConsumerReference, ResourceClaimSpec, ResourceClaimStatus},
};
use hostler_cluster::ObjectVersion;
use serde::Deserialize;

use crate::{
    claim_write::{ClaimVersion, DELETE_PROTECTION},
    hold::{HoldWrite, OwnerPod},
    reservation_object::ReservationObject,
};

/// Everything that decides the next step.
#[derive(Clone, Debug)]
pub(super) struct SharedContext {
    /// The name of the Reservation.
    pub(super) name: String,
    /// The Reservation, if there is one.
    pub(super) reservation: Option<ReservationObject>,
    /// The claims that the Reservation asks for, or the reason why these are not known.
    pub(super) wanted: Result<Vec<WantedClaim>, String>,
    /// Claims that the Reservation wants, has, or had: every claim of these names, whatever it was made for.
    pub(super) claims: BTreeMap<ObjectKey, ObservedClaim>,
    /// Pods that ask for devices in the Reservation's name, and other pods of that name.
    pub(super) pods: BTreeMap<ObjectKey, ReservePod>,
    /// Pods that use the claims, by UID; a missing one is gone.
    pub(super) consumers: BTreeMap<String, (ObjectKey, OwnerPod)>,
    /// A node of the Reservation's devices that has been gone for too long.
    pub(super) lost_node: Option<String>,
    /// True if this cluster accepts consumers that are no pods.
    pub(super) is_served: bool,
    /// The server's answer to the last write that it refused.
    pub(super) trouble: Option<String>,
    /// The earliest possible time by all clocks, since 1970.
    pub(super) now: Duration,
    /// Time for which Reservations that are over are kept for people.
    pub(super) keep: Duration,
    /// The image of pods that only ask for devices.
    pub(super) image: String,
}

/// A claim that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WantedClaim {
    pub(super) is: ReservedClaim,
    /// The claim's spec, or the key of the missing template that would give it.
    pub(super) spec: Result<ResourceClaimSpec, ObjectKey>,
}

/// A claim.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ObservedClaim {
    pub(super) metadata: ObservedMeta,
    #[serde(default)]
    pub(super) spec: ResourceClaimSpec,
    #[serde(default)]
    pub(super) status: ResourceClaimStatus,
}

/// Metadata of a claim or a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObservedMeta {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) deletion_timestamp: Option<String>,
    pub(super) finalizers: Vec<String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// A pod that only asks for devices.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ReservePod {
    pub(super) metadata: ObservedMeta,
    #[serde(default)]
    pub(super) status: ReservePodStatus,
}

/// The status of such a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReservePodStatus {
    pub(super) phase: String,
    pub(super) conditions: Vec<PodCondition>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) message: String,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SharedStep {
    /// Nothing until something changes, or this time has passed.
    Rest(Option<Duration>),
    Write(SharedWrite),
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SharedWrite {
    Reservation(HoldWrite),
    Claim(crate::claim_write::ClaimWrite),
    /// Creates the pod. An existing pod of its name is a conflict.
    CreatePod(ObjectKey, Box<serde_json::Value>),
    DeletePod(ObjectKey, ObjectVersion),
}

impl SharedWrite {
    /// Returns the kind of the write, in one word.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Reservation(_) => "reservation",
            Self::Claim(write) => write.what(),
            Self::CreatePod(..) => "pod",
            Self::DeletePod(..) => "pod_deletion",
        }
    }
}

impl ObservedMeta {
    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace, &self.name)
    }

    pub(super) fn version(&self) -> ObjectVersion {
        ObjectVersion { uid: self.uid.clone(), resource_version: self.resource_version.clone() }
    }

    pub(super) fn is_going(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// True if the object was made for a Reservation of this name, even an earlier one.
    pub(super) fn is_made_for(&self, name: &str) -> bool {
        made_for(&self.name, &self.annotations) == Some(name)
    }

    /// True if the object was made for this very Reservation.
    pub(super) fn is_of(&self, reservation: &ReservationObject) -> bool {
        self.is_made_for(&reservation.name)
            && self.annotations.get(RESERVATION_UID_ANNOTATION) == Some(&reservation.uid)
    }
}

/// True if a consumer is the entry of a Reservation.
pub(super) fn is_pin(consumer: &ResourceClaimConsumerReference) -> bool {
    consumer.api_group == GROUP && consumer.resource == RESERVATIONS
}

impl ObservedClaim {
    pub(super) fn written(&self) -> ClaimVersion {
        ClaimVersion {
            key: self.metadata.key(),
            uid: self.metadata.uid.clone(),
            version: self.metadata.resource_version.clone(),
        }
    }

    pub(super) fn is_allocated(&self) -> bool {
        self.status.allocation.is_some()
    }

    /// True if the Reservation with this UID keeps the claim's devices.
    pub(super) fn is_pinned_by(&self, uid: &str) -> bool {
        self.status.reserved_for.iter().any(|it| is_pin(it) && it.uid == uid)
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.status.reserved_for.iter().any(is_pin)
    }

    /// Returns the claim's consumers, but for entries of Reservations.
    pub(super) fn users(&self) -> Vec<&ResourceClaimConsumerReference> {
        self.status.reserved_for.iter().filter(|it| !is_pin(it)).collect()
    }

    pub(super) fn is_protected(&self) -> bool {
        self.metadata.finalizers.iter().any(|it| it == DELETE_PROTECTION)
    }
}

impl ReservePod {
    /// True if the pod no longer asks for devices.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Returns the scheduler's reason for not placing the pod.
    pub(super) fn refusal(&self) -> Option<&str> {
        let conditions = self.status.conditions.iter();
        let refused = conditions.filter(|it| it.kind == "PodScheduled" && it.status == "False");
        refused.map(|it| it.message.as_str()).next()
    }
}
