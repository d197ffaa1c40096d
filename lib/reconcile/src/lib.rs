//! The runtime of Kubernetes controllers. Decisions are functions of values and live elsewhere; this crate is the edge that they share.
//!
//! ```text
//!   Reflector (one watch per kind and process) ──► Store (which objects, in which version)
//!                                                     │ keys that changed
//!                                                     ▼
//!   WorkQueue (one key at a time, ever longer pauses) ──► reconcile ──► CallPool, InFlightWrites ──► API server
//!                                                     ▲                       │
//!                                                     └────── WriteOutcome ◄──┘          EventSink ──► Events
//! ```
//!
//! [`slices`] plans ResourceSlices, for each program that publishes some.
//!
//! A process that reads each kind in one place only needs no task between: it has an [`ObjectWatch`], a `Store` and `WriteOutcome`s.
//!
//! A [`Leadership`] says whether this process may write. A leader term begins with nothing but what the API server says, and ends with
//! the Lease.

mod calls;
mod controller;
mod events;
mod lease;
mod queue;
mod reflector;
pub mod slices;
mod store;
mod term;
mod troubles;
mod watch;
mod writes;

pub use calls::CallPool;
pub use controller::{Controller, ControllerParts, Fingerprint, Observed, ReconcileMoment, Reconciler};
pub use events::{EventSink, EventTries};
pub use lease::{
    LeaderElection, Leadership, LeaseCommand, LeaseCore, LeaseEvent, LeaseRecord, SeenLease, ServerTime, campaign,
};
pub use queue::{Requeue, WorkQueue};
pub use reflector::{Reflector, ReflectorEvent, ReflectorKind};
pub use store::{ObjectStamp, Store, Unreadable};
pub use term::{lead_ended, leads_until, reach, wait_to_lead};
pub use troubles::Troubles;
pub use watch::ObjectWatch;
pub use writes::{InFlightWrites, WriteOutcome, WriteReadiness};
