//! What is to be looked at, now or later, and what time it is.

use std::time::Duration;

use hostler_api::ObjectKey;

use super::event::HoldTime;

/// Something to look at; in one step in this order.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Topic {
    Reservation(String),
    NodeFences(String),
    Rule(String),
    /// A pod that is to be evicted or annotated.
    Pod(ObjectKey),
    /// The claim with this name, which stands for a part of a device.
    Placeholder(String),
    /// Everybody who waits for devices.
    Plan,
}

/// What time it is at least. A clock that jumps, in either direction, lets nothing expire too early.
#[derive(Debug, Default)]
pub(super) struct HoldClock {
    now: HoldTime,
    /// What the server said, and when.
    server: Option<(Duration, Duration)>,
}

impl HoldClock {
    pub(super) fn pass(&mut self, now: HoldTime) {
        self.now = now;
    }

    pub(super) fn server_said(&mut self, time: Duration) {
        self.server = Some((time, self.now.elapsed));
    }

    /// The earlier one of what this machine and the server say, since 1970; `None` before the server has said anything: this
    /// machine alone may be years ahead.
    pub(super) fn certain(&self) -> Option<Duration> {
        let (time, at) = self.server?;
        Some((time + self.now.elapsed.saturating_sub(at)).min(self.now.wall))
    }

    /// What time people are told that it is.
    pub(super) fn told(&self) -> Duration {
        self.certain().unwrap_or(self.now.wall)
    }
}
