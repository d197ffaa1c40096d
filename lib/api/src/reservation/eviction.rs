//! Pods that make room for the devices of a Reservation: the pods that it may move, and the progress of their eviction.

use serde::{Deserialize, Serialize};

/// A pod that shall run elsewhere.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct ReplacedPod {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod: another pod that comes later under the same name is left alone.
    pub uid: String,
}

/// Policy for the eviction of pods of lower priority.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum ReservationPreemptionPolicy {
    /// No pod is evicted.
    #[default]
    Never,
    /// Pods are evicted where no free device fits: pods whose priority is lower than the template's and whose devices
    /// would fit.
    PreemptLowerPriority,
}

/// A pod that is evicted for a Reservation.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct PodEviction {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Progress of the eviction.
    pub state: PodEvictionState,
    /// Reason for the delay: the budget or the right that is in the way.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Progress of a pod's eviction.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum PodEvictionState {
    /// The API server has not been asked, or has not answered.
    #[default]
    Planned,
    /// The API server does not do it now; it is asked again.
    Blocked,
    /// The API server does it.
    Evicted,
    /// The pod was gone, or going, before the API server was asked.
    Gone,
}

impl PodEvictionState {
    /// True if the eviction is still to be done.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Planned | Self::Blocked)
    }
}
