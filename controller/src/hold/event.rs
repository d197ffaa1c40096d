//! What can happen to the core, and what it wants done. Whoever stands at the edge turns objects into these, and these into
//! calls.

mod pods;

use std::{collections::BTreeMap, fmt, time::Duration};

use hostler_api::{
    ObjectKey, Quantity,
    reservation::{PLACED_POD_LABEL, ReservationMode, ReservationSpec, ReservationStatus},
};
use hostler_reconcile::WriteOutcome;

pub(crate) use self::pods::{OwnerPod, PodBudget, PodRef, PodWrite, PriorityClasses};

use super::question::{HoldAnswer, HoldQuestion};
use crate::claim_write::ClaimWrite;

/// Amounts of capacities.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Driver, pool and name of a device.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct DeviceKey {
    pub(crate) driver: String,
    pub(crate) pool: String,
    pub(crate) device: String,
}

/// What time it is, twice: one clock never jumps, the other one is compared with times in objects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoldTime {
    /// Since some moment before the core began.
    pub(crate) elapsed: Duration,
    /// Since 1970, as this machine says.
    pub(crate) wall: Duration,
}

/// Something that was seen, or that came of a command.
#[derive(Clone, Debug)]
pub(crate) enum HoldEvent {
    /// A Reservation is there, or is another one than before. Also what a write of one returned, before its outcome.
    Reservation(Box<ReservationObject>),
    /// The Reservation with this UID is there, and cannot be understood.
    ReservationUnreadable(String),
    /// The Reservation with this name and UID is gone.
    ReservationGone(String, String),
    /// A ResourceSlice is there, or is another one than before.
    Slice(Box<PublishedSlice>),
    /// A ResourceSlice is gone.
    SliceGone(String),
    /// A NodeHardware is there, or is another one than before. Also what a write of one returned, before its outcome.
    NodeFences(Box<NodeFences>),
    /// A NodeHardware is gone.
    NodeFencesGone(String),
    /// A DeviceTaintRule of ours (`hold-…`) is there.
    Rule(FenceRule),
    /// A DeviceTaintRule of ours is gone.
    RuleGone(String),
    /// A claim has devices, or is another one than before. One that has none may be left out as long as it has none.
    Claim(Box<AllocatedClaim>),
    /// The claim with this UID is gone.
    ClaimGone(ObjectKey, String),
    /// A pod was asked for: how it is, that there is none, or why nobody knows.
    Pod(ObjectKey, Result<Option<Box<OwnerPod>>, String>),
    /// PriorityClasses were asked for: what they say, or why nobody knows.
    Priorities(Result<PriorityClasses, String>),
    /// PodDisruptionBudgets were asked for: which there are, or why nobody knows.
    Budgets(Result<Vec<PodBudget>, String>),
    /// A node is there.
    Node(String),
    /// A node is gone.
    NodeGone(String),
    /// Nodes, slices, classes, templates or claims changed: who waits for devices may be lucky now, where the number is another one
    /// than before: it counts what got free or came.
    FactsChanged(u64),
    /// Every claim that there was when this list was asked for has been told.
    ClaimsListed(u64),
    /// The API server said what time it is, in what it keeps of the last write of an object: since 1970.
    ServerTime(Duration),
    /// The planner has answered.
    Planned(HoldAnswer),
    /// Everything that there is has been told.
    Synced,
    /// What came of a write. What the object is after it has been told before.
    Written(HoldTarget, WriteOutcome),
    /// Time has passed.
    Tick,
}

/// A Reservation, as the server has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReservationObject {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The resourceVersion.
    pub(crate) version: String,
    pub(crate) generation: i64,
    /// When it was made, since 1970.
    pub(crate) created: Duration,
    pub(crate) is_deleting: bool,
    pub(crate) finalizers: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) spec: ReservationSpec,
    pub(crate) status: ReservationStatus,
}

impl ReservationObject {
    /// The namespace of its pods.
    pub(crate) fn namespace(&self) -> String {
        ObjectKey::new(self.spec.template["metadata"]["namespace"].as_str().unwrap_or_default(), "").namespace
    }

    /// True if claims are made only when its pods come: those of a gated pod, and those that pods name, are there before.
    pub(crate) fn is_counted_by_quotas(&self) -> bool {
        self.spec.mode() == ReservationMode::Fence && !self.labels.contains_key(PLACED_POD_LABEL)
    }
}

/// What a ResourceSlice says of devices, as far as it matters to those who keep them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PublishedSlice {
    /// Name of the slice.
    pub(crate) name: String,
    /// Its resourceVersion.
    pub(crate) version: String,
    pub(crate) driver: String,
    pub(crate) pool: String,
    /// Empty where its devices are not one node's.
    pub(crate) node: String,
    pub(crate) devices: Vec<PublishedDevice>,
}

/// A device of a slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PublishedDevice {
    pub(crate) name: String,
    /// Value of its taint `hostler.dev/held`, as the driver publishes it.
    pub(crate) held_for: Option<String>,
    /// Its attribute `hostler.dev/held` says that it is held, where taints are not served. For whom says only what its node was told.
    pub(crate) is_held: bool,
    /// It works, and nobody has taken it out of service: no other taint keeps claims away.
    pub(crate) is_usable: bool,
    /// Several claims can have parts of it at once.
    pub(crate) is_shareable: bool,
    /// All there is of its capacities, of one that is shared.
    pub(crate) capacity: Amounts,
    /// It draws on counters of which other devices draw as well.
    pub(crate) is_partition: bool,
    /// Something must become true before a pod that was given it is bound.
    pub(crate) has_binding_conditions: bool,
}

/// What a NodeHardware says is to be kept of its node's devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeFences {
    /// Name of the object, and of the node.
    pub(crate) node: String,
    /// The resourceVersion.
    pub(crate) version: String,
    /// All of `spec.holds`.
    pub(crate) fences: Vec<Fence>,
}

/// A device of a node that is closed to whoever does not tolerate the value.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Fence {
    pub(crate) pool: String,
    pub(crate) device: String,
    pub(crate) value: String,
}

/// A DeviceTaintRule that closes one device of a driver that is not ours.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct FenceRule {
    /// `hold-` and 16 hexadecimal digits, which follow from the device: two that want it cannot both make it.
    pub(crate) name: String,
    pub(crate) device: DeviceKey,
    pub(crate) value: String,
}

/// A claim, and the devices that it has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AllocatedClaim {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
    /// The resourceVersion.
    pub(crate) version: String,
    /// Without those that it only looks after (adminAccess).
    pub(crate) devices: Vec<DeviceKey>,
    /// What of them are parts of devices that are shared.
    pub(crate) parts: Vec<ClaimPart>,
    /// The pod that it was made for from a template, and its consumers that are pods: name and UID.
    pub(crate) pods: Vec<PodRef>,
    /// Values of the taint `hostler.dev/held` that its requests tolerate by name.
    pub(crate) tolerates: Vec<String>,
    /// Where it stands for a part that a Reservation keeps.
    pub(crate) placeholder: Option<PlaceholderMark>,
}

/// A part of a device that a claim has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClaimPart {
    pub(crate) device: DeviceKey,
    pub(crate) share_id: String,
    pub(crate) amounts: Amounts,
}

/// What is special about a claim that stands for a part of a device: it is in the namespace of the controller, and nobody else's.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PlaceholderMark {
    pub(crate) reservation_uid: String,
    pub(crate) finalizers: Vec<String>,
    pub(crate) is_deleting: bool,
}

/// An object that is written. There is never more than one write for it under way.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum HoldTarget {
    /// A Reservation.
    Reservation(String),
    /// The spec of a NodeHardware.
    NodeFences(String),
    /// A DeviceTaintRule.
    Rule(String),
    /// A pod that is not ours.
    Pod(ObjectKey),
    /// A claim that stands for a part of a device.
    Claim(ObjectKey),
}

/// Something to do.
#[derive(Clone, Debug)]
pub(crate) enum HoldCommand {
    /// Write an object, and say what came of it.
    Write(HoldWrite),
    /// Read a pod.
    FetchPod(ObjectKey),
    /// List what PriorityClasses there are.
    ListPriorities,
    /// List what PodDisruptionBudgets there are.
    ListBudgets,
    /// List all claims as of now, not from a cache; tell what is news, and then that they are listed. Again until it succeeds.
    ListClaims(u64),
    /// Ask the planner. There is never more than one question under way.
    Plan(Box<HoldQuestion>),
    /// Tell people, in an Event.
    Tell(HoldNotice),
    /// Come back at this time (elapsed), if nothing happens before.
    WakeAt(Duration),
}

/// Which Reservation is written, in which version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct WrittenReservation {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: String,
}

/// A write. All but those of rules and pods carry the version that they are a change of, and fail where there is another one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HoldWrite {
    /// The Reservation has these finalizers.
    Finalizers(WrittenReservation, Vec<String>),
    /// The Reservation has this status, and nothing else in it.
    Status(WrittenReservation, Box<ReservationStatus>),
    /// The Reservation goes, if it is this one in this version.
    Delete(WrittenReservation),
    /// These devices of a node are closed, and no others.
    NodeFences { node: String, version: String, fences: Vec<Fence> },
    /// A rule is made. That there is one of its name is a conflict.
    CreateRule(FenceRule),
    /// A rule goes, if it has this value.
    DeleteRule(FenceRule),
    /// Something about a pod.
    Pod(PodWrite),
    /// A claim that stands for a part of a device.
    Claim(Box<ClaimWrite>),
}

/// A word about a Reservation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct HoldNotice {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) is_warning: bool,
    /// In one word.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl HoldWrite {
    /// Whether it closes devices to others, or opens them.
    pub(crate) fn is_of_fences(&self) -> bool {
        matches!(self.target(), HoldTarget::NodeFences(_) | HoldTarget::Rule(_))
    }

    /// Of the Reservation that is written.
    pub(crate) fn reservation_uid(&self) -> Option<&str> {
        match self {
            Self::Finalizers(it, _) | Self::Status(it, _) | Self::Delete(it) => Some(&it.uid),
            _ => None,
        }
    }

    /// The object.
    pub(crate) fn target(&self) -> HoldTarget {
        match self {
            Self::Finalizers(it, _) | Self::Status(it, _) | Self::Delete(it) => {
                HoldTarget::Reservation(it.name.clone())
            }
            Self::NodeFences { node, .. } => HoldTarget::NodeFences(node.clone()),
            Self::CreateRule(rule) | Self::DeleteRule(rule) => HoldTarget::Rule(rule.name.clone()),
            Self::Pod(write) => HoldTarget::Pod(write.pod().clone()),
            Self::Claim(write) => HoldTarget::Claim(write.key().clone()),
        }
    }
}

impl fmt::Display for HoldTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reservation(name) => write!(f, "Reservation {name}"),
            Self::NodeFences(name) => write!(f, "NodeHardware {name}"),
            Self::Rule(name) => write!(f, "DeviceTaintRule {name}"),
            Self::Pod(key) => write!(f, "Pod {key}"),
            Self::Claim(key) => write!(f, "ResourceClaim {key}"),
        }
    }
}

impl DeviceKey {
    pub(crate) fn new(driver: &str, pool: &str, device: &str) -> Self {
        Self { driver: driver.to_owned(), pool: pool.to_owned(), device: device.to_owned() }
    }
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}
