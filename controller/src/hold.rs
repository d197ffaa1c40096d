//! Keeps devices for those to whom they were promised: Reservations.
//!
//! kube-scheduler stays the only one that allocates. What is kept is closed to everybody else by a taint, and nothing is
//! promised before it is certain that nobody got it meanwhile. Which writes are made in which order: docs/reservations.md.
//!
//! ```text
//!   Reservations, slices, NodeHardware, claims, pods, nodes ─► HoldEvent ─► HoldCore::step ─► commands
//!   ClusterFacts: what would fit where ────────────────────────────────────────┘
//! ```

mod agenda;
mod choice;
mod core;
mod devices;
mod event;
mod fences;
mod planning;
mod seen;
mod settle;
mod status;
mod taken;
#[cfg(test)]
mod tests;
mod writes;

pub(crate) use self::{
    choice::{ReservationOffer, choose_reservation},
    core::{HoldCore, HoldSettings},
    event::{
        AllocatedClaim, DeviceKey, FenceRule, HoldCommand, HoldEvent, HoldNotice, HoldOutcome, HoldTime, HoldWrite,
        NodeFences, OwnerPod, PodRef, PublishedDevice, PublishedSlice, ReservationObject, WrittenReservation,
    },
    taken::taken_by_reservations,
};
