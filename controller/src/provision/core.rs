//! Decides what requests are told, and which of them are looked at next. Holds no clock, and reads nothing but what it is given.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use hostler_allocator::plan::PodSet;
use hostler_api::provisioning::ProvisioningConditionType as Type;

use super::{
    booking::{parts, taken_back},
    check::{CheckBatch, CheckCandidate, CheckVerdict},
    class::{ProvisionClass, ProvisionClasses},
    clock::ProvisionMoment,
    decide::{Decision, is_over},
    event::{ProvisionCommand, ProvisionEvent, ReservationWrite, StatusWrite},
    memory::RequestMemory,
    objects::{ProvisionObjects, SeenRequest},
    room::booked,
    sight::ProvisionSight,
    status::{TERM, notices, said},
    turn::WriteTurn,
};
use crate::hold::taken_by_reservations;

/// As long is waited for marks on open requests. A write that takes longer is given up by whoever sent it.
pub(super) const MARKS_COME: Duration = Duration::from_secs(15);

/// What does not change.
#[derive(Clone, Debug)]
pub(crate) struct ProvisionSettings {
    /// Which requests are answered.
    pub(crate) classes: ProvisionClasses,
    /// Requests that are looked at at once.
    pub(crate) batch: usize,
    /// After that time no further one of them is begun.
    pub(crate) time_box: Duration,
    /// Of the time for which this controller leads, other in each.
    pub(crate) term: String,
}

/// What decides.
#[derive(Debug)]
pub(crate) struct ProvisionCore {
    settings: ProvisionSettings,
    began: Option<Duration>,
    /// By UID.
    memories: BTreeMap<String, RequestMemory>,
    /// The question that is under way.
    check: Option<u64>,
    checks: u64,
    /// Whose turn it is with which Reservation.
    kept: BTreeMap<String, WriteTurn>,
    wake: Option<Duration>,
}

impl ProvisionCore {
    pub(crate) fn new(settings: ProvisionSettings) -> Self {
        Self {
            settings,
            began: None,
            memories: BTreeMap::new(),
            check: None,
            checks: 0,
            kept: BTreeMap::new(),
            wake: None,
        }
    }

    /// Something happened; says what is to be done. `sight` is everything that is there.
    pub(crate) fn step(
        &mut self,
        now: ProvisionMoment,
        sight: &ProvisionSight<'_>,
        event: ProvisionEvent,
    ) -> Vec<ProvisionCommand> {
        self.began.get_or_insert(now.steady);
        self.wake = None;
        let mut commands = self.take(now, event);
        let ours = self.ours(sight.objects);
        self.memories.retain(|uid, _| ours.iter().any(|(request, _)| request.uid() == uid));
        let mut candidates = Vec::new();
        for (request, class) in &ours {
            let mut decision = self.decide(request, now, sight);
            let keep = std::mem::take(&mut decision.keep);
            commands.extend(self.keep(keep, now, sight).map(ProvisionCommand::Keep));
            let (uid, class) = (request.uid().to_owned(), *class);
            let turn = self.memories.get(&uid).map(|memory| memory.due);
            candidates.extend(decision.wanted.take().map(|sets| (turn, CheckCandidate { uid, class, sets })));
            self.wake(decision.due);
            commands.extend(self.write(request, decision, now).map(ProvisionCommand::Write));
        }
        // Who was looked at last comes last, so that nobody waits for ever behind those that are told no again and again.
        candidates.sort_by_key(|(turn, _)| *turn);
        let candidates = candidates.into_iter().map(|(_, candidate)| candidate).take(self.settings.batch).collect();
        // What nobody waits for any more, and nobody wants to write just now, is forgotten.
        self.kept.retain(|name, turn| {
            let seen = sight.reservations.get(name).map(|it| &*it.version);
            !turn.is_current(seen, now.steady)
        });
        commands.extend(self.check(&ours, candidates, now, sight).map(ProvisionCommand::Check));
        commands.extend(self.wake.filter(|wake| *wake > now.steady).map(ProvisionCommand::WakeAt));
        commands
    }

    /// Requests of this controller, by how far they are.
    pub(crate) fn counts(&self, world: &ProvisionObjects) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<&str, usize> = ["open", "booked", "failed", "over"].map(|state| (state, 0)).into();
        for (request, _) in self.ours(world) {
            let state = match &request.status {
                status if status.is(Type::Failed) => "failed",
                _ if is_over(&request) => "over",
                status if status.is(Type::Provisioned) => "booked",
                _ => "open",
            };
            *counts.entry(state).or_default() += 1;
        }
        counts
    }

    /// What people are told of it.
    fn take(&mut self, now: ProvisionMoment, event: ProvisionEvent) -> Vec<ProvisionCommand> {
        let mut told = Vec::new();
        match event {
            ProvisionEvent::Changed => {}
            ProvisionEvent::Written(uid, outcome) => {
                if let Some(memory) = self.memories.get_mut(&uid) {
                    told = memory.written(outcome, now);
                }
            }
            ProvisionEvent::Kept(name, outcome) => {
                if let Some(turn) = self.kept.get_mut(&name) {
                    turn.written(outcome, now.steady);
                }
            }
            ProvisionEvent::Checked(answer) if self.check == Some(answer.number) => {
                self.check = None;
                for (uid, verdict) in answer.verdicts {
                    if let Some(memory) = self.memories.get_mut(&uid) {
                        memory.checked(verdict, now);
                    }
                }
            }
            // Of before something that nobody remembers.
            ProvisionEvent::Checked(_) => {}
        }
        told.into_iter().map(ProvisionCommand::Tell).collect()
    }

    /// Requests that are asked of this controller, in the order of their turn.
    fn ours(&self, world: &ProvisionObjects) -> Vec<(Arc<SeenRequest>, ProvisionClass)> {
        let mut ours: Vec<_> = world
            .requests
            .values()
            .filter(|request| !request.is_going)
            .filter_map(|request| Some((request.clone(), self.settings.classes.of(&request.spec)?)))
            .collect();
        ours.sort_by(|(one, _), (other, _)| (one.created, &one.key).cmp(&(other.created, &other.key)));
        ours
    }

    fn decide(&mut self, request: &SeenRequest, now: ProvisionMoment, sight: &ProvisionSight<'_>) -> Decision {
        let memory = match self.memories.entry(request.uid().to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(RequestMemory::new(request, now)),
        };
        if !memory.is_current(&request.version, now) {
            return Decision { due: memory.write_due(), ..Decision::default() };
        }
        let mut decision = Decision::about(request, memory, now, sight);
        let is_over = is_over(request);
        let named: Vec<String> = match is_over {
            true => Vec::new(),
            false => parts(request).into_iter().map(|part| part.name).collect(),
        };
        decision.keep.extend(taken_back(request, sight.reservations, &named, is_over));
        if decision.is_open {
            decision.details.insert(TERM, self.settings.term.clone());
        }
        if !self.is_marked(request) || !request.status.is(Type::Accepted) {
            decision.wanted = None;
        }
        decision
    }

    /// Those of the writes whose turn it is.
    fn keep(
        &mut self,
        writes: Vec<ReservationWrite>,
        now: ProvisionMoment,
        sight: &ProvisionSight<'_>,
    ) -> impl Iterator<Item = ReservationWrite> {
        let mut begun = Vec::new();
        for write in writes {
            let turn = self.kept.entry(write.name().to_owned()).or_default();
            let seen = sight.reservations.get(write.name()).map(|it| &*it.version);
            if turn.is_current(seen, now.steady) {
                turn.begins();
                begun.push(write);
            } else {
                self.wake = self.wake.into_iter().chain(turn.due()).min();
            }
        }
        begun.into_iter()
    }

    fn write(&mut self, request: &SeenRequest, decision: Decision, now: ProvisionMoment) -> Option<StatusWrite> {
        let memory = self.memories.get_mut(request.uid())?;
        let status = said(&request.status, &decision.words, decision.details, now.wall);
        match &status {
            Some(_) => memory.write_begins(notices(request, &decision.words)),
            None if memory.is_current(&request.version, now) => memory.verdict = None,
            None => {}
        }
        let (key, version) = (request.key.clone(), request.version.clone());
        status.map(|status| StatusWrite { key, version, status })
    }

    /// The next question, when nothing is asked and everything that is open is marked.
    fn check(
        &mut self,
        ours: &[(Arc<SeenRequest>, ProvisionClass)],
        candidates: Vec<CheckCandidate>,
        now: ProvisionMoment,
        sight: &ProvisionSight<'_>,
    ) -> Option<CheckBatch> {
        if self.check.is_some() || candidates.is_empty() {
            return None;
        }
        let marks_due = self.began.unwrap_or_default() + MARKS_COME;
        if now.steady < marks_due && ours.iter().any(|(request, _)| !is_over(request) && !self.is_marked(request)) {
            self.wake(Some(marks_due));
            return None;
        }
        self.checks += 1;
        self.check = Some(self.checks);
        let bookings = ours.iter().filter_map(|(request, _)| self.booking(request, sight)).collect();
        let taken = taken_by_reservations(sight.reservations.values().map(|it| &it.status));
        Some(CheckBatch { number: self.checks, bookings, taken, candidates, time_box: self.settings.time_box })
    }

    fn is_marked(&self, request: &SeenRequest) -> bool {
        request.status.is(Type::Provisioned)
            || request.status.provisioning_class_details.get(TERM) == Some(&self.settings.term)
    }

    /// What is booked for a request: as it says itself, or as it is about to.
    fn booking(&self, request: &SeenRequest, sight: &ProvisionSight<'_>) -> Option<Vec<PodSet>> {
        let verdict = self.memories.get(request.uid()).and_then(|memory| memory.verdict.as_ref());
        let is_promised = request.status.is(Type::Provisioned) || !parts(request).is_empty();
        let is_booked = is_promised || matches!(verdict, Some(CheckVerdict::Found(_)));
        if is_over(request) || !is_booked { None } else { booked(request, sight) }
    }

    fn wake(&mut self, at: Option<Duration>) {
        self.wake = self.wake.into_iter().chain(at).min();
    }
}
