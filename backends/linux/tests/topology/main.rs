//! Reads whole machines: captured ones, made-up ones, and the one we run on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the lints know test functions, not their helpers"
)]

mod allowed;
mod caches;
mod core_types;
mod cpus;
mod fixtures;
mod host;
mod nodes;
mod sound;
mod tree;
