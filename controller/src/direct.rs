//! Direct mode: gives pods with the scheduling gate `hostler.dev/placement` their devices and their node.
//!
//! A Reservation of the pod's own has its devices chosen and closed to all other pods. hostler then writes the devices
//! into the pod's claims and removes the gate. kube-scheduler binds the pod where its claims are.
//!
//! ```text
//!   a gated pod, its claims, its Reservation: read from the server, each time ─► decide ─► one write ─► read again
//! ```
//!
//! Nothing is remembered: the next step follows from the objects on the server. The order of all writes:
//! docs/reservations.md.

mod again;
mod allocate;
mod attempt;
mod context;
mod decide;
mod pinned;
mod placed;
mod reconciler;
mod reserve;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use self::reconciler::start;
