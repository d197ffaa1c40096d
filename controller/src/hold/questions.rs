//! The question in flight, and the need for another one.

use std::time::Duration;

/// Questions to the planner.
#[derive(Debug, Default)]
pub(super) struct Questions {
    pub(super) last: u64,
    /// Number of the question under way.
    pub(super) open: Option<u64>,
    /// True if another question is to follow the one under way.
    pub(super) is_wanted: bool,
    /// True if the last question was about Reservations that were cut short before.
    pub(super) was_hard: bool,
    /// The time of the open question, and the duration of the last one.
    pub(super) asked_at: Duration,
    pub(super) cost: Duration,
    /// True if candidates are left whose turn comes after the question under way.
    pub(super) has_more: bool,
}
