//! When ClusterHardware is read, made and written: pure.

use std::time::{Duration, Instant};

use hostler_api::Doubling;
use hostler_api::hardware::{ClusterHardwareStatus, Condition};

/// Between two writes: whoever wants to know sooner asks the controller.
const BETWEEN_WRITES: Duration = Duration::from_secs(10);
/// Between two looks whether the kind is there, or whether somebody has changed or deleted the object.
const LOOK: Duration = Duration::from_secs(300);
/// The kind may be installed at any moment, by whoever has just read that it is missing.
const LOOK_FOR_KIND: Duration = Duration::from_secs(10);
/// After a call that failed, and after twice as long the next time.
const PAUSES: Doubling = Doubling::new(Duration::from_secs(2), Duration::from_secs(60));

/// The object as it stands on the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StoredHardware {
    /// Which version of it.
    pub(crate) version: String,
    /// What stands there.
    pub(crate) status: ClusterHardwareStatus,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HardwareEvent {
    /// Something may be other than it was.
    Changed,
    /// It was read, or is not there.
    Read(Option<StoredHardware>),
    /// It was written.
    Written(StoredHardware),
    /// It was not: it is another one by now.
    Refused,
    /// The server does not know the kind.
    NotServed,
    /// A call failed.
    Failed,
}

/// What is to be done; the next event tells how it went.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HardwareCommand {
    /// Read the object.
    Read,
    /// Make it, empty.
    Create,
    /// Write its status over a version.
    Write {
        /// Which.
        version: String,
        /// What shall stand there.
        status: Box<ClusterHardwareStatus>,
    },
}

/// Keeps the object as it should be, as long as this process leads.
#[derive(Clone, Debug)]
pub(crate) struct HardwareCore {
    /// As it stands there, as far as is known; `Some(None)` if it is known not to be there.
    stored: Option<Option<StoredHardware>>,
    /// When it was last looked at.
    looked: Instant,
    /// When the next write may be.
    not_before: Instant,
    due: Option<Instant>,
    failures: u32,
}

impl HardwareCore {
    /// One that knows nothing yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self { stored: None, looked: now, not_before: now, due: None, failures: 0 }
    }

    /// When to come back, if nothing else happens.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Takes what happened. `leads` is whether this process may write now, and `wanted` what shall stand there.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        leads: bool,
        wanted: Option<ClusterHardwareStatus>,
        event: HardwareEvent,
    ) -> Option<HardwareCommand> {
        match event {
            HardwareEvent::Changed => {}
            HardwareEvent::Read(found) => (self.stored, self.looked) = (Some(found), now),
            HardwareEvent::Written(stored) => {
                (self.stored, self.looked, self.failures) = (Some(Some(stored)), now, 0);
                self.not_before = now + BETWEEN_WRITES;
            }
            // Once is somebody who was faster.
            HardwareEvent::Refused if self.failures == 0 => (self.stored, self.failures) = (None, 1),
            HardwareEvent::NotServed => self.hold(now + LOOK_FOR_KIND),
            HardwareEvent::Refused | HardwareEvent::Failed => {
                self.hold(now + PAUSES.after(self.failures));
                self.failures = self.failures.saturating_add(1);
            }
        }
        self.decide(now, leads, wanted)
    }

    /// What is known may be wrong by then.
    fn hold(&mut self, until: Instant) {
        self.stored = None;
        self.not_before = self.not_before.max(until);
    }

    fn decide(&mut self, now: Instant, leads: bool, wanted: Option<ClusterHardwareStatus>) -> Option<HardwareCommand> {
        self.due = None;
        let Some(mut wanted) = wanted.filter(|_| leads) else {
            // Somebody else may write meanwhile.
            self.stored = None;
            return None;
        };
        if now.saturating_duration_since(self.looked) >= LOOK {
            self.stored = None;
        }
        let Some(stored) = &self.stored else {
            return self.when_due(now, HardwareCommand::Read);
        };
        let Some(stored) = stored else {
            return self.when_due(now, HardwareCommand::Create);
        };
        keep_times(&mut wanted.conditions, &stored.status.conditions);
        wanted.last_change_time.clone_from(&stored.status.last_change_time);
        if wanted == stored.status {
            self.due = Some(self.looked + LOOK);
            return None;
        }
        let (version, status) = (stored.version.clone(), Box::new(wanted));
        self.when_due(now, HardwareCommand::Write { version, status })
    }

    fn when_due(&mut self, now: Instant, command: HardwareCommand) -> Option<HardwareCommand> {
        if now >= self.not_before {
            return Some(command);
        }
        self.due = Some(self.not_before);
        None
    }
}

/// A condition that has the status that it had, has it since then.
fn keep_times(wanted: &mut [Condition], stored: &[Condition]) {
    for condition in wanted {
        let before = stored.iter().find(|before| before.kind == condition.kind && before.status == condition.status);
        if let Some(before) = before {
            condition.last_transition_time.clone_from(&before.last_transition_time);
        }
    }
}
