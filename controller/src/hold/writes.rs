//! Writes to the API server, and Events.

use std::fmt;

use hostler_api::{ObjectKey, reservation::ReservationStatus};

use super::objects::{Fence, FenceRule};
use crate::{claim_write::ClaimWrite, reservation_object::ReservationObject};

/// An object that is written. At most one write of it is in flight.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum HoldTarget {
    /// A Reservation.
    Reservation(String),
    /// The spec of a NodeHardware.
    NodeFences(String),
    /// A DeviceTaintRule.
    Rule(String),
    /// A pod that is not ours.
    Pod(ObjectKey),
    /// A claim that stands for a part of a device.
    Claim(ObjectKey),
}

/// The version of a Reservation that a write changes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct WrittenReservation {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: String,
}

/// A write. All writes but those of rules and pods carry the version that they change, and fail where there is another
/// version.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HoldWrite {
    /// Sets the finalizers of the Reservation.
    Finalizers(WrittenReservation, Vec<String>),
    /// Sets the status of the Reservation as a whole.
    Status(WrittenReservation, Box<ReservationStatus>),
    /// Deletes the Reservation, if it is this one in this version.
    Delete(WrittenReservation),
    /// Closes these devices of a node, and no others.
    NodeFences { node: String, version: String, fences: Vec<Fence> },
    /// Creates a rule. An existing rule of its name is a conflict.
    CreateRule(FenceRule),
    /// Deletes a rule, if it has this value.
    DeleteRule(FenceRule),
    /// A write about a pod.
    Pod(PodWrite),
    /// A claim that stands for a part of a device.
    Claim(Box<ClaimWrite>),
}

/// A write about a pod. The write names the pod by its UID, and has no effect where another pod has the name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum PodWrite {
    /// Evicts the pod, if no budget is against it.
    Evict { pod: ObjectKey, uid: String },
    /// Annotates the pod with the Reservation of its devices.
    Annotate { pod: ObjectKey, uid: String, value: String },
}

/// An Event about a Reservation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct HoldEventNote {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) is_warning: bool,
    /// Reason of the Event, in one word.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl PodWrite {
    /// The pod that is written.
    pub(crate) fn pod(&self) -> &ObjectKey {
        match self {
            Self::Evict { pod, .. } | Self::Annotate { pod, .. } => pod,
        }
    }
}

impl HoldEventNote {
    /// An Event about a Reservation.
    pub(crate) fn of(object: &ReservationObject, is_warning: bool, reason: &'static str, message: String) -> Self {
        Self { name: object.name.clone(), uid: object.uid.clone(), is_warning, reason, message }
    }
}

impl HoldWrite {
    /// True if the write closes devices to others, or opens them.
    pub(crate) fn is_of_fences(&self) -> bool {
        matches!(self.target(), HoldTarget::NodeFences(_) | HoldTarget::Rule(_))
    }

    /// The rule that is created or deleted.
    pub(crate) fn rule(&self) -> Option<&FenceRule> {
        match self {
            Self::CreateRule(rule) | Self::DeleteRule(rule) => Some(rule),
            _ => None,
        }
    }

    /// UID of the Reservation that is written.
    pub(crate) fn reservation_uid(&self) -> Option<&str> {
        match self {
            Self::Finalizers(it, _) | Self::Status(it, _) | Self::Delete(it) => Some(&it.uid),
            _ => None,
        }
    }

    /// The object that is written.
    pub(crate) fn target(&self) -> HoldTarget {
        match self {
            Self::Finalizers(it, _) | Self::Status(it, _) | Self::Delete(it) => {
                HoldTarget::Reservation(it.name.clone())
            }
            Self::NodeFences { node, .. } => HoldTarget::NodeFences(node.clone()),
            Self::CreateRule(rule) | Self::DeleteRule(rule) => HoldTarget::Rule(rule.name.clone()),
            Self::Pod(write) => HoldTarget::Pod(write.pod().clone()),
            Self::Claim(write) => HoldTarget::Claim(write.key().clone()),
        }
    }
}

impl fmt::Display for HoldTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reservation(name) => write!(f, "Reservation {name}"),
            Self::NodeFences(name) => write!(f, "NodeHardware {name}"),
            Self::Rule(name) => write!(f, "DeviceTaintRule {name}"),
            Self::Pod(key) => write!(f, "Pod {key}"),
            Self::Claim(key) => write!(f, "ResourceClaim {key}"),
        }
    }
}
