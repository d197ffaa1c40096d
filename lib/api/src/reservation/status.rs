//! Status of a Reservation, which the controller writes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{PodEviction, ReservedPlace};
use crate::{Quantity, hardware::Condition};

/// Outcome of a Reservation. Written before anything is done, so that a controller that takes over knows what may
/// have been done.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationStatus {
    /// Phase of the Reservation.
    pub phase: ReservationPhase,
    /// Generation of the spec that the status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The node of the devices, if all are on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Value that a toleration of the taint hostler.dev/held needs to be given the devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_value: Option<String>,
    /// With mode SharedClaim: the claims that keep the devices, which pods of the owners name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ReservedClaim>,
    /// Devices of the Reservation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<ReservedDevice>,
    /// Parts of nodes that are kept beside devices: CPU, memory and what else the template's pod sets aside.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<ReservedPlace>,
    /// Number of devices that are kept and that no owner has yet.
    pub held: u32,
    /// Kept devices by the names of quotas: `<class>.deviceclass.resource.k8s.io/devices`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// Part of them that owners have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated: BTreeMap<String, Quantity>,
    /// Pods that have them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub current_owners: Vec<ObjectReference>,
    /// Pods that are evicted for the Reservation, and those that were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<PodEviction>,
    /// Conditions: whether the Reservation is planned, can be relied on, and has ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Phase of a Reservation.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum ReservationPhase {
    /// Devices are being looked for, or closed to others.
    #[default]
    Pending,
    /// All devices are kept.
    Available,
    /// Owners have the devices.
    Succeeded,
    /// Devices are closed to others, and a pod still has some of them.
    Waiting,
    /// The Reservation has expired, or its node is gone.
    Failed,
}

/// A device of a Reservation.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservedDevice {
    /// Replica that the device is for, counted from 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub replica: u32,
    /// Name of the claim in the template or in deviceClaims; empty for a claim that goes with a pod whose devices are
    /// kept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// `request` or `request/subrequest`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// Class by which the device was requested.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub device_class_name: String,
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Node of the device.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// For a device that several claims can share: the part of its capacities that is kept. All of the device where
    /// empty.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed_capacity: BTreeMap<String, Quantity>,
    /// Identity of that part, which names the claim that stands for it as well: `hold-<shareID>`.
    #[serde(rename = "shareID", skip_serializing_if = "String::is_empty")]
    pub share_id: String,
    /// Memory that is made for a device behind a switch which has none. Absent: all that is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
    /// State of the device.
    pub state: ReservedDeviceState,
    /// True if two claims had the device at once, or may have had it. The device stays closed until no claim has it:
    /// a scheduler takes it for free once the first of them goes.
    #[serde(skip_serializing_if = "is_false")]
    pub conflict: bool,
    /// Claim and pod that have the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<DeviceOwner>,
}

/// A claim that keeps devices for pods that name it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservedClaim {
    /// Name of the claim in the template or in deviceClaims.
    pub name: String,
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim that pods write into resourceClaimName.
    pub resource_claim_name: String,
}

/// State of a device.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum ReservedDeviceState {
    /// The device is being closed to others, and may still have gone to another claim.
    #[default]
    Fencing,
    /// The device is kept.
    Held,
    /// An owner has the device.
    HandedOver,
    /// Another claim has the device, or it is gone or does not work.
    Lost,
    /// The device is being opened to others.
    Releasing,
}

/// Claim and pod that have a device.
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
    /// The devices are kept: owners can rely on it.
    Ready,
    /// Nothing is being done, and nothing is left to do before something changes.
    Settled,
    /// Of a Reservation that was made for a gated pod: False where its devices cannot be given to the pod.
    Placed,
}

/// Reason for the status of a Reservation's condition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReservationConditionReason {
    /// Devices have been chosen.
    Scheduled,
    /// Devices are being looked for.
    Planning,
    /// No node has the devices, for now.
    Unschedulable,
    /// An object that the template names is missing or cannot be used.
    Incomplete,
    /// A ResourceQuota leaves no room for the devices.
    QuotaExceeded,
    /// Devices are there that cannot be closed to others.
    NotClosable,
    /// The search for devices took more work than one namespace may cause.
    CutShort,
    /// A Reservation cannot serve such a template, whatever is free.
    Unsupported,
    /// The spec cannot be understood or carried out; the user has to mend it.
    Invalid,
    /// Devices are being closed to others.
    Fencing,
    /// The scheduler has not found the CPU, the memory or the ports.
    Placing,
    /// Devices behind switches are being attached to their nodes.
    Attaching,
    /// Pods still have the devices.
    Waiting,
    /// All devices are kept.
    Available,
    /// A pod is to be evicted.
    Evicting,
    /// Owners have the devices.
    Succeeded,
    /// The Reservation has expired.
    Expired,
    /// The node of the devices is gone.
    NodeLost,
    /// Another claim has a device, or it is gone or does not work.
    Lost,
    /// Two claims have a device.
    Conflict,
    /// Devices that were kept are being opened to others.
    Releasing,
    /// Nothing is left to do.
    Settled,
    /// The API server refuses a write.
    Refused,
    /// The scheduler freed the claim of the pod that had the devices.
    TakenBack,
    /// The scheduler did so with the Reservation before, which had devices on another node.
    PlannedAgain,
    /// Other claims of the pod have devices already, on nodes that do not have the devices asked for.
    Pinned,
}

impl ReservationPhase {
    /// Returns the phase as it stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Available => "Available",
            Self::Succeeded => "Succeeded",
            Self::Waiting => "Waiting",
            Self::Failed => "Failed",
        }
    }

    /// True if nothing is kept any more, for good.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl ReservedDevice {
    /// True if only a part of the device is kept, and the rest of it is for others.
    pub fn is_part(&self) -> bool {
        !self.share_id.is_empty()
    }

    /// Driver, pool and name.
    pub fn key(&self) -> (&str, &str, &str) {
        (&self.driver, &self.pool, &self.device)
    }
}

impl ReservationStatus {
    /// Devices of the Reservation, but those that only stay closed until others can have them.
    pub fn kept(&self) -> impl Iterator<Item = &ReservedDevice> {
        self.devices.iter().filter(|device| device.state != ReservedDeviceState::Releasing)
    }

    /// The condition of this type, if there is one.
    pub fn condition(&self, kind: ReservationConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind.as_str())
    }

    /// The condition that says why there are no devices. None while they are being looked for.
    pub fn lack_of_devices(&self) -> Option<&Condition> {
        use ReservationConditionReason as Reason;
        let reasons = [
            Reason::Unschedulable,
            Reason::Incomplete,
            Reason::QuotaExceeded,
            Reason::NotClosable,
            Reason::CutShort,
            Reason::Unsupported,
        ];
        let scheduled = self.condition(ReservationConditionType::Scheduled)?;
        reasons.iter().any(|reason| reason.as_str() == scheduled.reason).then_some(scheduled)
    }
}

impl ReservationConditionType {
    /// Returns the type as it stands in the object.
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
    /// Returns the reason as it stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Planning => "Planning",
            Self::Unschedulable => "Unschedulable",
            Self::Incomplete => "Incomplete",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::NotClosable => "NotClosable",
            Self::CutShort => "CutShort",
            Self::Unsupported => "Unsupported",
            Self::Invalid => "Invalid",
            Self::Fencing => "Fencing",
            Self::Placing => "Placing",
            Self::Attaching => "Attaching",
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
