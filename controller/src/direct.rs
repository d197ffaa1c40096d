//! Gives gated pods their devices and their node: direct mode, for pods with the scheduling gate
//! `hostler.dev/placement`.
//!
//! A Reservation of the pod's own has its devices chosen and closed to all other pods; then they are written into the
//! pod's claims, and the gate is taken away. kube-scheduler binds the pod where its claims are.
//!
//! ```text
//!   a gated pod, its claims, its Reservation: read from the server, each time ─► decide ─► one write ─► read again
//! ```
//!
//! Nothing is remembered: what is done next follows from what the server has. Which writes there are, in which order:
//! docs/reservations.md.

mod again;
mod allocate;
mod decide;
mod keeper;
mod pinned;
mod placed;
mod sight;
#[cfg(test)]
mod tests;

pub(crate) use self::keeper::start;
