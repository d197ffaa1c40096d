//! What is seen of a pod that is placed directly, of one moment.

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
    claim_write::{ClaimWrite, WrittenClaim},
    hold::ReservationObject,
};

/// Everything that decides what is done next.
#[derive(Clone, Debug)]
pub(super) struct DirectSight {
    /// The pod of the name, if there is one.
    pub(super) pod: Option<DirectPod>,
    /// Its claims, by what it calls them; who is not here is not there.
    pub(super) claims: BTreeMap<String, DirectClaim>,
    /// Reservations that were made for pods of this name.
    pub(super) reservations: Vec<ReservationObject>,
    /// What classes bring along for their devices.
    pub(super) classes: BTreeMap<String, Vec<DeviceClassConfiguration>>,
    /// What the server said to the last write for the pod, where it refused that one.
    pub(super) trouble: Option<String>,
    /// Since 1970.
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

/// What a pod or a claim says of itself.
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

/// What a pod wants.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DirectPodSpec {
    pub(super) node_name: Option<String>,
    pub(super) scheduling_gates: Vec<Gate>,
    pub(super) resource_claims: Vec<PodResourceClaim>,
    /// All else.
    #[serde(flatten)]
    pub(super) more: BTreeMap<String, Value>,
}

/// What holds a pod back.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Gate {
    pub(super) name: String,
}

/// How a pod is.
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

/// What is done next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DirectStep {
    /// Nothing before something changes.
    Rest,
    /// Others do something first; it is looked at again soon.
    Wait,
    /// It cannot be done before somebody changes something: the reason, and what to do.
    Refuse(String),
    Write(DirectWrite),
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DirectWrite {
    /// A Reservation is made. That there is one of its name is a conflict.
    Reserve(String, Box<Value>),
    /// The Reservation goes, if it is this one in this version.
    Release(String, ObjectVersion),
    /// What is said of the Reservation, if it is this one in this version.
    Status(String, ObjectVersion, Box<ReservationStatus>),
    Claim(ClaimWrite),
    /// The pod has these gates, and no others, and says that it has its devices.
    Gates(ObjectKey, ObjectVersion, Vec<String>),
}

impl DirectWrite {
    /// What is written, in one word.
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

/// Which Reservation this is, in which version.
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

    /// Whether it had all its devices when its gate was taken away.
    pub(super) fn is_let_go(&self) -> bool {
        !self.is_gated() && self.metadata.annotations.contains_key(LET_GO)
    }

    pub(super) fn is_over(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    pub(super) fn is_bound(&self) -> bool {
        self.spec.node_name.as_deref().is_some_and(|node| !node.is_empty())
    }

    /// What it calls its claims, and their names; `None` while one is not made.
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
    pub(super) fn written(&self) -> WrittenClaim {
        WrittenClaim {
            key: ObjectKey::new(&self.metadata.namespace, &self.metadata.name),
            uid: self.metadata.uid.clone(),
            version: self.metadata.resource_version.clone(),
        }
    }

    /// Whether it was given its devices for this pod, which no scheduler has seen yet: nobody but us does that.
    pub(super) fn is_written_for(&self, pod: &DirectPod) -> bool {
        let consumers = &self.status.reserved_for;
        self.is_allocated() && consumers.len() == 1 && consumers[0].uid == pod.metadata.uid && pod.is_gated()
    }

    pub(super) fn is_allocated(&self) -> bool {
        self.status.allocation.is_some()
    }
}
