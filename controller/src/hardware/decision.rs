//! When ClusterHardware is read, made and written: pure.

use std::time::{Duration, Instant};

use hostler_api::Doubling;
use hostler_api::hardware::{ClusterHardwareStatus, Condition};

/// The pause between two writes: a reader that wants figures sooner asks the controller.
const BETWEEN_WRITES: Duration = Duration::from_secs(10);
/// The pause between two looks for the kind, or for changes and deletion of the object by others.
const LOOK: Duration = Duration::from_secs(300);
/// The pause before the kind is looked for again: an operator may have just read that it is missing, and install it.
const LOOK_FOR_KIND: Duration = Duration::from_secs(10);
/// The pauses after calls that fail; each doubles up to the longest.
const PAUSES: Doubling = Doubling::new(Duration::from_secs(2), Duration::from_secs(60));

/// The object as it stands on the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StoredHardware {
    /// Version of the object.
    pub(crate) version: String,
    /// Status in the object.
    pub(crate) status: ClusterHardwareStatus,
}

/// An event of the writer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HardwareEvent {
    /// Something may be other than it was.
    Changed,
    /// The object was read, or is not there.
    Read(Option<StoredHardware>),
    /// The object was written.
    Written(StoredHardware),
    /// The write was refused: the object is another one by now.
    Refused,
    /// The server does not know the kind.
    NotServed,
    /// A call failed.
    Failed,
}

/// A command; the next event tells how it went.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HardwareCommand {
    /// Read the object.
    Read,
    /// Make it, empty.
    Create,
    /// Write its status over a version.
    Write {
        /// The version.
        version: String,
        /// The status that shall stand there.
        status: Box<ClusterHardwareStatus>,
    },
}

/// Keeps the object as it should be, as long as this process leads.
#[derive(Clone, Debug)]
pub(crate) struct HardwareCore {
    /// The object as it stands there, as far as is known; `Some(None)` if it is known not to be there.
    stored: Option<Option<StoredHardware>>,
    /// The time when it was last looked at.
    looked: Instant,
    /// The earliest time of the next write.
    not_before: Instant,
    due: Option<Instant>,
    failures: u32,
}

impl HardwareCore {
    /// Makes a core that knows nothing yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self { stored: None, looked: now, not_before: now, due: None, failures: 0 }
    }

    /// Returns when to come back, if nothing else happens.
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
            // A single refusal means that another writer was faster.
            HardwareEvent::Refused if self.failures == 0 => (self.stored, self.failures) = (None, 1),
            HardwareEvent::NotServed => self.hold(now + LOOK_FOR_KIND),
            HardwareEvent::Refused | HardwareEvent::Failed => {
                self.hold(now + PAUSES.after(self.failures));
                self.failures = self.failures.saturating_add(1);
            }
        }
        self.decide(now, leads, wanted)
    }

    /// Waits until then, and forgets the object: what is known may be wrong by then.
    fn hold(&mut self, until: Instant) {
        self.stored = None;
        self.not_before = self.not_before.max(until);
    }

    fn decide(&mut self, now: Instant, leads: bool, wanted: Option<ClusterHardwareStatus>) -> Option<HardwareCommand> {
        self.due = None;
        let Some(mut wanted) = wanted.filter(|_| leads) else {
            // Another controller may write meanwhile.
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

/// Keeps the time of a condition that has the status that it had.
fn keep_times(wanted: &mut [Condition], stored: &[Condition]) {
    for condition in wanted {
        let before = stored.iter().find(|before| before.kind == condition.kind && before.status == condition.status);
        if let Some(before) = before {
            condition.last_transition_time.clone_from(&before.last_transition_time);
        }
    }
}
