//! Makes right what the last run left, side by side: a backend that hangs holds up its own claims only.
//!
//! ```text
//!   lane: the claims of one set of backends
//!   waiting ── its backends have answered the first scan ──► running ── one claim after the other ──► over
//! ```
//!
//! A claim is busy until its turn has passed: its devices are taken, and callers are told why it is not ready.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_api::BackendName;
use tracing::info;

use super::{ClaimEntry, ClaimWork, ClaimsOwner, FinishedWork};
use crate::{
    claims::{
        BusyClaim, ClaimError, ClaimOperation, executor::ClaimExecutor, recover::RecoveryStep, store::ClaimRecord,
    },
    units::utc,
};

/// The backends that claims have in common, and nothing else.
pub(super) type LaneBackends = BTreeSet<BackendName>;

/// The steps of a lane that has begun, one claim after the other. No caller was promised any of it, and a start does it
/// again: a stop does not wait for it.
pub(in crate::claims::task) struct BegunRecovery {
    lane: LaneBackends,
    steps: Vec<RecoveryStep>,
}

impl BegunRecovery {
    /// Runs the steps, and passes on the end of each, as long as `pass_on` says that there is an owner.
    pub(in crate::claims::task) fn run(self, executor: &ClaimExecutor, pass_on: impl Fn(FinishedWork) -> bool) {
        for step in self.steps {
            // A lane is one thread, and not one of those that claims have to share.
            let finished = FinishedWork::Claims { backends: BTreeSet::new(), outcomes: step.run(executor) };
            // The owner has stopped: what is left is for the next start.
            if !pass_on(finished) {
                return;
            }
        }
        executor.tidy_records();
        pass_on(FinishedWork::Recovered(self.lane));
    }
}

/// The claims of a start that are not right yet, by their backends.
#[derive(Default)]
pub(super) struct RecoveryLanes {
    waiting: BTreeMap<LaneBackends, Vec<RecoveryStep>>,
    running: BTreeSet<LaneBackends>,
}

impl RecoveryLanes {
    /// Sorts the steps by backends.
    pub(super) fn of(steps: Vec<RecoveryStep>) -> Self {
        let mut lanes = Self::default();
        for step in steps {
            lanes.waiting.entry(backends(step.record())).or_default().push(step);
        }
        lanes
    }

    /// Returns the lanes that can start. A lane that shares its backends with others comes after the lanes of these
    /// backends alone: where one of them hangs, it would hang as well.
    fn startable(&self, unanswered: &BTreeMap<BackendName, impl Sized>) -> Vec<LaneBackends> {
        let answers = |lane: &LaneBackends| !lane.iter().any(|backend| unanswered.contains_key(backend));
        let is_part = |other: &LaneBackends, lane: &LaneBackends| other != lane && other.is_subset(lane);
        let is_behind =
            |lane: &LaneBackends| self.running.iter().chain(self.waiting.keys()).any(|other| is_part(other, lane));
        self.waiting.keys().filter(|lane| answers(lane) && !is_behind(lane)).cloned().collect()
    }
}

/// The backends of a claim.
fn backends(record: &ClaimRecord) -> LaneBackends {
    record.devices.iter().map(|device| device.backend.clone()).collect()
}

impl ClaimEntry {
    /// Makes the entry of a claim that is not right before a backend has done its part.
    pub(super) fn recovering(record: Arc<ClaimRecord>) -> Self {
        let work = ClaimWork::begin(ClaimOperation::Recover, Vec::new());
        let problem = Some(recovery_in_words(&record, work.busy));
        let mut entry = Self::new(record, problem);
        entry.work = Some(work);
        entry
    }

    /// The answer to callers that ask for a claim that is not right yet.
    pub(super) fn recovery_error(&self) -> Option<ClaimError> {
        let busy = self.work.as_ref().map(|work| work.busy)?;
        let (uid, recovery) = (self.record().claim.uid.clone(), recovery_in_words(self.record(), busy));
        (busy.operation == ClaimOperation::Recover).then_some(ClaimError::Recovering { uid, recovery })
    }
}

fn recovery_in_words(record: &ClaimRecord, busy: BusyClaim) -> String {
    let backends: Vec<String> = backends(record).iter().map(ToString::to_string).collect();
    format!("being recovered since {} by backend {}", utc(busy.since), backends.join(" and "))
}

impl ClaimsOwner {
    /// Starts every lane that can start.
    pub(super) fn start_recoveries(&mut self) {
        let unanswered = &self.parts.executor.inventory.latest().unanswered;
        for lane in self.recoveries.startable(unanswered) {
            let Some(steps) = self.recoveries.waiting.remove(&lane) else { continue };
            self.recoveries.running.insert(lane.clone());
            self.begun_recoveries.push(BegunRecovery { lane, steps });
        }
    }

    /// Notes that a lane is over.
    pub(super) fn finish_recovery(&mut self, lane: &LaneBackends) {
        self.recoveries.running.remove(lane);
        if self.recoveries.running.is_empty() && self.recoveries.waiting.is_empty() {
            info!("all claims are recovered");
        }
        self.start_recoveries();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{store::RecordState, testing::record};

    /// `cpu+fake` is a lane, and `cpu, cpu+fake` are two.
    fn lanes(text: &str) -> BTreeSet<LaneBackends> {
        let lane = |text: &str| text.split('+').map(|name| BackendName::new(name).unwrap()).collect();
        text.split(", ").filter(|text| !text.is_empty()).map(lane).collect()
    }

    #[test]
    fn claims_of_a_backend_that_hangs_wait_and_no_others() {
        let step = || vec![RecoveryStep::Unprepare(Arc::new(record("a", RecordState::Preparing, "now")))];
        for (waiting, running, unanswered, startable) in [
            ("cpu, fake", "", "", "cpu, fake"),
            ("cpu, fake", "", "fake", "cpu"),
            ("cpu, cpu+fake", "", "", "cpu"),
            ("cpu+fake", "cpu", "", ""),
            ("cpu+fake", "memory", "", "cpu+fake"),
            ("cpu+memory, cpu+fake", "", "fake", "cpu+memory"),
        ] {
            let waiting = lanes(waiting).into_iter().map(|lane| (lane, step())).collect();
            let recoveries = RecoveryLanes { waiting, running: lanes(running) };
            let hung: BTreeMap<BackendName, ()> = lanes(unanswered).into_iter().flatten().map(|it| (it, ())).collect();
            let expected: Vec<LaneBackends> = lanes(startable).into_iter().collect();
            assert_eq!(recoveries.startable(&hung), expected, "{running:?} {unanswered:?}");
        }
    }
}
