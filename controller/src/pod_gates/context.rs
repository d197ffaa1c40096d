//! Everything that was read about a gated pod, at one moment.

use std::time::Duration;

use hostler_api::{ObjectKey, core::NodeAffinity};
use hostler_cluster::ObjectVersion;

use super::waits::PodWait;
use crate::places::PlacePod;

/// Everything that decides whether the gate goes.
#[derive(Clone, Debug)]
pub(super) struct GateContext {
    /// The pod of the name, if there is one.
    pub(super) pod: Option<PlacePod>,
    /// The reason why the pod waits.
    pub(super) wait: PodWait,
    /// The place that the pod is being given, if it is given one.
    pub(super) place: Option<GrantedPlace>,
    /// Time since 1970.
    pub(super) now: Duration,
}

/// A place that the status of a Reservation gives to a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct GrantedPlace {
    /// Name of the Reservation.
    pub(super) reservation: String,
    pub(super) node: String,
    /// True if the place holder that stood in the place is gone.
    pub(super) is_free: bool,
    /// True if the pod may run nowhere else.
    pub(super) is_only: bool,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GateStep {
    /// Nothing is to be done for this pod.
    Rest,
    /// The pod keeps its gate: it waits for this, and not longer than the time, if there is one.
    Hold(PodWait, Option<Duration>),
    /// The gate goes.
    Write(Box<GateWrite>),
}

/// The removal of the gate. It names the version that it was decided on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GateWrite {
    pub(super) pod: ObjectKey,
    pub(super) version: ObjectVersion,
    /// Gates of other programs, which stay.
    pub(super) gates: Vec<String>,
    /// The new affinity to nodes, if that changes.
    pub(super) affinity: Option<NodeAffinity>,
}
