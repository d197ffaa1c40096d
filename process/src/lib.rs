//! What the daemon and the controller are as processes, whatever they do: how their configuration is read, what they log, which
//! tasks they consist of, what systemd is told, and how they serve.
//!
//! Nothing here knows hardware, claims or a cluster.

pub mod config;
mod figures;
pub mod log;
pub mod notify;
mod output;
pub mod serve;
mod signals;
pub mod tasks;

pub use figures::FigureFormat;
pub use output::is_output_gone;
pub use signals::StopSignals;
pub use tasks::{EndedService, Outcome, Tasks};
