//! State of a request between steps. All of it can be lost: the answer that counts is in the request.

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
    event::{ProvisionEventNote, WriteResult},
    turn::WriteTurn,
};
use crate::requests::SeenRequest;

/// First pause after a no, as in Cluster Autoscaler. The pause doubles with each no, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A no that is not about room is asked again only after this part of the pause when a device becomes free: a question
/// that takes too much work takes no less then, and devices that could not be kept are free again anyway.
const QUIET_PART: u32 = 6;

/// State of a request between steps.
#[derive(Debug)]
pub(super) struct RequestMemory {
    /// Age of the request.
    pub(super) created: SeenAge,
    /// Age of the `Provisioned` condition's status, with its time.
    answered: Option<(String, SeenAge)>,
    /// The pause after the next no, and (`due`) the end of the present one if no device becomes free.
    pause: Duration,
    pub(super) due: Duration,
    /// Before this time, a device that becomes free does not end the pause.
    quiet: Duration,
    /// The end of the wait for the booking of an earlier request of the same name; `None`: there is none.
    pub(super) opened_by: Option<Duration>,
    /// The planner's verdict, until it is written.
    pub(super) verdict: Option<CheckVerdict>,
    /// Devices that the planner found last, for the Reservations that are made for the request.
    pub(super) planned: Vec<Vec<PodDevice>>,
    /// Age of closing its devices to others, with the time of the condition.
    closing: Option<(String, SeenAge)>,
    /// Age of its end, with the time of the condition.
    ended: Option<(String, SeenAge)>,
    /// Events to record once the status is written.
    notices: Vec<ProvisionEventNote>,
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
            closing: None,
            ended: None,
            notices: Vec::new(),
            write: WriteTurn::default(),
        };
        // An earlier leader said no some time ago; how often is unknown.
        let provisioned = request.status.condition(ProvisioningConditionType::Provisioned);
        if provisioned.is_some_and(|condition| condition.status == ConditionStatus::False) {
            memory.due = memory.answered(&request.status, now).reaches(FIRST_PAUSE);
        }
        memory
    }

    /// Returns the age of the answer in the request.
    pub(super) fn answered(&mut self, status: &ProvisioningRequestStatus, now: ProvisionMoment) -> SeenAge {
        let condition = status.condition(ProvisioningConditionType::Provisioned);
        let since = condition.map_or("", |condition| &condition.last_transition_time);
        age_since(&mut self.answered, since, now)
    }

    /// Returns the time for which its devices are being closed to others: the age of the condition that there is room.
    pub(super) fn closing(&mut self, status: &ProvisioningRequestStatus, now: ProvisionMoment) -> SeenAge {
        let condition = status.condition(ProvisioningConditionType::CapacityAvailable);
        let since = condition.map_or("", |condition| &condition.last_transition_time);
        age_since(&mut self.closing, since, now)
    }

    /// Returns the time for which the request is over; `None` if that is not known.
    pub(super) fn ended(&mut self, status: &ProvisioningRequestStatus, now: ProvisionMoment) -> Option<SeenAge> {
        use ProvisioningConditionType::{BookingExpired, Failed};
        let is_true = |kind| status.condition(kind).filter(|it| it.status == ConditionStatus::True);
        let condition = is_true(Failed).or_else(|| is_true(BookingExpired))?;
        from_rfc3339(&condition.last_transition_time)?;
        Some(age_since(&mut self.ended, &condition.last_transition_time, now))
    }

    /// Stores the planner's verdict.
    pub(super) fn checked(&mut self, mut verdict: CheckVerdict, now: ProvisionMoment) {
        if !matches!(verdict, CheckVerdict::Found(_)) {
            let is_about_room = matches!(verdict, CheckVerdict::NotFound(_));
            self.told_no(if is_about_room { Duration::ZERO } else { self.pause / QUIET_PART }, now);
        }
        if let CheckVerdict::Found(found) = &mut verdict {
            self.planned = std::mem::take(&mut found.devices);
        }
        self.verdict = Some(verdict);
    }

    /// Notes that the planner's devices could not be kept.
    pub(super) fn not_kept(&mut self, why: CheckVerdict, now: ProvisionMoment) {
        self.told_no(self.pause / QUIET_PART, now);
        self.verdict = Some(why);
    }

    /// Returns the end of the pause, or of the wait for the booking of an earlier request of the same name.
    pub(super) fn rests(&self, now: Duration) -> Option<Duration> {
        if now < self.due { Some(self.due) } else { self.opened_by }
    }

    /// Shortens the pause: a device became free, and there may be room.
    pub(super) fn gained(&mut self, now: Duration) {
        self.due = self.due.min(self.quiet.max(now));
    }

    fn told_no(&mut self, quiet: Duration, now: ProvisionMoment) {
        self.quiet = now.steady + quiet;
        self.due = now.steady + self.pause;
        self.pause = Doubling::new(FIRST_PAUSE, LONGEST_PAUSE).next(Some(self.pause));
    }

    /// Returns true if the verdict is no, and is not written yet.
    pub(super) fn was_told_no(&self) -> bool {
        matches!(self.verdict, Some(CheckVerdict::NotFound(_) | CheckVerdict::Undecided(_) | CheckVerdict::Crowded(_)))
    }

    /// Notes the beginning of a write; `notices` are recorded after it.
    pub(super) fn write_begins(&mut self, notices: Vec<ProvisionEventNote>) {
        self.write.begins();
        self.notices = notices;
    }

    /// Notes the outcome of a write. Returns the Events to record now.
    pub(super) fn written(&mut self, result: WriteResult, now: ProvisionMoment) -> Vec<ProvisionEventNote> {
        let notices = std::mem::take(&mut self.notices);
        let is_done = result.is_ok();
        self.write.written(result, now.steady);
        if is_done { notices } else { Vec::new() }
    }

    /// Returns true if the request can be decided about: its last written version was seen.
    pub(super) fn is_current(&mut self, version: &ObjectVersion, now: ProvisionMoment) -> bool {
        self.write.is_current(Some(&version.resource_version), now.steady)
    }

    /// Returns the time of the next try of a write, if only the time has to pass.
    pub(super) fn write_due(&self) -> Option<Duration> {
        self.write.due()
    }
}

/// Returns the age of a state that has a time in an object; the wall clock is read once for each such time.
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
