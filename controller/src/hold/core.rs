//! Owns the knowledge of Reservations and of their devices, and carries out the effects of decisions. One task feeds
//! the core; the core has no clock and no I/O.
//!
//! ```text
//!   HoldEvent ─► KnownCluster, Reservations ─► topics ─► decisions (functions of a Context) ─► Effects ─► HoldCommand
//! ```

use std::{collections::BTreeMap, time::Duration};

use hostler_api::ObjectKey;
use hostler_reconcile::{InFlightWrites, WriteReadiness};

use super::{
    context::{HoldContext, HoldEffect, Timer, Timers},
    event::{HoldCommand, HoldEvent},
    fences::{decide_node, decide_rule},
    known::{KnownCluster, PodReading},
    objects::{DeviceKey, HoldTime},
    placeholders::decide_placeholder,
    pods::decide_pod,
    questions::Questions,
    reconcile::decide_reservation,
    refusals::RefusalPause,
    reservations::{Related, Reservations},
    settings::HoldSettings,
    topics::{DecisionTopic, HoldClock},
    writes::{HoldTarget, HoldWrite},
};
use crate::decision_queue::DecisionQueue;

/// Delay before the planner is asked: Reservations that come together are planned together.
pub(super) const PLAN_DELAY: Duration = Duration::from_millis(100);
/// Pause before a pod is read again that could not be read.
pub(super) const READ_AGAIN: Duration = Duration::from_secs(5);

/// Lists of all claims.
#[derive(Debug, Default)]
pub(super) struct Lists {
    asked: u64,
    pub(super) done: u64,
    /// True if a list is needed that begins later than the one under way.
    pub(super) is_wanted: bool,
}

/// The part of the controller that keeps devices.
#[derive(Debug)]
pub(crate) struct HoldCore {
    pub(super) settings: HoldSettings,
    is_synced: bool,
    pub(super) reservations: Reservations,
    pub(super) cluster: KnownCluster,
    pub(super) timers: Timers,
    clock: HoldClock,
    pub(super) queue: DecisionQueue<DecisionTopic>,
    pub(super) lists: Lists,
    pub(super) questions: Questions,
    /// Number of times that more devices could fit than before.
    pub(super) gains: u64,
    /// Pods that are being read.
    pub(super) reading: usize,
    /// Pauses between annotations of pods that are refused.
    pub(super) annotating: RefusalPause,
    /// Devices that could not be closed, and the end of the time for which they are left alone.
    pub(super) avoided: BTreeMap<DeviceKey, Duration>,
    pub(super) writes: InFlightWrites<HoldTarget, HoldWrite>,
    pub(super) commands: Vec<HoldCommand>,
}

impl HoldCore {
    pub(crate) fn new(settings: HoldSettings) -> Self {
        Self {
            settings,
            is_synced: false,
            reservations: Reservations::default(),
            cluster: KnownCluster::default(),
            timers: Timers::default(),
            clock: HoldClock::default(),
            queue: DecisionQueue::new(DecisionTopic::Plan),
            lists: Lists::default(),
            questions: Questions::default(),
            gains: 0,
            reading: 0,
            annotating: RefusalPause::default(),
            avoided: BTreeMap::new(),
            writes: InFlightWrites::default(),
            commands: Vec::new(),
        }
    }

    /// Takes an event; returns the commands that follow. Decisions begin once all objects have been told.
    pub(crate) fn step(&mut self, now: HoldTime, event: HoldEvent) -> Vec<HoldCommand> {
        self.queue.pass(now.elapsed);
        self.clock.pass(now);
        self.take(event);
        while self.is_synced
            && let Some(topic) = self.queue.pop()
        {
            match topic {
                DecisionTopic::Plan => self.plan(),
                topic => self.reconcile(&topic),
            }
        }
        if self.is_synced {
            self.commands.extend(self.queue.wake().map(HoldCommand::WakeAt));
        }
        std::mem::take(&mut self.commands)
    }

    /// The state that decisions read.
    pub(super) fn context(&self) -> HoldContext<'_> {
        HoldContext {
            settings: &self.settings,
            cluster: &self.cluster,
            reservations: &self.reservations,
            timers: &self.timers,
            clock: &self.clock,
            avoided: &self.avoided,
            writes: &self.writes,
            listed: self.lists.done,
            can_annotate: self.annotating.are_over(self.queue.now),
            now: self.queue.now,
            effects: Vec::new(),
        }
    }

    /// Makes a decision, and carries out its effects.
    pub(super) fn decide<T>(&mut self, decision: impl FnOnce(&mut HoldContext<'_>) -> T) -> T {
        let mut cx = self.context();
        let decided = decision(&mut cx);
        let effects = cx.effects;
        effects.into_iter().for_each(|effect| self.apply(effect));
        decided
    }

    /// Decides about an object, and writes it if it can be written now.
    fn reconcile(&mut self, topic: &DecisionTopic) {
        let write = self.decide(|cx| match topic {
            DecisionTopic::Reservation(name) => decide_reservation(cx, name),
            DecisionTopic::NodeFences(node) => decide_node(cx, node),
            DecisionTopic::Rule(name) => decide_rule(cx, name),
            DecisionTopic::Pod(pod) => decide_pod(cx, pod),
            DecisionTopic::Placeholder(name) => decide_placeholder(cx, name),
            DecisionTopic::Plan => None,
        });
        let Some(write) = write else { return };
        match self.writes.readiness(&write.target(), self.queue.now) {
            WriteReadiness::Ready => {
                self.writes.begin(write.target(), write.clone());
                self.commands.push(HoldCommand::Write(write));
            }
            WriteReadiness::After(pause) => self.queue.after(pause, topic.clone()),
            // The outcome of the write in flight queues the object again.
            WriteReadiness::InFlight => {}
        }
    }

    pub(super) fn apply(&mut self, effect: HoldEffect) {
        let now = self.queue.now;
        match effect {
            HoldEffect::ReadPod(pod) => self.read_pod(pod),
            HoldEffect::RereadPod(pod) => {
                self.cluster.pods.remove(&pod);
                self.read_pod(pod);
            }
            HoldEffect::ListPriorities if self.cluster.priorities.asks() => {
                self.commands.push(HoldCommand::ListPriorities)
            }
            HoldEffect::ListBudgets if self.cluster.budgets.asks() => self.commands.push(HoldCommand::ListBudgets),
            HoldEffect::ListPriorities | HoldEffect::ListBudgets => {}
            HoldEffect::Decide(topic) => self.queue.now(topic),
            HoldEffect::DecideAfter(delay, topic) => self.queue.after(delay, topic),
            HoldEffect::PlanSoon => self.plan_soon(),
            HoldEffect::Start(timer) => self.timers.start(timer, now),
            HoldEffect::Stop(timer) => self.timers.stop(&timer),
            HoldEffect::Avoid(device, time) => drop(self.avoided.insert(device, now + time)),
            HoldEffect::Check(name, check) => {
                if let Some(reservation) = self.reservations.get_mut(&name) {
                    reservation.check = check;
                }
            }
            HoldEffect::ListClaims(name) => {
                let list = self.list_claims();
                if let Some(check) = self.reservations.get_mut(&name).and_then(|it| it.check.as_mut()) {
                    check.list = Some(list);
                }
            }
            HoldEffect::Problem(name, problem) => {
                if let Some(reservation) = self.reservations.get_mut(&name) {
                    reservation.problem = Some(problem);
                }
            }
        }
    }

    fn read_pod(&mut self, pod: ObjectKey) {
        if !self.cluster.pods.contains_key(&pod) {
            self.cluster.pods.insert(pod.clone(), PodReading::Asked);
            self.reading += 1;
            self.commands.push(HoldCommand::FetchPod(pod));
        }
    }

    /// Requests a list of all claims that begins after now, and returns its number. The list in flight may have begun
    /// before.
    pub(super) fn list_claims(&mut self) -> u64 {
        if self.lists.asked == self.lists.done {
            self.lists.asked += 1;
            self.commands.push(HoldCommand::ListClaims(self.lists.asked));
            return self.lists.asked;
        }
        self.lists.is_wanted = true;
        self.lists.asked + 1
    }

    fn take(&mut self, event: HoldEvent) {
        match event {
            HoldEvent::Reservation(object) => self.reservation_seen(*object),
            HoldEvent::ReservationUnreadable(uid) => self.reservations.insert_unreadable(uid),
            HoldEvent::ReservationGone(name, uid) => self.reservation_gone(&name, &uid),
            HoldEvent::Slice(slice) => self.slice_seen(*slice),
            HoldEvent::SliceGone(name) => {
                let pools = self.cluster.slice_gone(&name);
                self.decide_about_pools(pools);
            }
            HoldEvent::NodeFences(fences) => self.node_fences_seen(*fences),
            HoldEvent::NodeFencesGone(node) => {
                let values = self.cluster.node_fences_gone(&node);
                self.writes.object_gone(&HoldTarget::NodeFences(node));
                self.decide_about_values(&values);
            }
            HoldEvent::Rule(rule) => self.rule_seen(rule),
            HoldEvent::RuleGone(name) => self.rule_gone(name),
            // Each list of all claims names all of them again: pods of known claims are not read anew.
            HoldEvent::Claim(claim) if self.cluster.is_known(&claim) => {}
            HoldEvent::Claim(claim) => {
                let key = claim.key.clone();
                self.claim_changed(&key);
                let pools = self.cluster.claim(*claim);
                self.decide_about_pools(pools);
                self.claim_changed(&key);
            }
            HoldEvent::ClaimGone(key, uid) => {
                self.claim_changed(&key);
                let pools = self.cluster.claim_gone(&key, &uid);
                self.decide_about_pools(pools);
            }
            HoldEvent::Pod(key, pod) => self.pod_read(key, pod),
            HoldEvent::Priorities(classes) => {
                self.cluster.priorities.told(self.queue.now, classes);
                self.plan_soon();
            }
            HoldEvent::Budgets(budgets) => {
                self.cluster.budgets.told(self.queue.now, budgets);
                self.plan_soon();
            }
            HoldEvent::Attachment(known) => self.attachment_seen(*known),
            HoldEvent::AttachmentGone(name) => self.attachment_gone(&name),
            HoldEvent::Node(name) => {
                self.timers.stop(&Timer::NodeMissing(name.clone()));
                self.cluster.nodes.insert(name.clone());
                self.decide_about_related(&Related::Node(name));
            }
            HoldEvent::NodeGone(name) => {
                self.cluster.nodes.remove(&name);
                self.decide_about_related(&Related::Node(name));
            }
            HoldEvent::FactsChanged(gains) => self.facts_changed(gains),
            HoldEvent::Planned(answer) => self.planned(answer),
            HoldEvent::ClaimsListed(list) => self.claims_listed(list),
            HoldEvent::ServerTime(time) => self.clock.server_said(time),
            HoldEvent::Synced => self.synced(),
            HoldEvent::Written(target, outcome) => self.written(target, &outcome),
            HoldEvent::PlacesKept(kept) => self.places_kept(kept),
            HoldEvent::Tick => {}
        }
    }

    fn places_kept(&mut self, kept: Option<bool>) {
        if std::mem::replace(&mut self.settings.keeps_places, kept) != kept {
            self.decide_about_all();
        }
    }

    fn synced(&mut self) {
        self.is_synced = true;
        self.decide_about_all();
        self.cluster.node_fences.keys().for_each(|node| self.queue.now(DecisionTopic::NodeFences(node.clone())));
        self.cluster.rules.keys().for_each(|rule| self.queue.now(DecisionTopic::Rule(rule.clone())));
        self.cluster.all_placeholders().for_each(|key| self.queue.now(DecisionTopic::Placeholder(key.name.clone())));
    }
}
