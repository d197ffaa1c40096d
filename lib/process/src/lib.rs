//! The daemon and the controller as processes, whatever they do: reading of their configuration, their log, their
//! tasks, messages to systemd, and serving.
//!
//! Nothing here knows hardware, claims or a cluster.

pub mod config;
mod figures;
pub mod log;
pub mod notify;
pub mod serve;
mod signals;
pub mod tasks;
mod version;

pub use figures::{ProcessFigures, figures_response};
pub use signals::StopSignals;
pub use tasks::{EndedService, Outcome, Tasks};
pub use version::{register_build, version};
