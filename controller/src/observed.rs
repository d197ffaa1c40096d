//! The kinds of objects that are watched, and the events in which they are told.

mod event;
mod fabric;
mod kind;
pub(crate) mod marks;
mod pooled_slice;

use std::time::Instant;

pub(crate) use self::{
    event::{ClusterEvent, ObservedObject, SeenObject},
    fabric::{AttachmentObject, FabricObjects, OfferedOtherwise, PooledHold, only_node},
    kind::ObservedKind,
    marks::ReservationMarks,
    pooled_slice::{PooledSlice, SlicedDevice},
};

/// State of what is known of a kind, for readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct KindStatus {
    /// True if a complete list was seen.
    pub(crate) is_synced: bool,
    /// True if the server does not know the kind, or the configuration leaves it out.
    pub(crate) is_absent: bool,
    /// The time since when nothing was heard, and the reason.
    pub(crate) silent: Option<(Instant, String)>,
    /// Number of objects.
    pub(crate) objects: usize,
    /// Number of objects that cannot be understood.
    pub(crate) poisoned: usize,
    /// One of these, and the reason.
    pub(crate) example: Option<String>,
}
