//! The hostler daemon and its command line.
//!
//! Two state owners stand in the centre: [`inventory`] (what hardware exists) and [`claims`] (what is prepared for
//! whom). Everything else is an edge that reads one of them or asks it to do one thing.

pub mod admin;
pub mod audit;
pub mod claims;
pub mod cli;
pub mod config;
pub mod containers;
pub mod daemon;
pub mod descriptors;
pub mod explain;
pub mod hook;
pub mod inventory;
pub mod kubelet;
pub mod kubernetes;
pub mod metrics;
pub mod nri;
pub mod offer;
pub mod pinning;
pub mod pods;
pub mod registry;
pub mod socket;
pub mod standalone;
mod units;
pub mod usage;
pub mod validate;

// What both programs are as processes has its own crate; here it has the names of modules.
pub use hostler_process::{log, tasks};
