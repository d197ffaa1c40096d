//! Conditions, as every kind has them, and those of a NodeHardware.

use serde::{Deserialize, Serialize};

/// One thing that is so, is not so, or is not known. A list of them has each type once.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it is so.
    pub status: ConditionStatus,
    /// Why, in one word for programs.
    pub reason: String,
    /// Why, for people.
    #[serde(default)]
    pub message: String,
    /// Since when it has this status, RFC 3339.
    pub last_transition_time: String,
}

/// Whether something is so.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum ConditionStatus {
    /// It is.
    True,
    /// It is not.
    False,
    /// Nobody can say.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The conditions of a NodeHardware.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HardwareConditionType {
    /// Every backend has answered, what was recorded before the daemon started is in order again, and new claims can be read: the
    /// counts can be relied on, and what is free can be had.
    Ready,
    /// Every device works.
    Healthy,
    /// Every device that is to be held can be; there only where any is.
    HoldsPublished,
}

/// Why a condition of a NodeHardware has its status.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HardwareConditionReason {
    /// All backends have answered.
    BackendsAnswered,
    /// The last scan of a backend failed or is late: its devices are those of the scan before.
    BackendsStale,
    /// A backend has never answered since the daemon started.
    BackendsUnknown,
    /// Claims of before the start are not made right yet.
    Recovering,
    /// No claim can be read from the API server, so none that is new can be prepared.
    ClaimsUnreadable,
    /// All devices work.
    DevicesWork,
    /// Some do not.
    DevicesFail,
    /// Of some it is not known.
    DevicesUnknown,
    /// All devices that are to be held can be.
    DevicesHeld,
    /// Some cannot: they are not there, or a part of what must be held as a whole.
    DevicesNotHeld,
}

impl Condition {
    /// Whether it is so.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

impl ConditionStatus {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl HardwareConditionType {
    /// As it stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Healthy => "Healthy",
            Self::HoldsPublished => "HoldsPublished",
        }
    }
}

impl HardwareConditionReason {
    /// As it stands in the object.
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
