//! What upstream's allocator says, said here as well: [`committed`] cases with upstream's answers, [`random`] ones against a
//! program that links upstream's code, and [`properties`] that hold without anybody to compare with.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and programs to compare with have to be started"
)]

mod case;
mod clusters;
mod committed;
mod generate;
mod hostler;
mod minimise;
mod oracle;
#[path = "../../../cel/tests/support/program.rs"]
mod program;
mod properties;
mod random;
mod verify;
