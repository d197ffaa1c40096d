//! Events that the core receives, and commands that it returns.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{
    ObjectKey,
    classic::{ClassicConsumer, ParametersMistake},
    hardware::NodeGrant,
    resource::AllocationResult,
};
use hostler_reconcile::WriteOutcome;

use super::model::{
    ClassicClaim, ClassicClass, DeviceSource, NodeState, Parameters, ParametersKey, PodFacts, SchedulingContext,
    UnsuitableNodes,
};
use crate::claim_write::ClaimVersion;

/// A change that was seen, or the result of a command.
#[derive(Clone, Debug)]
pub(crate) enum ClassicEvent {
    /// A claim is there, or is another one than before.
    Claim(Box<ClassicClaim>),
    /// The claim with this UID is gone.
    ClaimGone(ObjectKey, String),
    /// A class is there.
    Class(Box<ClassicClass>),
    /// A class is gone.
    ClassGone(String),
    /// A negotiation is there.
    Context(ObjectKey, Box<SchedulingContext>),
    /// The negotiation with this UID is gone.
    ContextGone(ObjectKey, String),
    /// The answer about a pod: its state, its absence, or the failure.
    Pod(ObjectKey, Result<Option<PodFacts>, String>),
    /// Parameters are there, if they can be understood.
    Parameters(ParametersKey, Result<Box<Parameters>, ParametersMistake>),
    /// Parameters are gone.
    ParametersGone(ParametersKey),
    /// A node is there.
    Node(String, Box<NodeState>),
    /// A node is gone.
    NodeGone(String),
    /// A NodeHardware is there.
    Source(Box<DeviceSource>),
    /// A NodeHardware is gone.
    SourceGone(String),
    /// The answer to a search for a claim by its UID: true if it exists, or the failure.
    ClaimFound(String, Result<bool, String>),
    /// The first lists are complete.
    Synced,
    /// The outcome of a write. The object's new state came as an event before.
    Written(WriteTarget, WriteOutcome),
    /// Time has passed.
    Tick,
}

/// An object that is written. At most one write for it is in flight.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum WriteTarget {
    /// A claim.
    Claim(ObjectKey),
    /// The status of a negotiation.
    Context(ObjectKey),
    /// The spec of a NodeHardware.
    Source(String),
    /// Labels of a node.
    Node(String),
}

/// A command of the core.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClassicCommand {
    /// Reads a pod.
    FetchPod(ObjectKey),
    /// Asks the server now whether there is a claim with this UID.
    FindClaim(ObjectKey, String),
    /// Writes an object; its outcome comes as an event.
    Write(ClassicWrite),
    /// Records an Event.
    Tell(ClassicEventNote),
    /// Asks to be woken at this time, if no event comes before.
    WakeAt(Duration),
}

/// A message about a claim.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ClassicEventNote {
    pub(crate) claim: ObjectKey,
    pub(crate) uid: String,
    pub(crate) reason: EventReason,
    pub(crate) message: String,
}

/// The reason of an Event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EventReason {
    /// A user has to mend something.
    Failed,
    /// There is no device for the claim now.
    Waiting,
}

impl EventReason {
    /// Returns the reason as Events carry it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "Failed",
            Self::Waiting => "WaitingForDevices",
        }
    }
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClassicWrite {
    /// The claim has these finalizers.
    Finalizers(ClaimVersion, Vec<String>),
    /// The claim is allocated.
    Allocation(ClaimVersion, Box<NewAllocation>),
    /// The claim is not allocated any more, and the request to deallocate it is done.
    Deallocation(ClaimVersion),
    /// The claims of a pod cannot be allocated on these nodes.
    Unsuitable { key: ObjectKey, uid: String, entries: UnsuitableNodes },
    /// Grants of a source, by UID of the claim; `None` removes one.
    Grants { source: String, version: String, grants: BTreeMap<String, Option<NodeGrant>> },
    /// Labels of a node; `None` removes one.
    Labels { node: String, labels: BTreeMap<String, Option<String>> },
}

/// An allocation for a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewAllocation {
    pub(crate) node: String,
    pub(crate) result: AllocationResult,
    /// Optional requests that got no device.
    pub(crate) absent: Vec<String>,
    pub(crate) is_shareable: bool,
    /// All consumers that may use the claim from then on.
    pub(crate) consumers: Vec<ClassicConsumer>,
}

impl ClassicWrite {
    /// Returns the claim that is written, if it is one.
    pub(crate) fn claim(&self) -> Option<&ClaimVersion> {
        match self {
            Self::Finalizers(claim, _) | Self::Allocation(claim, _) | Self::Deallocation(claim) => Some(claim),
            Self::Unsuitable { .. } | Self::Grants { .. } | Self::Labels { .. } => None,
        }
    }

    /// Returns the object that is written.
    pub(crate) fn target(&self) -> WriteTarget {
        match self {
            Self::Finalizers(claim, _) | Self::Allocation(claim, _) | Self::Deallocation(claim) => {
                WriteTarget::Claim(claim.key.clone())
            }
            Self::Unsuitable { key, .. } => WriteTarget::Context(key.clone()),
            Self::Grants { source, .. } => WriteTarget::Source(source.clone()),
            Self::Labels { node, .. } => WriteTarget::Node(node.clone()),
        }
    }
}
