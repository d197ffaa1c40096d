//! Decides what requests are told, and which of them are looked at next. Holds no clock, and reads nothing but what it is given.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use hostler_allocator::plan::PodSet;
use hostler_api::provisioning::ProvisioningConditionType as Type;

use super::{
    check::{CheckBatch, CheckCandidate, CheckVerdict},
    class::{ProvisionClass, ProvisionClasses},
    clock::ProvisionMoment,
    consume::{left, pod_sets},
    decide::{Decision, is_over},
    event::{ProvisionCommand, ProvisionEvent, StatusWrite},
    memory::RequestMemory,
    objects::{ProvisionObjects, SeenRequest},
    status::{TERM, said},
};

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
    wake: Option<Duration>,
}

impl ProvisionCore {
    pub(crate) fn new(settings: ProvisionSettings) -> Self {
        Self { settings, began: None, memories: BTreeMap::new(), check: None, checks: 0, wake: None }
    }

    /// Something happened; says what is to be done. `world` is everything that is there.
    pub(crate) fn step(
        &mut self,
        now: ProvisionMoment,
        world: &ProvisionObjects,
        event: ProvisionEvent,
    ) -> Vec<ProvisionCommand> {
        self.began.get_or_insert(now.steady);
        self.wake = None;
        self.take(now, event);
        let ours = self.ours(world);
        self.memories.retain(|uid, _| ours.iter().any(|(request, _)| request.uid() == uid));
        let mut commands = Vec::new();
        let mut candidates = Vec::new();
        for (request, class) in &ours {
            let mut decision = self.decide(request, now, world);
            let (uid, class) = (request.uid().to_owned(), *class);
            let turn = self.memories.get(&uid).map(|memory| memory.due);
            candidates.extend(decision.wanted.take().map(|sets| (turn, CheckCandidate { uid, class, sets })));
            self.wake(decision.due);
            commands.extend(self.write(request, decision, now).map(ProvisionCommand::Write));
        }
        // Who was looked at last comes last, so that nobody waits for ever behind those that are told no again and again.
        candidates.sort_by_key(|(turn, _)| *turn);
        let candidates = candidates.into_iter().map(|(_, candidate)| candidate).take(self.settings.batch).collect();
        commands.extend(self.check(&ours, candidates, now, world).map(ProvisionCommand::Check));
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

    fn take(&mut self, now: ProvisionMoment, event: ProvisionEvent) {
        match event {
            ProvisionEvent::Changed => {}
            ProvisionEvent::Written(uid, outcome) => {
                if let Some(memory) = self.memories.get_mut(&uid) {
                    memory.written(outcome, now);
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

    fn decide(&mut self, request: &SeenRequest, now: ProvisionMoment, world: &ProvisionObjects) -> Decision {
        let memory = match self.memories.entry(request.uid().to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(RequestMemory::new(request, now)),
        };
        if !memory.is_current(&request.version, now) {
            return Decision { due: memory.write_due(), ..Decision::default() };
        }
        let mut decision = Decision::about(request, memory, now, world);
        if decision.is_open {
            decision.details.insert(TERM, self.settings.term.clone());
        }
        if !self.is_marked(request) || !request.status.is(Type::Accepted) {
            decision.wanted = None;
        }
        decision
    }

    fn write(&mut self, request: &SeenRequest, decision: Decision, now: ProvisionMoment) -> Option<StatusWrite> {
        let memory = self.memories.get_mut(request.uid())?;
        let status = said(&request.status, &decision.words, decision.details, now.wall);
        match &status {
            Some(_) => memory.write_begins(),
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
        world: &ProvisionObjects,
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
        let bookings = ours.iter().filter_map(|(request, _)| self.booking(request, world)).collect();
        Some(CheckBatch { number: self.checks, bookings, candidates, time_box: self.settings.time_box })
    }

    fn is_marked(&self, request: &SeenRequest) -> bool {
        request.status.is(Type::Provisioned)
            || request.status.provisioning_class_details.get(TERM) == Some(&self.settings.term)
    }

    /// What is booked for a request: as it says itself, or as it is about to.
    fn booking(&self, request: &SeenRequest, world: &ProvisionObjects) -> Option<Vec<PodSet>> {
        let verdict = self.memories.get(request.uid()).and_then(|memory| memory.verdict.as_ref());
        let is_booked = request.status.is(Type::Provisioned) || matches!(verdict, Some(CheckVerdict::Found(_)));
        if is_over(request) || !is_booked {
            return None;
        }
        Some(left(pod_sets(request, world).ok()?, &request.key, world))
    }

    fn wake(&mut self, at: Option<Duration>) {
        self.wake = self.wake.into_iter().chain(at).min();
    }
}
