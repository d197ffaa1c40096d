//! Whose turn it is with an object: of each there is one write under way at a time, and it is decided about only when it is seen
//! as it was last written.

use std::time::Duration;

use hostler_api::Doubling;
use hostler_cluster::{ObjectVersion, is_older};

use super::event::WriteOutcome;

/// Between two tries of a write that does not succeed.
const PAUSES: Doubling = Doubling::new(Duration::from_millis(200), Duration::from_secs(30));
/// What was written is seen by then, or somebody has taken it away before anybody saw it.
const SEEN_BY: Duration = Duration::from_secs(30);

/// How far writing an object is.
#[derive(Debug)]
pub(super) struct WriteTurn {
    state: WriteState,
    pause: Duration,
}

#[derive(Debug)]
enum WriteState {
    /// What is seen of the object is how it is, as far as anybody here knows.
    Idle,
    UnderWay,
    /// Written, and not seen yet; after that time nobody waits for it any more.
    Behind(ObjectVersion, Duration),
    /// It did not succeed; not before that time again.
    Resting(Duration),
}

impl Default for WriteTurn {
    fn default() -> Self {
        Self { state: WriteState::Idle, pause: PAUSES.next(None) }
    }
}

impl WriteTurn {
    pub(super) fn begins(&mut self) {
        self.state = WriteState::UnderWay;
    }

    pub(super) fn written(&mut self, outcome: WriteOutcome, now: Duration) {
        self.state = match outcome {
            WriteOutcome::Done(version) => {
                self.pause = PAUSES.next(None);
                WriteState::Behind(version, now + SEEN_BY)
            }
            WriteOutcome::Conflict | WriteOutcome::Gone | WriteOutcome::Failed => {
                let until = now + self.pause;
                self.pause = PAUSES.next(Some(self.pause));
                WriteState::Resting(until)
            }
        };
    }

    /// Whether the object, of which this version is seen, can be decided about.
    pub(super) fn is_current(&mut self, seen: Option<&str>, now: Duration) -> bool {
        let is_done = match &self.state {
            WriteState::Idle => true,
            WriteState::UnderWay => false,
            WriteState::Behind(written, until) => {
                now >= *until || seen.is_some_and(|version| !is_older(version, &written.resource_version))
            }
            WriteState::Resting(until) => now >= *until,
        };
        if is_done {
            self.state = WriteState::Idle;
        }
        is_done
    }

    /// When it can be decided about, if that waits for the time alone.
    pub(super) fn due(&self) -> Option<Duration> {
        match self.state {
            WriteState::Resting(until) | WriteState::Behind(_, until) => Some(until),
            WriteState::Idle | WriteState::UnderWay => None,
        }
    }
}
