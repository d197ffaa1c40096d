//! The core against a server with versions, node daemons that publish what is closed, kube-scheduler as it is, the controller
//! manager, users, and nodes that go. docs/reservations.md says which test is which scenario.

#![allow(clippy::needless_pass_by_value, reason = "values are made for the call")]

mod annotations;
mod attribute;
mod cluster;
mod conflicts;
mod crash;
mod descheduling;
mod evictions;
mod example;
mod expiry;
pub(crate) mod kept;
mod parts;
mod preemption;
mod questions;
mod random;
mod rules;
mod scenarios;
mod server;
mod shares;
mod telling;
mod unreadable;
mod world;
