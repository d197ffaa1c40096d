//! What is seen of a Reservation that keeps claims, of one moment.

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
    claim_write::{DELETE_PROTECTION, WrittenClaim},
    hold::{HoldWrite, OwnerPod, ReservationObject},
};

/// Everything that decides what is done next.
#[derive(Clone, Debug)]
pub(super) struct SharedSight {
    /// Of whom all this is.
    pub(super) name: String,
    /// The Reservation, if there is one.
    pub(super) reservation: Option<ReservationObject>,
    /// What it asks for, or why that is not known.
    pub(super) wanted: Result<Vec<WantedClaim>, String>,
    /// Claims that it wants, has, or had: those of their names, whosever they are.
    pub(super) claims: BTreeMap<ObjectKey, SightedClaim>,
    /// Pods that ask for devices in its name, or have that name.
    pub(super) pods: BTreeMap<ObjectKey, ReservePod>,
    /// Pods that use the claims, by UID; who is not here is gone.
    pub(super) consumers: BTreeMap<String, (ObjectKey, OwnerPod)>,
    /// A node of its devices that has been gone for too long.
    pub(super) lost_node: Option<String>,
    /// Whether this cluster bears consumers that are no pods.
    pub(super) is_served: bool,
    /// What the server said to the last write that it refused.
    pub(super) trouble: Option<String>,
    /// What time it is at least, since 1970.
    pub(super) now: Duration,
    /// How long Reservations that are over are kept to be looked at.
    pub(super) keep: Duration,
    /// What containers of pods that only ask for devices run.
    pub(super) image: String,
}

/// A claim that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WantedClaim {
    pub(super) is: ReservedClaim,
    /// What it asks for, or the template that would say so and is not there.
    pub(super) spec: Result<ResourceClaimSpec, ObjectKey>,
}

/// A claim.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct SightedClaim {
    pub(super) metadata: SightedMeta,
    #[serde(default)]
    pub(super) spec: ResourceClaimSpec,
    #[serde(default)]
    pub(super) status: ResourceClaimStatus,
}

/// What a claim or a pod says of itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SightedMeta {
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
    pub(super) metadata: SightedMeta,
    #[serde(default)]
    pub(super) status: ReservePodStatus,
}

/// How it goes with it.
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

/// What is done next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SharedStep {
    /// Nothing before something changes, or this time has passed.
    Rest(Option<Duration>),
    Write(SharedWrite),
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SharedWrite {
    Reservation(HoldWrite),
    Claim(crate::claim_write::ClaimWrite),
    /// The pod is made. That there is one of its name is a conflict.
    CreatePod(ObjectKey, Box<serde_json::Value>),
    DeletePod(ObjectKey, ObjectVersion),
}

impl SharedWrite {
    /// What is written, in one word.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Reservation(_) => "reservation",
            Self::Claim(write) => write.what(),
            Self::CreatePod(..) => "pod",
            Self::DeletePod(..) => "pod_deletion",
        }
    }
}

impl SightedMeta {
    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace, &self.name)
    }

    pub(super) fn version(&self) -> ObjectVersion {
        ObjectVersion { uid: self.uid.clone(), resource_version: self.resource_version.clone() }
    }

    pub(super) fn is_going(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether it was made for a Reservation of this name, be it an earlier one.
    pub(super) fn is_made_for(&self, name: &str) -> bool {
        made_for(&self.name, &self.annotations) == Some(name)
    }

    /// Whether it was made for just this one.
    pub(super) fn is_of(&self, reservation: &ReservationObject) -> bool {
        self.is_made_for(&reservation.name)
            && self.annotations.get(RESERVATION_UID_ANNOTATION) == Some(&reservation.uid)
    }
}

/// Whether a consumer is the entry of a Reservation.
pub(super) fn is_pin(consumer: &ResourceClaimConsumerReference) -> bool {
    consumer.api_group == GROUP && consumer.resource == RESERVATIONS
}

impl SightedClaim {
    pub(super) fn written(&self) -> WrittenClaim {
        WrittenClaim {
            key: self.metadata.key(),
            uid: self.metadata.uid.clone(),
            version: self.metadata.resource_version.clone(),
        }
    }

    pub(super) fn is_allocated(&self) -> bool {
        self.status.allocation.is_some()
    }

    /// Whether the Reservation with this UID keeps its devices.
    pub(super) fn is_pinned_by(&self, uid: &str) -> bool {
        self.status.reserved_for.iter().any(|it| is_pin(it) && it.uid == uid)
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.status.reserved_for.iter().any(is_pin)
    }

    /// Who uses it besides.
    pub(super) fn users(&self) -> Vec<&ResourceClaimConsumerReference> {
        self.status.reserved_for.iter().filter(|it| !is_pin(it)).collect()
    }

    pub(super) fn is_protected(&self) -> bool {
        self.metadata.finalizers.iter().any(|it| it == DELETE_PROTECTION)
    }
}

impl ReservePod {
    /// It does not ask any more.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Why the scheduler does not find anything for it.
    pub(super) fn refusal(&self) -> Option<&str> {
        let conditions = self.status.conditions.iter();
        let refused = conditions.filter(|it| it.kind == "PodScheduled" && it.status == "False");
        refused.map(|it| it.message.as_str()).next()
    }
}
