//! Publishes the devices of fabric managers as ResourceSlices: one pool for each switch domain.
//!
//! ```text
//!   inventories, FabricAttachments, claims, nodes, slices on the server ──► offer (pure) ──► plan (pure) ──► writes
//! ```
//!
//! A device that a claim has keeps its entry, whatever its manager says now. A manager that was not read since this
//! process leads is unknown: its slices stay.

mod device;
mod domains;
mod offer;
mod reconciler;
mod write;

pub(super) use self::reconciler::{PublishParts, publish};

#[cfg(test)]
mod tests;
