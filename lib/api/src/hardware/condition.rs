//! Conditions, as every kind has them, and those of a NodeHardware.

use serde::{Deserialize, Serialize};

/// A condition: one statement that is true, false or unknown. A list of conditions has each type once.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status: true, false or unknown.
    pub status: ConditionStatus,
    /// Reason, in one word for programs.
    pub reason: String,
    /// Reason, for people.
    #[serde(default)]
    pub message: String,
    /// Time since which the condition has this status, RFC 3339.
    pub last_transition_time: String,
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The status cannot be determined.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The conditions of a NodeHardware.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HardwareConditionType {
    /// Every backend has answered, what was recorded before the daemon started is in order again, and new claims can
    /// be read: the counts can be relied on, and what is free can be had.
    Ready,
    /// Every device works.
    Healthy,
    /// Every device that is to be held can be held; present only where any is to be held.
    HoldsPublished,
}

/// Reason for the status of a condition of a NodeHardware.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HardwareConditionReason {
    /// All backends have answered.
    BackendsAnswered,
    /// The last scan of a backend failed or is late: its devices are those of the scan before.
    BackendsStale,
    /// A backend has never answered since the daemon started.
    BackendsUnknown,
    /// Claims of before the start are not restored yet.
    Recovering,
    /// No claim can be read from the API server, so none that is new can be prepared.
    ClaimsUnreadable,
    /// All devices work.
    DevicesWork,
    /// Some devices do not work.
    DevicesFail,
    /// The health of some devices is not known.
    DevicesUnknown,
    /// All devices that are to be held can be.
    DevicesHeld,
    /// Some devices cannot be held: they are missing, or are only a part of what must be held as a whole.
    DevicesNotHeld,
}

impl Condition {
    /// True if the condition holds.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

impl ConditionStatus {
    /// Returns the status as Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl HardwareConditionType {
    /// Returns the type as it stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Healthy => "Healthy",
            Self::HoldsPublished => "HoldsPublished",
        }
    }
}

impl HardwareConditionReason {
    /// Returns the reason as it stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BackendsAnswered => "BackendsAnswered",
            Self::BackendsStale => "BackendsStale",
            Self::BackendsUnknown => "BackendsUnknown",
            Self::Recovering => "Recovering",
            Self::ClaimsUnreadable => "ClaimsUnreadable",
            Self::DevicesWork => "DevicesWork",
            Self::DevicesFail => "DevicesFail",
            Self::DevicesUnknown => "DevicesUnknown",
            Self::DevicesHeld => "DevicesHeld",
            Self::DevicesNotHeld => "DevicesNotHeld",
        }
    }
}
