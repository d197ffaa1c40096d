//! Classic DRA (Kubernetes 1.26 to 1.31), where a controller of the driver allocates and scheduler and driver agree on
//! a node in an object beside the pod.
//!
//! Everything classic is translated at the edge into types of today; code of modern DRA knows nothing of classic DRA.
//!
//! ```text
//!   objects of a version ──► dialect ──► ClassicEvent ──► ClassicCore::step ──► ClassicCommand ──► dialect ──► patches
//!                                                            │ a claim, as a claim of today
//!                                                            └──► hostler_allocator::structured
//! ```
//!
//! The core alone decides, and everything that it knows can be read again: the claims with its finalizer, and the
//! grants in each node's NodeHardware. Both are written before anything depends on them, in this order:
//!
//! ```text
//!   finalizer ─► grant in NodeHardware ─► allocation in the claim          and back:
//!   claim without allocation ─► claim without finalizer ─► no grant in NodeHardware
//! ```
//!
//! Every write carries the version that was read, or is an apply of fields of our own. Two controllers that run at the
//! same time for a moment meet in NodeHardware: the grant of the later one is refused.

pub(crate) mod adapter;
mod alarm;
mod catalogue;
mod context;
mod core;
mod dialect;
mod event;
mod fit;
mod grants;
mod holdings;
mod immediate;
mod inventory;
mod labels;
mod migration;
mod model;
mod negotiations;
mod news;
mod offers;
mod reconcile;
mod search;
mod settings;
mod state;
mod summary;
mod terms;
mod topic;
mod written;

#[cfg(test)]
mod tests;
