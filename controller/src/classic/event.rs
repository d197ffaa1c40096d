//! What can happen to the core, and what it wants done.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{
    ObjectKey,
    classic::{ClassicConsumer, NodeGrant, ParametersMistake},
    resource::AllocationResult,
};
use hostler_reconcile::WriteOutcome;

use super::model::{
    ClassicClaim, ClassicClass, DeviceSource, NodeState, Parameters, ParametersKey, PodFacts, SchedulingContext,
    UnsuitableNodes,
};

/// Something that was seen, or that came of a command.
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
    /// A pod was asked for: how it is, that there is none, or why nobody knows.
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
    /// A claim was looked for by its UID: whether it is there, or why nobody knows.
    ClaimFound(String, Result<bool, String>),
    /// Everything that there is has been told.
    Synced,
    /// What came of a write. What the object is after it has been told before.
    Written(WriteTarget, WriteOutcome),
    /// Time has passed.
    Tick,
}

/// An object that is written. There is never more than one write for it under way.
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

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClassicCommand {
    /// Read a pod.
    FetchPod(ObjectKey),
    /// Look whether there is a claim with this UID, as of now.
    FindClaim(ObjectKey, String),
    /// Write an object, and say what came of it.
    Write(ClassicWrite),
    /// Tell people, in an Event.
    Tell(ClassicNotice),
    /// Come back at this time, if nothing happens before.
    WakeAt(Duration),
}

/// A word about a claim.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ClassicNotice {
    pub(crate) claim: ObjectKey,
    pub(crate) uid: String,
    pub(crate) reason: NoticeReason,
    pub(crate) message: String,
}

/// Why people are told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoticeReason {
    /// Somebody has to mend something.
    Failed,
    /// There is no device for it now.
    Waiting,
}

impl NoticeReason {
    /// As in the Event.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "Failed",
            Self::Waiting => "WaitingForDevices",
        }
    }
}

/// Which object is written, in which version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct WrittenClaim {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
    pub(crate) version: String,
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClassicWrite {
    /// The claim has these finalizers.
    Finalizers(WrittenClaim, Vec<String>),
    /// The claim is allocated.
    Allocation(WrittenClaim, Box<NewAllocation>),
    /// The claim is not allocated any more, and nobody asks for that any more.
    Deallocation(WrittenClaim),
    /// The claims of a pod cannot be allocated on these nodes.
    Unsuitable { key: ObjectKey, uid: String, entries: UnsuitableNodes },
    /// What was given of a source, by UID of the claim; `None` is given back.
    Grants { source: String, version: String, grants: BTreeMap<String, Option<NodeGrant>> },
    /// Labels of a node; `None` is taken off.
    Labels { node: String, labels: BTreeMap<String, Option<String>> },
}

/// What a claim is given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewAllocation {
    pub(crate) node: String,
    pub(crate) result: AllocationResult,
    /// Requests that got nothing, and can do without.
    pub(crate) absent: Vec<String>,
    pub(crate) is_shareable: bool,
    /// All that may use it from then on.
    pub(crate) consumers: Vec<ClassicConsumer>,
}

impl ClassicWrite {
    /// The object.
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
