//! What the controller says of a Reservation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PodEviction;
use crate::{Quantity, hardware::Condition};

/// What became of a Reservation. Written before anything is done, so that whoever takes over knows what may have been done.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationStatus {
    /// Where it stands.
    pub phase: ReservationPhase,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The node of the devices, if all are on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// What a toleration of the taint hostler.dev/held must have as value to be given the devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_value: Option<String>,
    /// With mode SharedClaim: the claims that keep the devices, which pods of the owners name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ReservedClaim>,
    /// The devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<ReservedDevice>,
    /// How many of them are kept and nobody has them yet.
    pub held: u32,
    /// What is kept, under the names of quotas: `<class>.deviceclass.resource.k8s.io/devices`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// What of it owners have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated: BTreeMap<String, Quantity>,
    /// The pods that have it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub current_owners: Vec<ObjectReference>,
    /// Pods that are evicted for it, and those that were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<PodEviction>,
    /// Whether it is planned, whether it can be relied on, and whether it has come to its end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Where a Reservation stands.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum ReservationPhase {
    /// Devices are being looked for, or closed to others.
    #[default]
    Pending,
    /// All devices are kept.
    Available,
    /// Owners have them.
    Succeeded,
    /// Devices are closed to others, and somebody still has some of them.
    Waiting,
    /// It has expired, or its node is gone.
    Failed,
}

/// A device of a Reservation.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservedDevice {
    /// For which of the replicas, counted from 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub replica: u32,
    /// What the template or deviceClaims call the claim; empty for one that goes with a pod whose devices are kept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// `request` or `request/subrequest`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// The class that it was asked for by.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub device_class_name: String,
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// The node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// Of a device that several claims can share: what of its capacities is kept. All of the device where there is nothing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed_capacity: BTreeMap<String, Quantity>,
    /// The identity of that part, which names the claim that stands for it as well: `hold-<shareID>`.
    #[serde(rename = "shareID", skip_serializing_if = "String::is_empty")]
    pub share_id: String,
    /// How far it is.
    pub state: ReservedDeviceState,
    /// Two claims had it at once, or may have had it. It stays closed until no claim has it: a scheduler takes it for free once the first of them goes.
    #[serde(skip_serializing_if = "is_false")]
    pub conflict: bool,
    /// Who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<DeviceOwner>,
}

/// A claim that keeps devices for pods that name it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservedClaim {
    /// What the template or deviceClaims call it.
    pub name: String,
    /// Where it is.
    pub namespace: String,
    /// What pods write into resourceClaimName.
    pub resource_claim_name: String,
}

/// How far a device is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum ReservedDeviceState {
    /// It is being closed to others, and it is not certain yet that nobody else has got it.
    #[default]
    Fencing,
    /// It is kept.
    Held,
    /// An owner has it.
    HandedOver,
    /// Somebody else has it, or it is gone or does not work.
    Lost,
    /// It is being opened to others.
    Releasing,
}

/// Who has a device.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceOwner {
    /// Namespace of claim and pod.
    pub namespace: String,
    /// The pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The claim.
    pub claim: String,
    /// Identity of the claim.
    pub uid: String,
}

/// ObjectReference: an object.
#[derive(Clone, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// `v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `Pod`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Identity.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The conditions of a Reservation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReservationConditionType {
    /// Devices have been chosen.
    Scheduled,
    /// They are kept: owners can rely on it.
    Ready,
    /// Nothing is being done, and nothing is left to do before something changes.
    Settled,
    /// Of one that was made for a gated pod: False where its devices cannot be given to the pod.
    Placed,
}

/// Why a condition of a Reservation has its status.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReservationConditionReason {
    /// Devices have been chosen.
    Scheduled,
    /// There are none, for now.
    Unschedulable,
    /// It says something that cannot be understood or done; somebody has to mend it.
    Invalid,
    /// Devices are being closed to others.
    Fencing,
    /// Pods still have the devices.
    Waiting,
    /// All is kept.
    Available,
    /// A pod is to be evicted.
    Evicting,
    /// Owners have it.
    Succeeded,
    /// Its time is over.
    Expired,
    /// Its node is gone.
    NodeLost,
    /// Somebody else has a device, or it is gone or does not work.
    Lost,
    /// Two claims have a device.
    Conflict,
    /// What was kept is being opened to others.
    Releasing,
    /// Nothing is left to do.
    Settled,
    /// The API server refuses a write.
    Refused,
    /// The scheduler freed a claim of the pod that had its devices.
    TakenBack,
    /// It did so with the Reservation before, which had devices on another node.
    PlannedAgain,
    /// Other claims of the pod have devices already, and where these are there are not the devices.
    Pinned,
}

impl ReservationPhase {
    /// As it stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Available => "Available",
            Self::Succeeded => "Succeeded",
            Self::Waiting => "Waiting",
            Self::Failed => "Failed",
        }
    }

    /// Whether nothing is kept any more, for good.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl ReservedDevice {
    /// Whether only a part of the device is kept, and the rest of it is for others.
    pub fn is_part(&self) -> bool {
        !self.share_id.is_empty()
    }

    /// Driver, pool and name.
    pub fn key(&self) -> (&str, &str, &str) {
        (&self.driver, &self.pool, &self.device)
    }
}

impl ReservationStatus {
    /// Its devices, but those that only stay closed until others can have them.
    pub fn kept(&self) -> impl Iterator<Item = &ReservedDevice> {
        self.devices.iter().filter(|device| device.state != ReservedDeviceState::Releasing)
    }

    /// The condition of this type, if there is one.
    pub fn condition(&self, kind: ReservationConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind.as_str())
    }
}

impl ReservationConditionType {
    /// As it stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Ready => "Ready",
            Self::Settled => "Settled",
            Self::Placed => "Placed",
        }
    }
}

impl ReservationConditionReason {
    /// As it stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Unschedulable => "Unschedulable",
            Self::Invalid => "Invalid",
            Self::Fencing => "Fencing",
            Self::Waiting => "Waiting",
            Self::Available => "Available",
            Self::Evicting => "Evicting",
            Self::Succeeded => "Succeeded",
            Self::Expired => "Expired",
            Self::NodeLost => "NodeLost",
            Self::Lost => "Lost",
            Self::Conflict => "Conflict",
            Self::Releasing => "Releasing",
            Self::Settled => "Settled",
            Self::Refused => "Refused",
            Self::TakenBack => "TakenBack",
            Self::PlannedAgain => "PlannedAgain",
            Self::Pinned => "Pinned",
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
