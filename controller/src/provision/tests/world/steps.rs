//! What the core wants done, and what comes of it: with deaths.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use hostler_allocator::plan::{BoxSize, PlanOptions, Snapshot};
use hostler_api::ObjectKey;
use hostler_reconcile::WriteOutcome;

use super::{ModelServer, World};
use crate::testkit::{Fate, Fated};
use crate::{
    provision::{
        check::{CheckAnswer, CheckBatch},
        event::{ProvisionCommand, ProvisionEvent, ReservationWrite, StatusWrite, WriteResult},
    },
    requests::SeenRequest,
};

impl ModelServer {
    /// A request is asked to go.
    pub(in crate::provision::tests) fn delete_request(&mut self, request: &ObjectKey) {
        drop(self.delete::<Arc<SeenRequest>>(request, None));
    }
}

impl World {
    /// The controller is started anew with other limits.
    pub(in crate::provision::tests) fn set_asker_box(&mut self, asker_box: BoxSize) {
        self.settings.asker_box = asker_box;
        self.restart();
    }

    /// The controller is started anew, and deletes requests that were over for so long.
    pub(in crate::provision::tests) fn keep_for(&mut self, keep: Duration) {
        self.settings.keep = Some(keep);
        self.restart();
    }

    /// Until nothing is to be done but to wait.
    pub(in crate::provision::tests) fn settle(&mut self) {
        let (mut events, mut steps) = (VecDeque::from([ProvisionEvent::Changed]), 0);
        while let Some(event) = events.pop_front() {
            steps += 1;
            assert!(steps < 1000, "it never comes to rest");
            self.wake = None;
            let server = self.server.clone();
            for command in self.core.step(self.now(), &server.cx(&self.keeping), event) {
                let death = command_is_sent(&command).then(|| self.deaths.next()).flatten();
                match Fate::carry_out(death, self, |_| {}, |world| world.carry_out(command)) {
                    Fated::Answered(event) => events.extend(event),
                    _ => {
                        self.restart();
                        events = VecDeque::from([ProvisionEvent::Changed]);
                        break;
                    }
                }
            }
            let now = self.server_time();
            if self.is_kept && self.server.keep_devices(now) {
                events.push_back(ProvisionEvent::Changed);
            }
        }
    }

    /// Does what the core says, and gives what comes of it.
    fn carry_out(&mut self, command: ProvisionCommand) -> Option<ProvisionEvent> {
        Some(match command {
            ProvisionCommand::Write(write) => ProvisionEvent::Written(write.version.uid.clone(), self.write(&write)),
            ProvisionCommand::Delete(key, version) => {
                let deleted = self.server.delete::<Arc<SeenRequest>>(&key, Some(&version));
                ProvisionEvent::Written(version.uid.clone(), deleted.map(|_| version).map_err(WriteOutcome::from))
            }
            ProvisionCommand::Keep(write) => ProvisionEvent::Kept(write.name().to_owned(), self.keep(&write)),
            ProvisionCommand::Check(batch) if self.batches.len() < self.most_checks => {
                ProvisionEvent::Checked(self.answer(&batch))
            }
            ProvisionCommand::Check(_) => return None,
            ProvisionCommand::Tell(notice) => {
                self.told.push((notice.key.name, notice.reason));
                return None;
            }
            ProvisionCommand::WakeAt(at) => {
                self.wake = Some(at);
                return None;
            }
        })
    }

    fn keep(&mut self, write: &ReservationWrite) -> WriteResult {
        let (fate, now) = (self.keep_fates.next(), self.server_time());
        outcome(Fate::carry_out(fate, &mut self.server, |_| {}, |server| server.keep(write, now)))
    }

    fn write(&mut self, write: &StatusWrite) -> WriteResult {
        let fate = self.fates.remove(&write.key.name);
        let overtake = |server: &mut ModelServer| server.touch_request(&write.key.name);
        outcome(Fate::carry_out(fate, &mut self.server, overtake, |server| server.apply(write)))
    }

    fn answer(&mut self, batch: &CheckBatch) -> CheckAnswer {
        self.batches.push(batch.candidates.len());
        let (mut elapsed, takes) = (Duration::ZERO, self.candidate_takes);
        self.go_on(self.check_takes);
        let snapshot = Snapshot::new(self.server.facts.clone());
        batch.run(&snapshot, &PlanOptions::default(), &mut || {
            elapsed += takes;
            elapsed
        })
    }
}

/// Returns the outcome of a write that the core hears.
pub(in crate::provision::tests) fn outcome(fated: Fated<WriteResult>) -> WriteResult {
    match fated {
        Fated::Answered(result) => result,
        Fated::Silent | Fated::Refused | Fated::Dead => Err(WriteOutcome::Failed("no answer".to_owned())),
    }
}

/// True for a write: a controller can die with it.
fn command_is_sent(command: &ProvisionCommand) -> bool {
    match command {
        ProvisionCommand::Write(_) | ProvisionCommand::Delete(..) | ProvisionCommand::Keep(_) => true,
        ProvisionCommand::Tell(_) | ProvisionCommand::Check(_) | ProvisionCommand::WakeAt(_) => false,
    }
}
