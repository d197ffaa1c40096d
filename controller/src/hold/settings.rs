//! Settings of the core.

use std::time::Duration;

use hostler_allocator::plan::{BoxSize, PlanOptions};

/// Settings that do not change during a term.
#[derive(Clone, Debug)]
pub(crate) struct HoldSettings {
    /// Driver whose daemons close devices themselves.
    pub(crate) own_driver: String,
    /// True if the API server serves DeviceTaintRules, with which devices of other drivers are closed.
    pub(crate) has_rules: bool,
    /// Namespace of the claims that stand for parts of devices, if there can be any.
    pub(crate) namespace: Option<String>,
    /// True if a part of a counter set can be closed: schedulers before the fix of kubernetes#140436 take its siblings
    /// for taken.
    pub(crate) holds_partitions: bool,
    /// True if parts of nodes are kept beside devices: CPU, memory and what else pods set aside. `None` before that is
    /// known.
    pub(crate) keeps_places: Option<bool>,
    /// True if devices behind switches are attached here: those that are kept are attached before owners come.
    pub(crate) attaches: bool,
    /// The longest time until the API server shows an allocation that a scheduler has decided on.
    pub(crate) settle: Duration,
    /// Time for which a device may be gone, or a node not answer, before another device is chosen.
    pub(crate) grace: Duration,
    /// Time for which Reservations that are over are kept for people.
    pub(crate) keep: Duration,
    /// Options of the planner.
    pub(crate) plan: PlanOptions,
    /// Limit of work and time for the questions of one namespace.
    pub(crate) asker_box: BoxSize,
}
