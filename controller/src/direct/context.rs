//! Everything that was read about a pod that is placed directly, at one moment.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{
    ObjectKey,
    core::PodResourceClaim,
    reservation::{PLACEMENT_GATE, ReservationStatus},
    resource::{DeviceClassConfiguration, ResourceClaimSpec, ResourceClaimStatus},
};
use hostler_cluster::ObjectVersion;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    claim_write::{ClaimVersion, ClaimWrite},
    reservation_object::ReservationObject,
};

/// Everything that decides the next step.
#[derive(Clone, Debug)]
pub(super) struct DirectContext {
    /// The pod of the name, if there is one.
    pub(super) pod: Option<DirectPod>,
    /// The pod's claims, by their names in the pod; a missing one does not exist.
    pub(super) claims: BTreeMap<String, DirectClaim>,
    /// Reservations that were made for pods of this name.
    pub(super) reservations: Vec<ReservationObject>,
    /// Configuration of device classes, by name.
    pub(super) classes: BTreeMap<String, Vec<DeviceClassConfiguration>>,
    /// The server's answer to the last write for the pod, if it was a refusal.
    pub(super) trouble: Option<String>,
    /// Time since 1970.
    pub(super) now: Duration,
}

/// The annotation of a pod that had all its devices when its gate was taken away.
pub(super) const LET_GO: &str = "hostler.dev/placed";

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct DirectPod {
    pub(super) metadata: DirectMeta,
    pub(super) spec: DirectPodSpec,
    #[serde(default)]
    pub(super) status: DirectPodStatus,
}

/// Metadata of a pod or a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DirectMeta {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) deletion_timestamp: Option<String>,
    pub(super) finalizers: Vec<String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// The part of a pod's spec that is used here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DirectPodSpec {
    pub(super) node_name: Option<String>,
    pub(super) scheduling_gates: Vec<Gate>,
    pub(super) resource_claims: Vec<PodResourceClaim>,
    /// All other fields.
    #[serde(flatten)]
    pub(super) more: BTreeMap<String, Value>,
}

/// A scheduling gate, which holds a pod back.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Gate {
    pub(super) name: String,
}

/// The status of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DirectPodStatus {
    pub(super) phase: String,
    pub(super) resource_claim_statuses: Vec<PodResourceClaim>,
}

/// A claim.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct DirectClaim {
    pub(super) metadata: DirectMeta,
    #[serde(default)]
    pub(super) spec: ResourceClaimSpec,
    #[serde(default)]
    pub(super) status: ResourceClaimStatus,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DirectStep {
    /// Nothing until something changes.
    Rest,
    /// Others act first; the pod is reconciled again soon.
    Wait,
    /// The pod cannot be placed before something is changed: holds the reason and the advice.
    Refuse(String),
    Write(DirectWrite),
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DirectWrite {
    /// Creates a Reservation. An existing one of its name is a conflict.
    Reserve(String, Box<Value>),
    /// Deletes the Reservation, if it is this one in this version.
    Release(String, ObjectVersion),
    /// Writes the status of the Reservation, if it is this one in this version.
    Status(String, ObjectVersion, Box<ReservationStatus>),
    Claim(ClaimWrite),
    /// Sets the pod's gates to these, and the annotation that the pod has its devices.
    Gates(ObjectKey, ObjectVersion, Vec<String>),
}

impl DirectContext {
    /// Returns the claims for which the Reservation keeps something.
    pub(super) fn claims_of(&self, own: &ReservationObject) -> Vec<(&String, &DirectClaim)> {
        let is_of_it = |name: &str| own.spec.device_claims.iter().any(|it| it.name == name);
        self.claims.iter().filter(|(name, _)| is_of_it(name)).collect()
    }
}

impl DirectWrite {
    /// Returns the kind of the write, in one word.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Reserve(..) => "reservation",
            Self::Release(..) => "reservation_deletion",
            Self::Status(..) => "reservation_status",
            Self::Claim(write) => write.what(),
            Self::Gates(..) => "gates",
        }
    }
}

/// Identity and version of a Reservation.
pub(super) fn version_of(reservation: &ReservationObject) -> ObjectVersion {
    ObjectVersion { uid: reservation.uid.clone(), resource_version: reservation.version.clone() }
}

impl DirectMeta {
    pub(super) fn version(&self) -> ObjectVersion {
        ObjectVersion { uid: self.uid.clone(), resource_version: self.resource_version.clone() }
    }
}

impl DirectPod {
    pub(super) fn is_gated(&self) -> bool {
        self.spec.scheduling_gates.iter().any(|gate| gate.name == PLACEMENT_GATE)
    }

    /// True if the pod had all its devices when its gate was taken away.
    pub(super) fn is_let_go(&self) -> bool {
        !self.is_gated() && self.metadata.annotations.contains_key(LET_GO)
    }

    pub(super) fn is_over(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    pub(super) fn is_bound(&self) -> bool {
        self.spec.node_name.as_deref().is_some_and(|node| !node.is_empty())
    }

    /// Returns the claims' names in the pod, and their own names; `None` while a claim is not made yet.
    pub(super) fn claim_names(&self) -> Option<Vec<(String, String)>> {
        let named = self.spec.resource_claims.iter().map(|claim| {
            let made = self.status.resource_claim_statuses.iter().find(|it| it.name == claim.name);
            let made = made.and_then(|it| it.resource_claim_name.clone());
            Some((claim.name.clone(), claim.resource_claim_name.clone().or(made)?))
        });
        named.collect()
    }
}

impl DirectClaim {
    pub(super) fn written(&self) -> ClaimVersion {
        ClaimVersion {
            key: ObjectKey::new(&self.metadata.namespace, &self.metadata.name),
            uid: self.metadata.uid.clone(),
            version: self.metadata.resource_version.clone(),
        }
    }

    /// True if hostler gave the claim its devices for this pod before any scheduler saw the pod.
    pub(super) fn is_written_for(&self, pod: &DirectPod) -> bool {
        let consumers = &self.status.reserved_for;
        self.is_allocated() && consumers.len() == 1 && consumers[0].uid == pod.metadata.uid && pod.is_gated()
    }

    pub(super) fn is_allocated(&self) -> bool {
        self.status.allocation.is_some()
    }
}
