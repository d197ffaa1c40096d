//! Reservations of Koordinator (`scheduling.koordinator.sh/v1alpha1`) are served in place: for each one the leader makes
//! a Reservation of hostler's with the same name, and shows its status in Koordinator's object.
//!
//! ```text
//!   Reservation of Koordinator ── convert ──► Reservation of hostler ── kept as any other
//!             ▲                                        │
//!             └──────────────── status ◄───────────────┘
//! ```
//!
//! Nothing is remembered: what is there says what is missing. Koordinator's own scheduler must not run beside it, since
//! both would write the same status.

mod context;
mod decide;
mod reconciler;
mod scheduler;
mod status;

pub(crate) use self::reconciler::start;

#[cfg(test)]
mod tests;
