//! Events that the core takes, and commands that it returns. The adapter turns objects into events, and commands into calls.

use std::time::Duration;

use hostler_api::ObjectKey;
use hostler_reconcile::WriteOutcome;

use super::{
    objects::{
        AllocatedClaim, FenceRule, NodeFences, OwnerPod, PodBudget, PriorityClasses, PublishedSlice, ReservationObject,
    },
    question::{HoldAnswer, HoldQuestion},
    writes::{HoldNotice, HoldTarget, HoldWrite},
};

/// News of the cluster, or the result of a command.
#[derive(Clone, Debug)]
pub(crate) enum HoldEvent {
    /// A Reservation is there or changed. Also the answer to a write of one, before its outcome.
    Reservation(Box<ReservationObject>),
    /// The Reservation with this UID is there, and cannot be understood.
    ReservationUnreadable(String),
    /// The Reservation with this name and UID is gone.
    ReservationGone(String, String),
    /// A ResourceSlice is there or changed.
    Slice(Box<PublishedSlice>),
    /// A ResourceSlice is gone.
    SliceGone(String),
    /// A NodeHardware is there or changed. Also the answer to a write of one, before its outcome.
    NodeFences(Box<NodeFences>),
    /// A NodeHardware is gone.
    NodeFencesGone(String),
    /// A DeviceTaintRule of ours (`hold-…`) is there.
    Rule(FenceRule),
    /// A DeviceTaintRule of ours is gone.
    RuleGone(String),
    /// A claim has devices or changed. A claim without devices may be left out as long as it has none.
    Claim(Box<AllocatedClaim>),
    /// The claim with this UID is gone.
    ClaimGone(ObjectKey, String),
    /// A pod was read: the pod, none, or the failure.
    Pod(ObjectKey, Result<Option<Box<OwnerPod>>, String>),
    /// PriorityClasses were listed, or the failure.
    Priorities(Result<PriorityClasses, String>),
    /// PodDisruptionBudgets were listed, or the failure.
    Budgets(Result<Vec<PodBudget>, String>),
    /// A node is there.
    Node(String),
    /// A node is gone.
    NodeGone(String),
    /// Nodes, slices, classes, templates or claims changed. The number counts changes after which more may fit than before.
    FactsChanged(u64),
    /// Every claim that there was when this list was asked for has been told.
    ClaimsListed(u64),
    /// The API server's time since 1970, from its record of the last write of an object.
    ServerTime(Duration),
    /// The planner has answered.
    Planned(HoldAnswer),
    /// All objects have been told.
    Synced,
    /// The outcome of a write. The object as it is after it has been told before.
    Written(HoldTarget, WriteOutcome),
    /// Time has passed.
    Tick,
}

/// A command.
#[derive(Clone, Debug)]
pub(crate) enum HoldCommand {
    /// Write an object, and tell the outcome.
    Write(HoldWrite),
    /// Read a pod.
    FetchPod(ObjectKey),
    /// List all PriorityClasses.
    ListPriorities,
    /// List all PodDisruptionBudgets.
    ListBudgets,
    /// List all claims as of now, not from a cache; tell the news, and then that they are listed. Tried again until it succeeds.
    ListClaims(u64),
    /// Ask the planner. One question at most is under way.
    Plan(Box<HoldQuestion>),
    /// Record an Event.
    Tell(HoldNotice),
    /// Come back at this time (elapsed), if nothing happens before.
    WakeAt(Duration),
}
