//! Mode SharedClaim: devices are kept in claims that pods name. The scheduler gives a claim its devices, for a pod that
//! only asks for them. Then an entry of the Reservation among the claim's consumers keeps them there, whichever pods
//! come and go.
//!
//! ```text
//!   Reservation, claims, pod, consumers: read from the server, each time ─► decide ─► one write ─► read again
//! ```
//!
//! Nothing is remembered: the next step follows from the objects on the server. The order of all writes:
//! docs/reservations.md.

mod context;
mod decide;
mod objects;
mod reconciler;
mod release;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use self::reconciler::start;
