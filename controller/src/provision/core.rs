//! Decides the answers to requests, and which requests are planned next. Holds no clock, and reads only its arguments.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use hostler_allocator::plan::{BoxSize, PodSet};
use hostler_api::provisioning::{ProvisioningConditionType as Type, ProvisioningReason as Reason};

use super::{
    booked::parts,
    booking::taken_back,
    check::{CheckBatch, CheckCandidate, CheckVerdict},
    clock::ProvisionMoment,
    context::ProvisionContext,
    decision::{Decision, is_over},
    event::{ProvisionCommand, ProvisionEvent, ReservationWrite, StatusWrite},
    gains::GainWatch,
    memory::RequestMemory,
    orphans::OrphanedBookings,
    parameters::RequestParameters,
    room::booked,
    status::{notices, said},
    turn::WriteTurn,
};
use crate::{
    askers::in_turns,
    hold::{promised_by_reservations, taken_by_reservations},
    requests::{CONTROLLER_TERM, ProvisionClass, ProvisionClasses, ProvisionObjects, SeenRequest},
};

/// Time to wait for marks on open requests. The edge gives up a write that takes longer.
pub(super) const MARKS_COME: Duration = Duration::from_secs(15);

/// Settings that do not change during a term.
#[derive(Clone, Debug)]
pub(crate) struct ProvisionSettings {
    /// Classes of requests that are answered.
    pub(crate) classes: ProvisionClasses,
    /// Limit of requests in one question to the planner.
    pub(crate) batch: usize,
    /// Time after which no further request of a question is begun.
    pub(crate) time_box: Duration,
    /// Mark of this leader term, another one in each.
    pub(crate) term: String,
    /// Limit of the time for which a request may book.
    pub(crate) longest_booking: Duration,
    /// Time for which requests that are over are kept; `None`: for ever.
    pub(crate) keep: Option<Duration>,
    /// Limit of work and time for all requests of a namespace in one round of questions.
    pub(crate) asker_box: BoxSize,
}

/// The state of all requests.
#[derive(Debug)]
pub(crate) struct ProvisionCore {
    settings: ProvisionSettings,
    began: Option<Duration>,
    /// Memories of requests, by UID.
    memories: BTreeMap<String, RequestMemory>,
    /// Number of the question in flight.
    check: Option<u64>,
    checks: u64,
    /// Writes of Reservations, by name.
    kept: BTreeMap<String, WriteTurn>,
    orphans: OrphanedBookings,
    gains: GainWatch,
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
            orphans: OrphanedBookings::default(),
            gains: GainWatch::new(),
            wake: None,
        }
    }

    /// Handles an event and returns commands. `cx` is the state of the cluster.
    pub(crate) fn step(
        &mut self,
        now: ProvisionMoment,
        cx: &ProvisionContext<'_>,
        event: ProvisionEvent,
    ) -> Vec<ProvisionCommand> {
        self.began.get_or_insert(now.steady);
        self.wake = None;
        let mut commands = self.take(now, event);
        let ours = self.ours(cx.objects);
        let known: BTreeSet<&str> = ours.iter().map(|(it, _)| it.uid()).collect();
        self.memories.retain(|uid, _| known.contains(&**uid));
        self.look_again(&ours, now, cx);
        let (orphaned, due) = self.orphans.see(now.steady, cx);
        self.wake(due);
        let mut candidates = Vec::new();
        for (request, class) in &ours {
            let mut decision = self.decide(request, now, cx);
            let keep = std::mem::take(&mut decision.keep);
            commands.extend(self.keep(keep, now, cx).map(ProvisionCommand::Keep));
            candidates.extend(decision.wanted.take().map(|sets| self.candidate(request, *class, sets)));
            self.wake(decision.due);
            commands.extend(self.write(request, decision, now));
        }
        commands.extend(self.keep(orphaned, now, cx).map(ProvisionCommand::Keep));
        // The request that was planned last comes last, so that no request waits for ever behind others that get no
        // again and again.
        candidates.sort_by_key(|(turn, _)| *turn);
        let candidates: Vec<CheckCandidate> = candidates.into_iter().map(|(_, candidate)| candidate).collect();
        let mut candidates = in_turns(candidates, |candidate| &candidate.namespace);
        let is_waited_for = !candidates.is_empty();
        candidates.truncate(self.settings.batch);
        // A Reservation without a write in flight or a pause needs no entry.
        self.kept.retain(|name, turn| {
            let seen = cx.reservations.get(name).map(|it| &*it.version);
            !turn.is_current(seen, now.steady)
        });
        commands.extend(self.check(&ours, candidates, now, cx).map(ProvisionCommand::Check));
        if self.check.is_none() && !is_waited_for {
            self.gains.rests(now.steady);
        }
        let due = self.gains.due(now.steady);
        self.wake(due);
        commands.extend(self.wake.filter(|wake| *wake > now.steady).map(ProvisionCommand::WakeAt));
        commands
    }

    /// Returns the number of requests of this controller, by state.
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

    /// Takes an event in. Returns Events about it.
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
            // An answer to a question of an earlier term.
            ProvisionEvent::Checked(_) => {}
        }
        told.into_iter().map(ProvisionCommand::Tell).collect()
    }

    /// Returns the requests of this controller, oldest first.
    fn ours(&self, world: &ProvisionObjects) -> Vec<(Arc<SeenRequest>, ProvisionClass)> {
        let mut ours: Vec<_> = world
            .requests
            .values()
            .filter(|request| !request.is_going)
            .filter_map(|request| Some((request.clone(), self.settings.classes.of(&request.spec)?)))
            .filter(|(request, _)| !request.is_of_another())
            .collect();
        ours.sort_by(|(one, _), (other, _)| (one.created, &one.key).cmp(&(other.created, &other.key)));
        ours
    }

    /// Shortens the pauses of requests that were told no, if there may be room for them since.
    fn look_again(
        &mut self,
        ours: &[(Arc<SeenRequest>, ProvisionClass)],
        now: ProvisionMoment,
        cx: &ProvisionContext<'_>,
    ) {
        let booked = ours.iter().filter(|(request, _)| self.is_booked(request));
        let booked = booked.map(|(request, _)| request.uid().to_owned()).collect();
        if self.gains.see(now.steady, cx, booked) {
            self.memories.values_mut().for_each(|memory| memory.gained(now.steady));
        }
    }

    fn decide(&mut self, request: &SeenRequest, now: ProvisionMoment, cx: &ProvisionContext<'_>) -> Decision {
        let memory = match self.memories.entry(request.uid().to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(RequestMemory::new(request, now)),
        };
        if !memory.is_current(&request.version, now) {
            return Decision { due: memory.write_due(), ..Decision::default() };
        }
        memory.opened_by = self.orphans.opened_by(&request.key);
        let mut decision = match longer_than(self.settings.longest_booking, request) {
            Some(problem) => Decision::failed(Reason::FailedToCreatePods, problem),
            None => Decision::about(request, memory, now, cx),
        };
        let is_over = is_over(request);
        if is_over {
            decision.delete_after(self.settings.keep, request, memory, now);
        }
        let named: Vec<String> = match is_over {
            true => Vec::new(),
            false => parts(request).into_iter().map(|part| part.name).collect(),
        };
        let is_done = is_over || request.status.is(Type::Provisioned);
        decision.keep.extend(taken_back(request, cx.reservations, &named, is_done));
        if decision.is_open {
            decision.details.insert(CONTROLLER_TERM, self.settings.term.clone());
        }
        if !self.is_marked(request) || !request.status.is(Type::Accepted) {
            decision.wanted = None;
        }
        decision
    }

    /// Begins the writes of Reservations that may begin now.
    fn keep(
        &mut self,
        writes: Vec<ReservationWrite>,
        now: ProvisionMoment,
        cx: &ProvisionContext<'_>,
    ) -> impl Iterator<Item = ReservationWrite> {
        let mut begun = Vec::new();
        for write in writes {
            let turn = self.kept.entry(write.name().to_owned()).or_default();
            let seen = cx.reservations.get(write.name()).map(|it| &*it.version);
            if turn.is_current(seen, now.steady) {
                turn.begins();
                begun.push(write);
            } else {
                self.wake = self.wake.into_iter().chain(turn.due()).min();
            }
        }
        begun.into_iter()
    }

    /// Returns the write of a request: its status, or its deletion.
    fn write(&mut self, request: &SeenRequest, decision: Decision, now: ProvisionMoment) -> Option<ProvisionCommand> {
        let memory = self.memories.get_mut(request.uid())?;
        let (key, version) = (request.key.clone(), request.version.clone());
        let status = said(&request.status, &decision.conditions, decision.details, now.wall);
        match status {
            Some(status) => {
                memory.write_begins(notices(request, &decision.conditions));
                return Some(ProvisionCommand::Write(StatusWrite { key, version, status }));
            }
            None if decision.is_deleted => {
                memory.write_begins(Vec::new());
                return Some(ProvisionCommand::Delete(key, version));
            }
            None if memory.is_current(&request.version, now) => memory.verdict = None,
            None => {}
        }
        None
    }

    fn candidate(
        &self,
        request: &SeenRequest,
        class: ProvisionClass,
        sets: Vec<PodSet>,
    ) -> (Option<Duration>, CheckCandidate) {
        let uid = request.uid().to_owned();
        let turn = self.memories.get(&uid).map(|memory| memory.due);
        let namespace = request.key.namespace.clone();
        (turn, CheckCandidate { uid, namespace, class, sets })
    }

    /// Returns the next question, if none is in flight and all open requests are marked.
    fn check(
        &mut self,
        ours: &[(Arc<SeenRequest>, ProvisionClass)],
        candidates: Vec<CheckCandidate>,
        now: ProvisionMoment,
        cx: &ProvisionContext<'_>,
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
        self.gains.asks(now.steady);
        let asks = |uid: &str| candidates.iter().any(|it| it.uid == uid);
        let others = ours.iter().map(|(request, _)| request).filter(|it| !asks(it.uid()));
        let bookings = others.filter_map(|request| self.booking(request, cx)).collect();
        let taken = taken_by_reservations(cx.reservations.values().map(|it| &it.status));
        let promised = promised_by_reservations(cx.reservations.values().map(|it| &**it));
        let ProvisionSettings { time_box, asker_box, .. } = self.settings;
        Some(CheckBatch { number: self.checks, bookings, taken, promised, candidates, time_box, asker_box })
    }

    fn is_marked(&self, request: &SeenRequest) -> bool {
        request.status.is(Type::Provisioned)
            || request.status.provisioning_class_details.get(CONTROLLER_TERM) == Some(&self.settings.term)
    }

    /// Returns the booking of a request.
    fn booking(&self, request: &SeenRequest, cx: &ProvisionContext<'_>) -> Option<Vec<PodSet>> {
        if self.is_booked(request) { booked(request, cx) } else { None }
    }

    /// True if a request has a booking: its status says so, or is about to.
    fn is_booked(&self, request: &SeenRequest) -> bool {
        let verdict = self.memories.get(request.uid()).and_then(|memory| memory.verdict.as_ref());
        let is_promised = request.status.is(Type::Provisioned) || !parts(request).is_empty();
        !is_over(request) && (is_promised || matches!(verdict, Some(CheckVerdict::Found(_))))
    }

    fn wake(&mut self, at: Option<Duration>) {
        self.wake = self.wake.into_iter().chain(at).min();
    }
}

/// Returns the reason to refuse a request that books for longer than the configuration allows; `None` once it was told
/// yes.
fn longer_than(longest: Duration, request: &SeenRequest) -> Option<String> {
    if is_over(request) || request.status.is(Type::Provisioned) {
        return None;
    }
    let booking = RequestParameters::read(&request.spec).ok()?.booking;
    (booking > longest).then(|| {
        format!(
            "spec.parameters.bookingSeconds is {}; write at most {}, or have provisioning.longest_booking_seconds of \
             hostler-controller raised",
            booking.as_secs(),
            longest.as_secs()
        )
    })
}
