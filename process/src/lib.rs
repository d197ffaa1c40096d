//! What the daemon and the controller are as processes, whatever they do: which tasks they consist of, and what their end
//! means.
//!
//! Nothing here knows hardware, claims or a cluster.

pub mod tasks;

pub use tasks::{EndedService, Outcome, Tasks};
