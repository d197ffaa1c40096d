//! The controller from outside: the real binary against the API servers, schedulers and daemons of `tests/support`.
//!
//! One program, since every program links all that the controller consists of.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test runs the binary, fails by panicking, and says what it skips"
)]

mod api;
mod availability;
mod check_upgrade;
mod classic;
mod cli;
mod convert;
mod doctor;
mod fabric;
mod fabric_trial;
mod faults;
mod figures;
mod holds;
mod kubectl;
mod page;
mod plan;
mod provisioning;
mod rig;
mod run;
mod transcript;
mod uses;
mod visit;
