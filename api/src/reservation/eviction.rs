//! Pods that make room for what a Reservation keeps: whom it may move, and how far that is.

use serde::{Deserialize, Serialize};

/// A pod that shall run elsewhere.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct ReplacedPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity: one that comes later under the same name is left alone.
    pub uid: String,
}

/// Whether pods of lower priority are evicted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum ReservationPreemptionPolicy {
    /// Nobody is evicted.
    #[default]
    Never,
    /// Where nothing free fits, pods whose priority is lower than the template's and that have devices that would.
    PreemptLowerPriority,
}

/// A pod that is evicted for a Reservation.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct PodEviction {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// How far it is.
    pub state: PodEvictionState,
    /// Why not yet: the budget or the right that is in the way.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How far the eviction of a pod is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum PodEvictionState {
    /// The API server has not been asked, or has not answered.
    #[default]
    Planned,
    /// The API server does not do it now; it is asked again.
    Blocked,
    /// The API server does it.
    Evicted,
    /// It was gone, or going, before it was asked for.
    Gone,
}

impl PodEvictionState {
    /// Whether it is still to be done.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Planned | Self::Blocked)
    }
}
