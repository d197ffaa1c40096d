//! What is remembered of a request between steps. All of it can be lost: what counts stands in the request.

use std::time::Duration;

use hostler_api::{
    hardware::ConditionStatus,
    provisioning::{ProvisioningConditionType, ProvisioningRequestStatus},
};
use hostler_cluster::{ObjectVersion, from_rfc3339};

use super::{
    check::CheckVerdict,
    clock::{ProvisionMoment, SeenAge},
    event::StatusOutcome,
    objects::SeenRequest,
};

/// As Cluster Autoscaler has it: who was told no waits so long, twice as long the next time, and never longer than that.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Between two tries of a write that does not succeed.
const FIRST_WRITE_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_WRITE_PAUSE: Duration = Duration::from_secs(30);

/// What is remembered of a request.
#[derive(Debug)]
pub(super) struct RequestMemory {
    /// How old the request is.
    pub(super) created: SeenAge,
    /// For how long `Provisioned` has been what it is.
    answered: Option<(String, SeenAge)>,
    /// How long it waits after the next no, and until when it does now.
    pause: Duration,
    pub(super) due: Duration,
    /// What was found, as long as it does not stand in the request.
    pub(super) verdict: Option<CheckVerdict>,
    write: WriteState,
    write_pause: Duration,
}

/// How far writing is.
#[derive(Debug)]
enum WriteState {
    /// What is seen of the request is how it is, as far as anybody here knows.
    Idle,
    UnderWay,
    /// Written, and not seen yet.
    Behind(ObjectVersion),
    /// It did not succeed; not before that time again.
    Resting(Duration),
}

impl RequestMemory {
    pub(super) fn new(request: &SeenRequest, now: ProvisionMoment) -> Self {
        let mut memory = Self {
            created: SeenAge::of(request.created, now),
            answered: None,
            pause: FIRST_PAUSE,
            due: now.steady,
            verdict: None,
            write: WriteState::Idle,
            write_pause: FIRST_WRITE_PAUSE,
        };
        // Whoever led before has said no some time ago; nobody knows how often.
        let provisioned = request.status.condition(ProvisioningConditionType::Provisioned);
        if provisioned.is_some_and(|condition| condition.status == ConditionStatus::False) {
            memory.due = memory.answered(&request.status, now).reaches(FIRST_PAUSE);
        }
        memory
    }

    /// How old the answer is that stands in the request.
    pub(super) fn answered(&mut self, status: &ProvisioningRequestStatus, now: ProvisionMoment) -> SeenAge {
        let condition = status.condition(ProvisioningConditionType::Provisioned);
        let since = condition.map_or("", |condition| &condition.last_transition_time);
        match &self.answered {
            Some((known, age)) if known == since => *age,
            _ => {
                let age = SeenAge::of(from_rfc3339(since), now);
                self.answered = Some((since.to_owned(), age));
                age
            }
        }
    }

    /// The planner has answered.
    pub(super) fn checked(&mut self, verdict: CheckVerdict, now: ProvisionMoment) {
        if matches!(verdict, CheckVerdict::Found(_)) {
            self.pause = FIRST_PAUSE;
        } else {
            self.due = now.steady + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        self.verdict = Some(verdict);
    }

    pub(super) fn write_begins(&mut self) {
        self.write = WriteState::UnderWay;
    }

    pub(super) fn written(&mut self, outcome: StatusOutcome, now: ProvisionMoment) {
        self.write = match outcome {
            StatusOutcome::Done(version) => {
                self.write_pause = FIRST_WRITE_PAUSE;
                WriteState::Behind(version)
            }
            StatusOutcome::Conflict | StatusOutcome::Gone | StatusOutcome::Failed => {
                let until = now.steady + self.write_pause;
                self.write_pause = (self.write_pause * 2).min(LONGEST_WRITE_PAUSE);
                WriteState::Resting(until)
            }
        };
    }

    /// Whether the request can be decided about: it is seen as it was last written here.
    pub(super) fn is_current(&mut self, version: &ObjectVersion, now: ProvisionMoment) -> bool {
        let is_done = match &self.write {
            WriteState::Idle => true,
            WriteState::UnderWay => false,
            WriteState::Behind(written) => !is_older(&version.resource_version, &written.resource_version),
            WriteState::Resting(until) => now.steady >= *until,
        };
        if is_done {
            self.write = WriteState::Idle;
        }
        is_done
    }

    /// When it is tried again to write, if that waits for the time alone.
    pub(super) fn write_due(&self) -> Option<Duration> {
        match self.write {
            WriteState::Resting(until) => Some(until),
            _ => None,
        }
    }
}

/// Versions are numbers that rise; where they are none, what comes later counts.
fn is_older(version: &str, known: &str) -> bool {
    matches!((version.parse::<u64>(), known.parse::<u64>()), (Ok(version), Ok(known)) if version < known)
}
