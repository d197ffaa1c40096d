//! What the daemon and the controller are as processes, whatever they do: how their configuration is read, what they log, which
//! tasks they consist of, what systemd is told, and how they serve.
//!
//! Nothing here knows hardware, claims or a cluster.

pub mod config;
pub mod log;
pub mod notify;
pub mod serve;
mod signals;
pub mod tasks;

pub use signals::StopSignals;
pub use tasks::{EndedService, Outcome, Tasks};
