//! ProvisioningRequest: answers whether pods that do not exist yet would fit, all of them together. For a while no
//! other request is told yes for the same devices.
//!
//! ```text
//!   requests, templates, pods ─► ProvisionObjects ─┐
//!        time ─► ProvisionMoment ──────────────────┴─► ProvisionCore::step ─► write a status
//!                                      ▲                    │ which ones to check, after what is booked
//!                                      └── what fits ◄── CheckBatch::run ◄── the planner's snapshot
//! ```
//!
//! The core decides, and holds no state that cannot be read again: the answer to a request is in its status, and the
//! booking follows from that. Every write names the version that it replaces.
//!
//! Two controllers that lead at the same time for a moment must not promise the same device twice. So a new leader
//! first marks every open request with its leader term, and checks only then. A write of the other controller after
//! that is refused, and a write from before is seen.

pub(crate) mod adapter;
mod arrive;
mod booked;
mod booking;
mod check;
mod clock;
mod consume;
mod context;
mod core;
mod decide;
mod decision;
mod event;
mod gains;
mod membership;
mod memory;
mod messages;
mod orphans;
mod parameters;
mod plan_hash;
mod room;
mod splits;
mod status;
mod toleration;
mod turn;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    booked::booked_set,
    consume::{pod_sets, scheduled},
    context::SeenReservations,
    parameters::{RequestParameters, unusable},
};
