//! Order of writes: each object has one write in flight at a time, and is decided about only when its last written
//! version was seen.

use std::time::Duration;

use hostler_api::Doubling;
use hostler_cluster::{ObjectVersion, is_older};

use super::event::WriteResult;

/// Pauses between two tries of a write that fails.
const PAUSES: Doubling = Doubling::new(Duration::from_millis(200), Duration::from_secs(30));
/// Time after which a written version was seen, or was removed before any watch told of it.
const SEEN_BY: Duration = Duration::from_secs(30);

/// State of writing an object.
#[derive(Debug)]
pub(super) struct WriteTurn {
    state: WriteState,
    pause: Duration,
}

#[derive(Debug)]
enum WriteState {
    /// The object is as it was seen, as far as this process knows.
    Idle,
    UnderWay,
    /// The object was written, and this version is not seen yet; after this time it is not waited for any more.
    Behind(ObjectVersion, Duration),
    /// The write failed; the earliest time of the next try.
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

    pub(super) fn written(&mut self, result: WriteResult, now: Duration) {
        self.state = match result {
            Ok(version) => {
                self.pause = PAUSES.next(None);
                WriteState::Behind(version, now + SEEN_BY)
            }
            Err(_) => {
                let until = now + self.pause;
                self.pause = PAUSES.next(Some(self.pause));
                WriteState::Resting(until)
            }
        };
    }

    /// Returns true if the object, of which this version is seen, can be decided about.
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

    /// Returns the time at which the object can be decided about, if only the time has to pass.
    pub(super) fn due(&self) -> Option<Duration> {
        match self.state {
            WriteState::Resting(until) | WriteState::Behind(_, until) => Some(until),
            WriteState::Idle | WriteState::UnderWay => None,
        }
    }
}
