//! hostler on a machine that is emulated: a Debian kernel with NUMA nodes, CXL memory and a network card, the real
//! binary as its daemon, and cables that the test pulls. docs/emulated-machine.md says how to run it and what it is not.
//!
//! Every test boots a machine of its own, so that what one of them leaves behind harms no other.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test runs programs, and fails by panicking"
)]

mod container;
mod cpio;
mod emulator;
mod enforcement;
mod fabric;
mod guest;
mod hotplug;
mod initramfs;
mod inventory;
mod memory;
mod orders;
mod power;
mod rack;
mod shell;
mod storm;
mod vfio;
mod write_log;
