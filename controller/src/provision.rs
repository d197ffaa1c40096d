//! ProvisioningRequest: whether pods that nobody has made yet would fit, all of them together, and for a while the promise that
//! no other request is told the same of the same devices.
//!
//! ```text
//!   requests, templates, pods ─► ProvisionObjects ─┐
//!        time ─► ProvisionMoment ──────────────────┴─► ProvisionCore::step ─► write a status
//!                                      ▲                    │ which ones to check, after what is booked
//!                                      └── what fits ◄── CheckBatch::run ◄── the planner's snapshot
//! ```
//!
//! What lacks for requests of one class can be attached to nodes, where somebody can do that: see `attach`.
//!
//! The core decides, and keeps nothing that cannot be read again: what a request was told stands in its status, and what is
//! booked follows from that. Every write names the version that it goes over.
//!
//! Two controllers that lead at the same time for a moment must not promise the same device twice. So whoever begins to lead
//! first marks every request that is still open with his term; only then he checks. What another one is about to write
//! afterwards is refused, and what he wrote before is seen.

pub(crate) mod adapter;
mod arrive;
mod attach;
mod booking;
mod check;
mod class;
mod clock;
mod consume;
mod core;
mod decide;
mod event;
mod gains;
mod membership;
mod memory;
mod objects;
mod orphans;
mod parameters;
mod plan_hash;
mod room;
mod shape;
mod sight;
mod status;
mod turn;
mod words;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    booking::booked_set,
    class::{OFFICIAL_ATOMIC_SCALE_UP, OFFICIAL_CHECK_CAPACITY, ProvisionClasses},
    consume::{pod_sets, scheduled},
    objects::{ProvisionObjects, SeenRequest},
    parameters::{RequestParameters, unusable},
    shape::PodShape,
    sight::Reservations,
};
