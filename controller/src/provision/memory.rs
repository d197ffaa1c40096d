//! What is remembered of a request between steps. All of it can be lost: what counts stands in the request.

use std::time::Duration;

use hostler_api::{
    Doubling,
    hardware::ConditionStatus,
    provisioning::{ProvisioningConditionType, ProvisioningRequestStatus},
};
use hostler_cluster::{ObjectVersion, from_rfc3339};

use super::{
    check::{CheckVerdict, PodDevice},
    clock::{ProvisionMoment, SeenAge},
    event::{ProvisionNotice, WriteOutcome},
    objects::SeenRequest,
    turn::WriteTurn,
};

/// As Cluster Autoscaler has it: who was told no waits so long, twice as long the next time, and never longer than that.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A no that is not about room is not looked at anew at once when something gets free, but after this part of the pause: what takes
/// too much work takes no less then, and devices that could not be kept are free again by that alone.
const QUIET_PART: u32 = 6;

/// Between two looks at what was attached: slices of it come in seconds.
const VERIFIED_EVERY: Duration = Duration::from_secs(2);

/// What is remembered of a request.
#[derive(Debug)]
pub(super) struct RequestMemory {
    /// How old the request is.
    pub(super) created: SeenAge,
    /// For how long `Provisioned` has been what it is.
    answered: Option<(String, SeenAge)>,
    /// How long it waits after the next no, and until when it does now, if nothing gets free.
    pause: Duration,
    pub(super) due: Duration,
    /// Before that time it is no reason to look at it that something gets free.
    quiet: Duration,
    /// The end of the wait for the booking of an earlier request of the same name; `None`: there is none.
    pub(super) opened_by: Option<Duration>,
    /// What was found, as long as it does not stand in the request.
    pub(super) verdict: Option<CheckVerdict>,
    /// Devices that the planner found last, for the Reservations that are made for the request.
    pub(super) planned: Vec<Vec<PodDevice>>,
    /// Whether it is looked at because everything is attached for it, and since when everything is.
    pub(super) verifies: bool,
    pub(super) attached: Option<Duration>,
    /// Since when its devices are being closed to others.
    closing: Option<(String, SeenAge)>,
    /// What people are told once it is written.
    notices: Vec<ProvisionNotice>,
    write: WriteTurn,
}

impl RequestMemory {
    pub(super) fn new(request: &SeenRequest, now: ProvisionMoment) -> Self {
        let mut memory = Self {
            created: SeenAge::of(request.created, now),
            answered: None,
            pause: FIRST_PAUSE,
            due: now.steady,
            quiet: now.steady,
            opened_by: None,
            verdict: None,
            planned: Vec::new(),
            verifies: false,
            attached: None,
            closing: None,
            notices: Vec::new(),
            write: WriteTurn::default(),
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
        age_since(&mut self.answered, since, now)
    }

    /// How long its devices have been being closed to others: since there was said to be room for it.
    pub(super) fn closing(&mut self, status: &ProvisioningRequestStatus, now: ProvisionMoment) -> SeenAge {
        let condition = status.condition(ProvisioningConditionType::CapacityAvailable);
        let since = condition.map_or("", |condition| &condition.last_transition_time);
        age_since(&mut self.closing, since, now)
    }

    /// The planner has answered.
    pub(super) fn checked(&mut self, verdict: CheckVerdict, now: ProvisionMoment) {
        if std::mem::take(&mut self.verifies) {
            self.due = now.steady + VERIFIED_EVERY;
        } else if !matches!(verdict, CheckVerdict::Found(_) | CheckVerdict::Attachable(_)) {
            let is_about_room = matches!(verdict, CheckVerdict::NotFound(_));
            self.told_no(if is_about_room { Duration::ZERO } else { self.pause / QUIET_PART }, now);
        }
        if let CheckVerdict::Found(found) = &verdict {
            self.planned.clone_from(&found.devices);
        }
        self.verdict = Some(verdict);
    }

    /// Notes that the planner's devices could not be kept.
    pub(super) fn not_kept(&mut self, why: CheckVerdict, now: ProvisionMoment) {
        self.told_no(self.pause / QUIET_PART, now);
        self.verdict = Some(why);
    }

    /// Notes that attaching failed, and is undone: hardware is not moved more often than it has to be.
    pub(super) fn not_attached(&mut self, why: CheckVerdict, now: ProvisionMoment) {
        (self.attached, self.verifies) = (None, false);
        self.told_no(self.pause, now);
        self.verdict = Some(why);
    }

    /// The end of its pause, or of the wait for the booking of an earlier request of the same name.
    pub(super) fn rests(&self, now: Duration) -> Option<Duration> {
        if now < self.due { Some(self.due) } else { self.opened_by }
    }

    /// Something got free: there may be room.
    pub(super) fn gained(&mut self, now: Duration) {
        self.due = self.due.min(self.quiet.max(now));
    }

    fn told_no(&mut self, quiet: Duration, now: ProvisionMoment) {
        self.quiet = now.steady + quiet;
        self.due = now.steady + self.pause;
        self.pause = Doubling::new(FIRST_PAUSE, LONGEST_PAUSE).next(Some(self.pause));
    }

    /// Whether there is no room after all, and that does not stand in the request yet.
    pub(super) fn was_told_no(&self) -> bool {
        matches!(self.verdict, Some(CheckVerdict::NotFound(_) | CheckVerdict::Undecided(_) | CheckVerdict::Crowded(_)))
    }

    /// `notices` are told once it is written.
    pub(super) fn write_begins(&mut self, notices: Vec<ProvisionNotice>) {
        self.write.begins();
        self.notices = notices;
    }

    /// What people are to be told now.
    pub(super) fn written(&mut self, outcome: WriteOutcome, now: ProvisionMoment) -> Vec<ProvisionNotice> {
        let notices = std::mem::take(&mut self.notices);
        let is_done = matches!(outcome, WriteOutcome::Done(_));
        self.write.written(outcome, now.steady);
        if is_done { notices } else { Vec::new() }
    }

    /// Whether the request can be decided about: it is seen as it was last written here.
    pub(super) fn is_current(&mut self, version: &ObjectVersion, now: ProvisionMoment) -> bool {
        self.write.is_current(Some(&version.resource_version), now.steady)
    }

    /// When it is tried again to write, if that waits for the time alone.
    pub(super) fn write_due(&self) -> Option<Duration> {
        self.write.due()
    }
}

/// How old something is that has been so since a time that an object says; the clock is looked at once for each such time.
fn age_since(known: &mut Option<(String, SeenAge)>, since: &str, now: ProvisionMoment) -> SeenAge {
    match known {
        Some((known, age)) if known == since => *age,
        _ => {
            let age = SeenAge::of(from_rfc3339(since), now);
            *known = Some((since.to_owned(), age));
            age
        }
    }
}
