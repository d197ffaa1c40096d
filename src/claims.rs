//! Prepared claims of the node. One owner decides on claim records and claim CDI files; readers see the latest table.
//!
//! ```text
//!                 plan                 hardware, verify, CDI file
//!   (unknown) ──────────► preparing ─────────────────────────────► prepared ◄─┐ prepare again: verify, same answer
//!       ▲                     │ failed: undo                          │   └───┘
//!       │◄────────────────────┘                                       │
//!       └──────────────────── CDI file gone, hardware undone ◄────────┘ unprepare
//!
//!   a record that cannot be understood is `quarantined`: its devices stay taken until an operator forgets it
//! ```
//!
//! *preparing* and *prepared* are on disk before the next arrow is followed; see [`store`]. Writer: [`task`]. Readers:
//! health, metrics, the admin socket, through [`ClaimsHandle::table`].

mod admission;
pub mod admit;
mod call;
mod counters;
mod executor;
mod given;
pub mod held;
pub mod janitor;
pub mod metadata;
pub mod naming;
mod place;
pub mod recover;
pub mod restore;
pub mod spec;
pub mod store;
mod table;
pub mod task;
#[cfg(test)]
mod testing;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::SystemTime};

use hostler_api::{
    Allocation, Chain, ClaimRef, ClaimUid, DeviceName, ShareId,
    fabric::{DeviceIdentity, of_fabric_pool},
    few,
};
use hostler_backend::{BackendError, ForeignEdits};
use hostler_files::LockError;
use serde::{Deserialize, Serialize};

use crate::{inventory::Inventory, metrics::FailureReason};

pub use table::{ClaimTable, ClaimView};
pub use task::{ClaimsHandle, ClaimsParts, ClaimsStartError, DeviceOrder, OrderObstacle, OrderStage, start};

/// Answer of a [`ReadClaims`] for one claim.
pub type ReadResult = Result<Allocation, Box<dyn std::error::Error + Send + Sync>>;

/// Continuation that takes the allocations that were read. It blocks: the claims are prepared in it.
pub type ReadContinuation = Box<dyn FnOnce(Vec<ReadResult>) + Send>;

/// Allocations that came along with a call to prepare claims.
pub type GivenAllocations = BTreeMap<ClaimUid, ReadResult>;

/// Source of the claims' allocations: the API server or manifests on disk.
pub trait ReadClaims: Send + Sync + 'static {
    /// Reads the allocations of exactly these claims, in their order: a claim of the same name with another UID is an
    /// error. Returns at once, and goes on with `then` on a blocking thread, where it can on the one that read them:
    /// each change of threads is a good part of what a prepare takes. A reader over a network asks for all of them at
    /// once.
    fn read(&self, claims: Vec<ClaimRef>, then: ReadContinuation);
}

/// One device of a prepared claim, as the kubelet hears of it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PreparedDevice {
    /// Top-level requests that the device belongs to.
    pub request_names: Vec<String>,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: DeviceName,
    /// Qualified CDI ids; the first is this device's own.
    pub cdi_ids: Vec<String>,
    /// Share of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_id: Option<ShareId>,
}

/// The result of an operation on one claim. The error is shared: several callers may wait for one operation.
pub type ClaimResult<T> = Result<T, Arc<ClaimError>>;

/// Reason why a claim could not be prepared or taken back.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The allocation could not be read.
    #[error("failed to read the allocation of claim {claim}")]
    Read {
        /// The claim.
        claim: ClaimRef,
        /// Error of the API server or of the manifest.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A device of the allocation is not on this host.
    #[error("device {device} is not in pool {pool} of this host: it was unplugged, or the pool is another node's")]
    NoSuchDevice {
        /// The pool of the allocation.
        pool: String,
        /// The device of the allocation.
        device: DeviceName,
    },
    /// A device behind a switch is not on this host.
    #[error(
        "device {device} is not on this host: fabric manager {manager} attaches it; `kubectl get fabricattachment {device} \
         -o yaml` says to which node, and what is in the way"
    )]
    NotAttached {
        /// The fabric manager.
        manager: String,
        /// The device of the allocation.
        device: DeviceName,
    },
    /// Several cards of this host say that they are the device.
    #[error("device {device} cannot be told from others: cards {cards} have the same serial number; take one out")]
    AmbiguousCard {
        /// The device of the allocation.
        device: DeviceName,
        /// The cards.
        cards: String,
    },
    /// The devices of the pool are not known.
    #[error("whether device {device} is in pool {pool} is not known: {reason}; try again")]
    UnknownPool {
        /// The pool of the allocation.
        pool: String,
        /// The device of the allocation.
        device: DeviceName,
        /// Reason why they are not known.
        reason: String,
    },
    /// A start has not made the claim right yet.
    #[error("claim {uid} is {recovery}: until that ends its devices stay taken; try again")]
    Recovering {
        /// The claim.
        uid: ClaimUid,
        /// Start of the claim's recovery and its backends, in words.
        recovery: String,
    },
    /// Another claim holds the device.
    #[error("device {device} is already prepared for claim {holder}")]
    Held {
        /// The device.
        device: DeviceName,
        /// `uid (namespace/name)` of the holder.
        holder: String,
    },
    /// The shares of a device do not fit.
    #[error("device {device} has {free} of {capacity} left, {wanted} wanted; held by {holders}")]
    NoCapacity {
        /// The device.
        device: DeviceName,
        /// Name of the capacity.
        capacity: String,
        /// Amount wanted.
        wanted: String,
        /// Amount left.
        free: String,
        /// Claims and amounts.
        holders: String,
    },
    /// A counter that the device shares with others has not enough left.
    #[error("device {device} takes {wanted} of counter {counter}, which has {free} left; held by {holders}")]
    NoCounter {
        /// The device.
        device: DeviceName,
        /// The counter and its set.
        counter: String,
        /// Amount wanted.
        wanted: String,
        /// Amount left.
        free: String,
        /// Claims, amounts and the devices that take them.
        holders: String,
    },
    /// The allocation takes a capacity that the device does not have.
    #[error("device {device} has no capacity {capacity}: it has {known}")]
    UnknownCapacity {
        /// The device.
        device: DeviceName,
        /// Capacity of the allocation.
        capacity: String,
        /// Capacities that the device has.
        known: String,
    },
    /// The allocation takes nothing of something.
    #[error(
        "the allocation takes 0 of {capacity} of device {device}; write more than 0, or leave it out for all of it"
    )]
    NothingTaken {
        /// The device.
        device: DeviceName,
        /// The capacity.
        capacity: String,
    },
    /// Devices that have to be on one NUMA node cannot be.
    #[error("no NUMA node has all that has to be on one (sameNumaNode: required): {grants}; {reasons}")]
    Placement {
        /// The devices, with the nodes that each can come from.
        grants: String,
        /// The obstacle on each node.
        reasons: String,
    },
    /// A backend could not do its step.
    #[error("failed to {step} device {device}")]
    Backend {
        /// `plan`, `prepare`, `verify`, `unprepare`, `attach` or `detach`.
        step: &'static str,
        /// The device.
        device: DeviceName,
        /// Error of the backend.
        #[source]
        source: BackendError,
    },
    /// The holder of what is missing may need it no more.
    #[error("{}; whether its holder still needs it is being looked at: try again in some seconds", Chain(&**refusal))]
    Contested {
        /// Reason of the refusal, as long as the holder needs the device.
        refusal: Box<ClaimError>,
    },
    /// The claim was to be taken back as not needed, and was asked for again.
    #[error("claim {0} was asked for again")]
    NeededAgain(ClaimUid),
    /// A device gives containers what its backend never gives.
    #[error("device {device} cannot be what is on record")]
    Edits {
        /// The device.
        device: DeviceName,
        /// The edits that the device gives.
        #[source]
        source: ForeignEdits,
    },
    /// Another daemon may work on the same folders.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The backend that a record names is not configured.
    #[error("backend {backend} of device {device} is not enabled: enable it, or drain the claim before disabling it")]
    NoBackend {
        /// Name of the backend.
        backend: String,
        /// The device.
        device: DeviceName,
    },
    /// A record could not be written or removed.
    #[error("failed to keep the record of claim {uid}")]
    Store {
        /// The claim.
        uid: ClaimUid,
        /// The failed step.
        #[source]
        source: Arc<store::StoreError>,
    },
    /// The CDI file could not be written or removed.
    #[error("failed to keep the CDI file of claim {uid}")]
    Cdi {
        /// The claim.
        uid: ClaimUid,
        /// The failed step.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The files with the attributes of its devices could not be written.
    #[error("failed to describe the devices of claim {uid} to its containers")]
    Metadata {
        /// The claim.
        uid: ClaimUid,
        /// The failed step.
        #[source]
        source: metadata::MetadataError,
    },
    /// Preparing failed, and so did taking it back.
    #[error("failed to undo a half-prepared claim after this error: {cause}")]
    RollBack {
        /// The whole chain of the first error.
        cause: String,
        /// Reason why undoing failed.
        #[source]
        source: Arc<ClaimError>,
    },
    /// The record cannot be understood.
    #[error(
        "claim {uid} is quarantined: {reason}; its devices stay taken; inspect {path}, then run `hostler claim forget {uid}`"
    )]
    Quarantined {
        /// The claim.
        uid: ClaimUid,
        /// The file.
        path: PathBuf,
        /// Fault of the record.
        reason: String,
    },
    /// Only quarantined claims can be forgotten.
    #[error("claim {0} is not quarantined: take it back instead")]
    NotQuarantined(ClaimUid),
    /// The claim was taken back while its allocation was not at hand.
    #[error("claim {0} was taken back in the meantime; try again")]
    Gone(ClaimRef),
    /// An order has waited long enough.
    #[error("gave up after {waited}, before anything was changed: busy with {obstacles}")]
    OrderTimedOut {
        /// Time for which the order waited.
        waited: String,
        /// Work that was in the order's way.
        obstacles: String,
    },
    /// The caller that gave an order has gone while the order waited.
    #[error("the order was withdrawn before anything was changed")]
    OrderWithdrawn,
    /// The daemon is stopping.
    #[error("the daemon is stopping; try again")]
    Stopping,
}

impl ClaimError {
    /// The class of failures that it is counted with.
    fn reason(&self) -> FailureReason {
        match self {
            Self::Read { .. } => FailureReason::Unreadable,
            Self::UnknownCapacity { .. } | Self::NothingTaken { .. } | Self::NotQuarantined(_) => {
                FailureReason::Invalid
            }
            Self::NoSuchDevice { .. } | Self::NotAttached { .. } | Self::AmbiguousCard { .. } => {
                FailureReason::NoDevice
            }
            Self::Held { .. } => FailureReason::Held,
            Self::NoCapacity { .. } | Self::NoCounter { .. } => FailureReason::NoCapacity,
            Self::Placement { .. } => FailureReason::Placement,
            Self::Backend { .. } => FailureReason::Backend,
            Self::NoBackend { .. } => FailureReason::NoBackend,
            Self::Store { .. } | Self::Cdi { .. } | Self::Metadata { .. } => FailureReason::Storage,
            // What could not be undone is what holds its devices now.
            Self::RollBack { source, .. } => source.reason(),
            Self::Quarantined { .. } | Self::Edits { .. } => FailureReason::Quarantined,
            Self::Contested { refusal } => refusal.reason(),
            Self::Gone(_)
            | Self::Stopping
            | Self::NeededAgain(_)
            | Self::Lock(_)
            | Self::UnknownPool { .. }
            | Self::Recovering { .. }
            | Self::OrderTimedOut { .. }
            | Self::OrderWithdrawn => FailureReason::Interrupted,
        }
    }
}

/// A claim that could not be prepared or taken back.
#[derive(Clone, Debug)]
pub struct ClaimFailure {
    /// The claim.
    pub claim: ClaimRef,
    /// `prepare` or `unprepare`.
    pub operation: &'static str,
    /// Cause of the failure.
    pub error: Arc<ClaimError>,
    /// Time of the failure.
    pub at: SystemTime,
}

/// Work that is under way on a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BusyClaim {
    /// Kind of work.
    pub operation: ClaimOperation,
    /// Time at which the work began.
    pub since: SystemTime,
}

/// Kinds of work that can be under way on a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClaimOperation {
    /// The claim is made ready, or checked.
    Prepare,
    /// The claim is taken back.
    Unprepare,
    /// The files with the attributes of the claim's devices are written anew.
    Describe,
    /// A start makes right what the last run left of it.
    Recover,
}

/// Reason why a device of an allocation is not found.
fn absent(inventory: &Inventory, pool: &str, device: &DeviceName) -> ClaimError {
    let (pool, device) = (pool.to_owned(), device.clone());
    if let Some(reason) = inventory.unknown_reason(&pool) {
        return ClaimError::UnknownPool { reason: reason.to_owned(), pool, device };
    }
    let Some((manager, _)) = of_fabric_pool(&pool) else { return ClaimError::NoSuchDevice { pool, device } };
    let identity = DeviceIdentity::of_device_name(device.as_str());
    let cards = identity.into_iter().flat_map(|identity| inventory.cards(identity.serial));
    let cards: Vec<String> = cards.map(|(backend, card)| format!("{backend}/{}", card.name)).collect();
    if cards.is_empty() {
        ClaimError::NotAttached { manager: manager.to_owned(), device }
    } else {
        ClaimError::AmbiguousCard { device, cards: few(cards) }
    }
}

impl ClaimOperation {
    /// Name of the operation: `prepare`, `unprepare`, `describe`, `recover`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Unprepare => "unprepare",
            Self::Describe => "describe",
            Self::Recover => "recover",
        }
    }

    /// Words for a claim while the operation lasts, such as `preparing`.
    pub fn in_progress(self) -> &'static str {
        match self {
            Self::Prepare => "preparing",
            Self::Unprepare => "being taken back",
            Self::Describe => "being described",
            Self::Recover => "being recovered",
        }
    }
}
