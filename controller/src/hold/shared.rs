//! Keeps devices in claims that pods name: mode SharedClaim. The scheduler gives a claim its devices, for a pod that
//! only asks for them; then an entry of the Reservation among the claim's consumers keeps them there, whichever pods
//! come and go.
//!
//! ```text
//!   Reservation, claims, pod, consumers: read from the server, each time ─► decide ─► one write ─► read again
//! ```
//!
//! Nothing is remembered: what is done next follows from what the server has. Which writes there are, in which order:
//! docs/reservations.md.

mod decide;
mod keeper;
mod objects;
mod release;
mod sight;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use self::keeper::start;
