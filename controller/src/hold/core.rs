//! Owns what is known of Reservations and of what is kept for them, and decides what is written. Fed by one task, read by nobody
//! else; has no clock of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_allocator::plan::{BoxSize, PlanOptions};
use hostler_api::ObjectKey;
use hostler_api::reservation::{
    DeviceOwner, PodEviction, ReservationConditionType, ReservationPhase, ReservedDevice, toleration_value,
};
use hostler_cluster::is_older;
use hostler_reconcile::InFlightWrites;

use super::{
    agenda::{HoldClock, Topic},
    event::{
        DeviceKey, HoldCommand, HoldEvent, HoldTarget, HoldTime, HoldWrite, PodBudget, PriorityClasses, PublishedSlice,
        ReservationObject,
    },
    evictions::EvictionAnswer,
    fresh::FreshList,
    parts::KnownParts,
    planning::{CutPause, Questions},
    published::PoolName,
    refusals::Refusals,
    seen::Seen,
    telling::{lacks_told_before, said_conflict},
};
use crate::agenda::Agenda;

/// Reservations that come together are planned together.
const PLAN_DELAY: Duration = Duration::from_millis(100);
/// Devices of a node that are closed together are one write, and so one write of each of its slices.
const FENCE_DELAY: Duration = Duration::from_millis(100);

/// What does not change.
#[derive(Clone, Debug)]
pub(crate) struct HoldSettings {
    /// The driver whose daemons close devices themselves.
    pub(crate) own_driver: String,
    /// Whether the API server serves DeviceTaintRules, with which devices of other drivers are closed.
    pub(crate) has_rules: bool,
    /// Where claims are made that stand for parts of devices, if they can be.
    pub(crate) namespace: Option<String>,
    /// Whether a part of a counter set can be closed: schedulers before the fix of kubernetes#140436 take its siblings for taken.
    pub(crate) holds_partitions: bool,
    /// How long it takes at most until an allocation that a scheduler has decided on can be seen.
    pub(crate) settle: Duration,
    /// How long a device may be gone, or a node not answer, before another one is looked for.
    pub(crate) grace: Duration,
    /// How long Reservations that are over are kept to be looked at.
    pub(crate) keep: Duration,
    /// Whose answers are planned with.
    pub(crate) plan: PlanOptions,
    /// The limit of work and time for the questions of one namespace.
    pub(crate) asker_box: BoxSize,
}

/// A Reservation, and what is being done for it.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) object: ReservationObject,
    /// What others must tolerate to get its devices.
    pub(super) value: String,
    /// Devices that were chosen and are not written yet.
    pub(super) proposal: Option<Vec<ReservedDevice>>,
    /// Who has some of them, and is to be evicted.
    pub(super) victims: Vec<PodEviction>,
    /// What came of evictions, by the UID of the pod.
    pub(super) answers: BTreeMap<String, EvictionAnswer>,
    /// Why none could be chosen.
    pub(super) problem: Option<String>,
    /// Until when it is left alone, because the last question about it took too much work.
    pub(super) cut_short: Option<CutPause>,
    /// Whether there was nothing free when it was asked last.
    pub(super) is_without_free: bool,
    /// Devices that are closed, of which it is not certain yet that nobody else got them.
    pub(super) check: Option<HoldCheck>,
    /// Since when devices are not as they should be.
    pub(super) amiss: BTreeMap<DeviceKey, Duration>,
    /// When it was asked last who the pod is that it shall move.
    pub(super) replaced_asked: Option<Duration>,
    /// What people were told last.
    pub(super) told: Option<(ReservationPhase, String)>,
    /// Which conflict people were told of last.
    pub(super) told_conflict: Option<String>,
    /// Why there are no devices, as people were told since there were some; without numbers.
    pub(super) lacks_told: BTreeSet<String>,
}

/// Devices that are closed, until it is certain that nobody else has got them.
#[derive(Debug)]
pub(super) struct HoldCheck {
    pub(super) devices: BTreeSet<DeviceKey>,
    pub(super) since: Duration,
    /// The list of all claims that decides.
    pub(super) list: Option<u64>,
}

/// Lists of all claims.
#[derive(Debug, Default)]
struct Lists {
    asked: u64,
    done: u64,
    /// Somebody needs one that begins later than the one that is under way.
    is_wanted: bool,
}

/// What a Reservation looks at.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Concern {
    Pool(PoolName),
    Node(String),
}

/// The part of the controller that keeps devices.
#[derive(Debug)]
pub(crate) struct HoldCore {
    pub(super) settings: HoldSettings,
    is_synced: bool,
    pub(super) holds: BTreeMap<String, Hold>,
    /// By the value with which their devices are closed.
    names: BTreeMap<String, String>,
    /// UIDs of those that cannot be understood, by that value.
    pub(super) unreadable: BTreeMap<String, String>,
    concerned: BTreeMap<Concern, BTreeSet<String>>,
    pub(super) parts: KnownParts,
    pub(super) seen: Seen,
    pub(super) clock: HoldClock,
    pub(super) agenda: Agenda<Topic>,
    lists: Lists,
    pub(super) questions: Questions,
    /// How often more could fit than before, as was heard last.
    pub(super) gains: u64,
    pub(super) priorities: FreshList<PriorityClasses>,
    pub(super) budgets: FreshList<Vec<PodBudget>>,
    /// Pods that are being asked for.
    pub(super) fetching: usize,
    /// Reservations that want something of a pod.
    pub(super) pods: BTreeMap<ObjectKey, BTreeSet<String>>,
    /// When pods are told from which Reservation they have devices.
    pub(super) annotating: Refusals,
    /// Devices that could not be closed, and until when they are left alone.
    pub(super) avoided: BTreeMap<DeviceKey, Duration>,
    pub(super) writes: InFlightWrites<HoldTarget, HoldWrite>,
    pub(super) commands: Vec<HoldCommand>,
}

impl HoldCore {
    pub(crate) fn new(settings: HoldSettings) -> Self {
        Self {
            settings,
            is_synced: false,
            holds: BTreeMap::new(),
            names: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            concerned: BTreeMap::new(),
            parts: KnownParts::default(),
            seen: Seen::default(),
            clock: HoldClock::default(),
            agenda: Agenda::new(Topic::Plan),
            lists: Lists::default(),
            questions: Questions::default(),
            gains: 0,
            priorities: FreshList::default(),
            budgets: FreshList::default(),
            fetching: 0,
            pods: BTreeMap::new(),
            annotating: Refusals::default(),
            avoided: BTreeMap::new(),
            writes: InFlightWrites::default(),
            commands: Vec::new(),
        }
    }

    /// Something happened; says what is to be done. Nothing is decided before everything has been told.
    pub(crate) fn step(&mut self, now: HoldTime, event: HoldEvent) -> Vec<HoldCommand> {
        self.agenda.pass(now.elapsed);
        self.clock.pass(now);
        self.take(event);
        if self.is_synced {
            self.settle();
        }
        std::mem::take(&mut self.commands)
    }

    fn settle(&mut self) {
        while let Some(topic) = self.agenda.pop() {
            match topic {
                Topic::Reservation(name) => self.settle_reservation(&name),
                Topic::NodeFences(node) => self.settle_node(&node),
                Topic::Rule(name) => self.settle_rule(&name),
                Topic::Pod(pod) => self.settle_pod(&pod),
                Topic::Placeholder(name) => self.settle_placeholder(&name),
                Topic::Plan => self.plan(),
            }
        }
        self.commands.extend(self.agenda.wake().map(HoldCommand::WakeAt));
    }

    fn slice_seen(&mut self, slice: PublishedSlice) {
        // The planner may have heard of the device earlier, and was told then that there is none.
        if self.seen.published.has_gained(&slice) {
            self.agenda.gained(self.questions.cost);
        }
        let pools = self.seen.slice(slice);
        self.look_at_pools(pools);
    }

    fn take(&mut self, event: HoldEvent) {
        match event {
            HoldEvent::Reservation(object) => self.reservation_seen(*object),
            HoldEvent::ReservationUnreadable(uid) => self.unreadable_seen(uid),
            HoldEvent::ReservationGone(name, uid) => self.reservation_gone(&name, &uid),
            HoldEvent::Slice(slice) => self.slice_seen(*slice),
            HoldEvent::SliceGone(name) => {
                let pools = self.seen.slice_gone(&name);
                self.look_at_pools(pools);
            }
            HoldEvent::NodeFences(fences) => self.node_fences_seen(*fences),
            HoldEvent::NodeFencesGone(node) => {
                let values = self.seen.node_fences_gone(&node);
                self.writes.object_gone(&HoldTarget::NodeFences(node));
                self.look_at_values(&values);
            }
            HoldEvent::Rule(rule) => {
                let name = rule.name.clone();
                self.seen.rules.insert(name.clone(), rule);
                self.rule_changed(name);
            }
            HoldEvent::RuleGone(name) => {
                self.seen.rules.remove(&name);
                self.rule_changed(name);
            }
            // Each list of all claims names them all again: what is known of their pods is not asked for anew.
            HoldEvent::Claim(claim) if self.seen.is_known(&claim) => {}
            HoldEvent::Claim(claim) => {
                let key = claim.key.clone();
                self.look_at_claim(&key);
                let pools = self.seen.claim(*claim);
                self.look_at_pools(pools);
                self.look_at_claim(&key);
            }
            HoldEvent::ClaimGone(key, uid) => {
                self.look_at_claim(&key);
                let pools = self.seen.claim_gone(&key, &uid);
                self.look_at_pools(pools);
            }
            HoldEvent::Pod(key, pod) => self.pod_seen(key, pod),
            HoldEvent::Priorities(classes) => self.priorities_listed(classes),
            HoldEvent::Budgets(budgets) => self.budgets_listed(budgets),
            HoldEvent::Node(name) => {
                self.look_at_node(&name);
                self.seen.node(name);
            }
            HoldEvent::NodeGone(name) => {
                self.seen.node_gone(&name);
                self.look_at_node(&name);
            }
            HoldEvent::FactsChanged(gains) => self.facts_changed(gains),
            HoldEvent::Planned(answer) => self.planned(answer),
            HoldEvent::ClaimsListed(list) => self.claims_listed(list),
            HoldEvent::ServerTime(time) => self.clock.server_said(time),
            HoldEvent::Synced => self.synced(),
            HoldEvent::Written(target, outcome) => self.written(target, outcome),
            HoldEvent::Tick => {}
        }
    }

    fn synced(&mut self) {
        self.is_synced = true;
        self.look_at_all();
        let nodes: Vec<String> = self.seen.node_fences.keys().cloned().collect();
        nodes.into_iter().for_each(|node| self.agenda.now(Topic::NodeFences(node)));
        let rules: Vec<String> = self.seen.rules.keys().cloned().collect();
        rules.into_iter().for_each(|rule| self.agenda.now(Topic::Rule(rule)));
        let placeholders: Vec<String> = self.seen.all_placeholders().map(|key| key.name.clone()).collect();
        placeholders.into_iter().for_each(|name| self.agenda.now(Topic::Placeholder(name)));
    }

    fn reservation_seen(&mut self, object: ReservationObject) {
        let name = object.name.clone();
        self.unreadable_gone(&object.uid);
        if object.is_deleting && object.finalizers.is_empty() {
            // Nothing keeps it any more. What a write returns of it is the last that is heard.
            return self.reservation_gone(&name, &object.uid);
        }
        if let Some(known) = self.holds.get(&name).map(|hold| hold.object.clone()) {
            if known.uid == object.uid && is_older(&object.version, &known.version) {
                return;
            }
            if known.uid != object.uid {
                self.reservation_gone(&name, &known.uid);
            }
            self.concern(&known, false);
            let stays = |part: &ReservedDevice| object.status.devices.iter().any(|it| it.share_id == part.share_id);
            known.status.devices.iter().filter(|part| !stays(part)).for_each(|part| self.part_gone(part));
        }
        self.concern(&object, true);
        if !self.holds.contains_key(&name)
            && let Some(pod) = &object.spec.replaces
        {
            // What was heard before may be about another pod of that name.
            self.seen.pods.remove(&ObjectKey::new(&pod.namespace, &pod.name));
        }
        let hold = self.holds.entry(name.clone()).or_insert_with(|| Hold::new(object.clone()));
        if hold.object != object {
            hold.proposal = None;
        }
        if hold.object.generation != object.generation {
            (hold.problem, hold.is_without_free, hold.cut_short) = (None, false, None);
        }
        self.names.insert(hold.value.clone(), name.clone());
        hold.object = object;
        self.writes.object_changed(&HoldTarget::Reservation(name.clone()));
        self.agenda.now(Topic::Reservation(name));
    }

    pub(super) fn reservation_gone(&mut self, name: &str, uid: &str) {
        self.unreadable_gone(uid);
        if self.holds.get(name).is_none_or(|hold| hold.object.uid != uid) {
            return;
        }
        if let Some(hold) = self.holds.remove(name) {
            self.names.remove(&hold.value);
            self.concern(&hold.object, false);
            hold.object.status.devices.iter().for_each(|part| self.part_gone(part));
            // What it kept can be somebody else's.
            self.agenda.gained(self.questions.cost);
        }
        self.writes.object_gone(&HoldTarget::Reservation(name.to_owned()));
    }

    /// Whose news matter to a Reservation follows from its devices; where these are closed as well.
    fn concern(&mut self, object: &ReservationObject, is_there: bool) {
        for device in &object.status.devices {
            let pool = Concern::Pool((device.driver.clone(), device.pool.clone()));
            for concern in [pool, Concern::Node(device.node_name.clone())] {
                let names = self.concerned.entry(concern.clone()).or_default();
                if is_there {
                    names.insert(object.name.clone())
                } else {
                    names.remove(&object.name)
                };
                if names.is_empty() {
                    self.concerned.remove(&concern);
                }
            }
            self.fence_changed(device);
            if device.is_part() {
                self.part_changed(device, Some(&object.name).filter(|_| is_there));
            }
        }
    }

    /// What is closed may have to be another than before.
    pub(super) fn fence_changed(&mut self, device: &ReservedDevice) {
        let topic = if device.driver == self.settings.own_driver {
            Topic::NodeFences(device.node_name.clone())
        } else {
            Topic::Rule(super::fences::rule_name(&device_key(device)))
        };
        self.agenda.after(FENCE_DELAY, topic);
    }

    pub(super) fn look_at_pools(&mut self, mut pools: Vec<PoolName>) {
        pools.sort();
        pools.dedup();
        for pool in pools {
            self.look_at(&Concern::Pool(pool));
        }
    }

    pub(super) fn look_at_node(&mut self, node: &str) {
        self.look_at(&Concern::Node(node.to_owned()));
    }

    fn look_at(&mut self, concern: &Concern) {
        for name in self.concerned.get(concern).into_iter().flatten() {
            self.agenda.now(Topic::Reservation(name.clone()));
        }
    }

    pub(super) fn look_at_all(&mut self) {
        self.holds.keys().for_each(|name| self.agenda.now(Topic::Reservation(name.clone())));
    }

    pub(super) fn look_at_those_that_go(&mut self) {
        let going = self.holds.iter().filter(|(_, hold)| !hold.is_open());
        going.for_each(|(name, _)| self.agenda.now(Topic::Reservation(name.clone())));
    }

    /// Those that have devices on a node.
    pub(super) fn on_node(&self, node: &str) -> impl Iterator<Item = &Hold> {
        let names = self.concerned.get(&Concern::Node(node.to_owned()));
        names.into_iter().flatten().filter_map(|name| self.holds.get(name))
    }

    /// Those that have devices of a pool.
    pub(super) fn on_pool(&self, device: &DeviceKey) -> impl Iterator<Item = &Hold> {
        let names = self.concerned.get(&Concern::Pool((device.driver.clone(), device.pool.clone())));
        names.into_iter().flatten().filter_map(|name| self.holds.get(name))
    }

    fn node_fences_seen(&mut self, fences: super::event::NodeFences) {
        let node = fences.node.clone();
        if let Some(values) = self.seen.node_fences(fences) {
            self.writes.object_changed(&HoldTarget::NodeFences(node.clone()));
            self.agenda.now(Topic::NodeFences(node));
            self.look_at_values(&values);
        }
    }

    pub(super) fn look_at_values(&mut self, values: &BTreeSet<String>) {
        let names = values.iter().filter_map(|value| self.names.get(value));
        names.for_each(|name| self.agenda.now(Topic::Reservation(name.clone())));
    }

    fn rule_changed(&mut self, name: String) {
        self.writes.object_changed(&HoldTarget::Rule(name.clone()));
        self.agenda.now(Topic::Rule(name));
        self.look_at_all();
    }

    /// Soon, together with others that come meanwhile.
    pub(super) fn plan_soon(&mut self) {
        self.agenda.after(PLAN_DELAY, Topic::Plan);
    }

    /// A list of all claims that begins after now; one that is under way may have begun before.
    pub(super) fn want_list(&mut self) -> u64 {
        if self.lists.asked == self.lists.done {
            self.lists.asked += 1;
            self.commands.push(HoldCommand::ListClaims(self.lists.asked));
            return self.lists.asked;
        }
        self.lists.is_wanted = true;
        self.lists.asked + 1
    }

    pub(super) fn is_listed(&self, list: u64) -> bool {
        self.lists.done >= list
    }

    fn claims_listed(&mut self, list: u64) {
        self.lists.done = self.lists.done.max(list);
        if std::mem::take(&mut self.lists.is_wanted) {
            self.want_list();
        }
        let waiting = self.holds.iter().filter(|(_, hold)| hold.check.is_some());
        waiting.for_each(|(name, _)| self.agenda.now(Topic::Reservation(name.clone())));
    }
}

pub(super) fn device_key(device: &ReservedDevice) -> DeviceKey {
    DeviceKey::new(&device.driver, &device.pool, &device.device)
}

pub(super) fn owner_of(claim: &super::event::AllocatedClaim, pod: &str) -> DeviceOwner {
    DeviceOwner {
        namespace: claim.key.namespace.clone(),
        pod: pod.to_owned(),
        claim: claim.key.name.clone(),
        uid: claim.uid.clone(),
    }
}

impl Hold {
    fn new(object: ReservationObject) -> Self {
        let reason = object.status.condition(ReservationConditionType::Ready).map(|it| it.reason.clone());
        Self {
            told_conflict: said_conflict(&object.status).map(str::to_owned),
            value: toleration_value(&object.uid),
            told: reason.map(|reason| (object.status.phase, reason)),
            lacks_told: lacks_told_before(&object),
            object,
            proposal: None,
            victims: Vec::new(),
            answers: BTreeMap::new(),
            replaced_asked: None,
            problem: None,
            cut_short: None,
            is_without_free: false,
            check: None,
            amiss: BTreeMap::new(),
        }
    }

    /// Whether it may have devices that pods have now.
    pub(super) fn seeks_victims(&self) -> bool {
        self.object.spec.is_pre_allocation() || self.object.spec.preempts()
    }

    pub(super) fn is_open(&self) -> bool {
        !self.object.is_deleting && !self.object.status.phase.is_over()
    }
}
