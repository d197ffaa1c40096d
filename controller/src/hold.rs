//! Reservations: devices that are kept for the pods to which they were promised.
//!
//! kube-scheduler stays the only one that allocates. hostler closes a kept device to all other pods with a taint, and
//! promises it only once it is certain that no other claim got it meanwhile. The order of all writes:
//! docs/reservations.md.
//!
//! ```text
//!   Reservations, slices, NodeHardware, claims, pods, nodes ─► HoldEvent ─► HoldCore::step ─► commands
//!                                                                   ▲            │ HoldQuestion
//!                                  what would fit where: HoldAnswer └─ planner ◄─┘ on a thread of its own
//! ```

pub(crate) mod adapter;
mod answering;
mod asked;
mod attaching;
mod budgets;
mod candidates;
mod choice;
mod closed;
mod closing;
mod conflicts;
mod context;
mod core;
mod devices;
mod event;
mod evictions;
mod fences;
mod fresh;
mod holders;
mod hopeless;
mod known;
mod news;
mod no_devices;
mod objects;
mod parts;
mod placeholder;
mod placeholders;
mod places;
mod planning;
mod pods;
mod preempting;
mod preemption;
mod priorities;
mod published;
mod question;
mod questions;
mod reconcile;
mod recorded;
mod refusals;
mod replaced;
mod reservation;
mod reservations;
mod settings;
pub(crate) mod shared;
mod status;
mod taken;
#[cfg(test)]
pub(crate) mod tests;
mod topics;
mod vacant;
mod victims;
mod writes;
mod written;

pub(crate) use self::{
    choice::{OfferedReservation, ReservationOffer, open_reservations},
    core::HoldCore,
    event::{HoldCommand, HoldEvent},
    objects::{
        AllocatedClaim, Amounts, ClaimPart, DeviceKey, Fence, FenceRule, HoldTime, KnownAttachment, NodeFences,
        OwnerPod, PlaceholderMark, PodBudget, PodRef, PriorityClasses, PublishedDevice, PublishedSlice,
    },
    question::{HoldAnswer, HoldQuestion},
    settings::HoldSettings,
    taken::{add_taken, promised_by_reservations, taken_by_reservations},
    writes::{HoldEventNote, HoldTarget, HoldWrite, PodWrite, WrittenReservation},
};
