//! Events that the core takes, and commands that it returns. The adapter turns objects into events, and commands into
//! calls.

use std::time::Duration;

use hostler_api::ObjectKey;
use hostler_reconcile::WriteOutcome;

use super::{
    objects::{
        AllocatedClaim, FenceRule, KnownAttachment, NodeFences, OwnerPod, PodBudget, PriorityClasses, PublishedSlice,
    },
    question::{HoldAnswer, HoldQuestion},
    writes::{HoldEventNote, HoldTarget, HoldWrite},
};
use crate::reservation_object::ReservationObject;

/// News of the cluster, or the result of a command.
#[derive(Clone, Debug)]
pub(crate) enum HoldEvent {
    /// A Reservation was created or changed. Also the answer to a write of a Reservation, before the outcome of the
    /// write.
    Reservation(Box<ReservationObject>),
    /// The Reservation with this UID exists, and cannot be understood.
    ReservationUnreadable(String),
    /// The Reservation with this name and UID is gone.
    ReservationGone(String, String),
    /// A ResourceSlice was created or changed.
    Slice(Box<PublishedSlice>),
    /// A ResourceSlice is gone.
    SliceGone(String),
    /// A NodeHardware was created or changed. Also the answer to a write of a NodeHardware, before the outcome of the
    /// write.
    NodeFences(Box<NodeFences>),
    /// A NodeHardware is gone.
    NodeFencesGone(String),
    /// A DeviceTaintRule of ours (`hold-…`) exists.
    Rule(FenceRule),
    /// A DeviceTaintRule of ours is gone.
    RuleGone(String),
    /// A claim has devices or changed. A claim without devices may be left out until it has some.
    Claim(Box<AllocatedClaim>),
    /// The claim with this UID is gone.
    ClaimGone(ObjectKey, String),
    /// The result of reading a pod: the pod, none, or the failure.
    Pod(ObjectKey, Result<Option<Box<OwnerPod>>, String>),
    /// The result of listing PriorityClasses.
    Priorities(Result<PriorityClasses, String>),
    /// The result of listing PodDisruptionBudgets.
    Budgets(Result<Vec<PodBudget>, String>),
    /// A FabricAttachment was created or changed.
    Attachment(Box<KnownAttachment>),
    /// The FabricAttachment of this device is gone.
    AttachmentGone(String),
    /// A node exists.
    Node(String),
    /// A node is gone.
    NodeGone(String),
    /// Nodes, slices, classes, templates or claims changed. The number counts the changes after which more may fit than
    /// before.
    FactsChanged(u64),
    /// Every claim that existed when this list was asked for has been told.
    ClaimsListed(u64),
    /// The API server's time since 1970, from its record of the last write of an object.
    ServerTime(Duration),
    /// The planner has answered.
    Planned(HoldAnswer),
    /// All objects have been told.
    Synced,
    /// The outcome of a write. The object as it is after the write has been told before.
    Written(HoldTarget, WriteOutcome),
    /// Parts of nodes are kept beside devices, or not.
    PlacesKept(Option<bool>),
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
    /// List all claims as of now, not from a cache; tell the claims that are news, and then that the list is complete.
    /// The list is tried again until it succeeds.
    ListClaims(u64),
    /// Ask the planner. One question at most is in flight.
    Plan(Box<HoldQuestion>),
    /// Record an Event.
    Tell(HoldEventNote),
    /// Step again at this time (elapsed), if no event comes before.
    WakeAt(Duration),
}
