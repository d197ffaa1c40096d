//! Topics of decisions, and the clock.

use std::time::Duration;

use hostler_api::ObjectKey;

use super::objects::HoldTime;

/// The longest time until candidates are planned again, and until a pod that is moved is read again.
pub(super) const RECONCILE_AGAIN: Duration = Duration::from_secs(30);

/// A topic that decisions are about; in one step in this order.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum DecisionTopic {
    Reservation(String),
    NodeFences(String),
    Rule(String),
    /// A pod that is to be evicted or annotated.
    Pod(ObjectKey),
    /// The claim with this name, which stands for a part of a device.
    Placeholder(String),
    /// All Reservations that wait for devices.
    Plan,
}

/// The clock. A clock that jumps, in either direction, lets nothing expire too early.
#[derive(Debug, Default)]
pub(super) struct HoldClock {
    now: HoldTime,
    /// Time of the server, and the moment at which it said so.
    server: Option<(Duration, Duration)>,
}

impl HoldClock {
    pub(super) fn pass(&mut self, now: HoldTime) {
        self.now = now;
    }

    pub(super) fn server_said(&mut self, time: Duration) {
        self.server = Some((time, self.now.elapsed));
    }

    /// The earlier of this machine's time and the server's, since 1970. `None` before the server has told its time:
    /// this machine alone may be years ahead.
    pub(super) fn certain(&self) -> Option<Duration> {
        let (time, at) = self.server?;
        Some((time + self.now.elapsed.saturating_sub(at)).min(self.now.wall))
    }

    /// The time that is written for people.
    pub(super) fn told(&self) -> Duration {
        self.certain().unwrap_or(self.now.wall)
    }
}
