//! Keeps devices for those to whom they were promised: Reservations.
//!
//! kube-scheduler stays the only one that allocates. What is kept is closed to everybody else by a taint, and nothing is
//! promised before it is certain that nobody got it meanwhile. Which writes are made in which order: docs/reservations.md.
//!
//! ```text
//!   Reservations, slices, NodeHardware, claims, pods, nodes ─► HoldEvent ─► HoldCore::step ─► commands
//!                                                                   ▲            │ HoldQuestion
//!                                  what would fit where: HoldAnswer └─ planner ◄─┘ on a thread of its own
//! ```

pub(crate) mod adapter;
mod agenda;
mod annotations;
mod asked;
mod asking;
mod budgets;
mod choice;
mod closing;
mod conflicts;
mod core;
mod devices;
mod event;
mod evictions;
mod fences;
mod fresh;
mod hopeless;
mod parts;
mod placeholder;
mod planning;
mod preemption;
mod priorities;
mod published;
mod question;
mod refusals;
mod seen;
mod settle;
pub(crate) mod shared;
mod status;
mod taken;
mod telling;
#[cfg(test)]
pub(crate) mod tests;
mod unreadable;
mod victims;
mod writes;

pub(crate) use self::{
    choice::{OfferedReservation, ReservationOffer, open_reservations},
    core::{HoldCore, HoldSettings},
    event::{
        AllocatedClaim, Amounts, ClaimPart, DeviceKey, Fence, FenceRule, HoldCommand, HoldEvent, HoldNotice,
        HoldTarget, HoldTime, HoldWrite, NodeFences, OwnerPod, PlaceholderMark, PodBudget, PodRef, PodWrite,
        PriorityClasses, PublishedDevice, PublishedSlice, ReservationObject, WrittenReservation,
    },
    question::{HoldAnswer, HoldQuestion},
    status::STILL_LOOKING,
    taken::{add_taken, promised_by_reservations, taken_by_reservations},
};
