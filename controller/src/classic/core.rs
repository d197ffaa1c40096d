//! Owns the state of claims, negotiations, classes and devices, and carries out the effects of decisions. One task
//! feeds the core; the core has no clock and no I/O.
//!
//! ```text
//!   ClassicEvent ─► state ─► topics ─► decisions (functions of a Context) ─► Effects ─► ClassicCommand
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::ObjectKey;
use hostler_reconcile::{InFlightWrites, WriteReadiness};

use super::{
    catalogue::Catalogue,
    context::{ClassicContext, ClassicEffect},
    event::{ClassicCommand, ClassicEvent, ClassicEventNote, ClassicWrite, EventReason, WriteTarget},
    immediate::decide_immediate,
    inventory::Inventory,
    labels::decide_node,
    negotiations::decide_negotiation,
    reconcile::{decide_claim, decide_source},
    settings::ClassicSettings,
    state::{Claims, NegotiationState, PodKnowledge, Stranger},
    topic::{Topic, next_in_turn},
};
use crate::decision_queue::DecisionQueue;

/// Negotiations that are answered in one step, and nodes that are labelled. An answer takes some milliseconds, during
/// which events wait.
const ANSWERS_IN_A_STEP: usize = 1;

/// The controller of one driver.
#[derive(Debug)]
pub(crate) struct ClassicCore {
    pub(super) settings: ClassicSettings,
    pub(super) is_synced: bool,
    pub(super) claims: Claims,
    /// Claims that are not known although a source has a grant for them, by UID.
    pub(super) strangers: BTreeMap<String, Stranger>,
    pub(super) negotiations: BTreeMap<ObjectKey, NegotiationState>,
    /// The negotiations that a claim matters to, by claim.
    pub(super) interested: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    pub(super) catalogue: Catalogue,
    pub(super) inventory: Inventory,
    pub(super) queue: DecisionQueue<Topic>,
    /// The namespace whose negotiation was answered last.
    last_asker: String,
    pub(super) writes: InFlightWrites<WriteTarget, ClassicWrite>,
    pub(super) commands: Vec<ClassicCommand>,
}

impl ClassicCore {
    pub(crate) fn new(settings: ClassicSettings) -> Self {
        Self {
            is_synced: false,
            claims: Claims::default(),
            strangers: BTreeMap::new(),
            negotiations: BTreeMap::new(),
            interested: BTreeMap::new(),
            catalogue: Catalogue::new(&settings.driver, settings.device_classes.clone()),
            inventory: Inventory::new(&settings.driver),
            queue: DecisionQueue::new(Topic::Refresh),
            last_asker: String::new(),
            writes: InFlightWrites::default(),
            commands: Vec::new(),
            settings,
        }
    }

    /// Handles an event and returns commands. Nothing is decided before the first lists are complete.
    pub(crate) fn step(&mut self, now: Duration, event: ClassicEvent) -> Vec<ClassicCommand> {
        self.queue.pass(now);
        self.take(event);
        let mut answers = 0;
        while self.is_synced
            && answers < ANSWERS_IN_A_STEP
            && let Some(topic) = next_in_turn(&mut self.queue, &mut self.last_asker)
        {
            answers += usize::from(topic.takes_long());
            match topic {
                Topic::Refresh => self.refresh(),
                Topic::Retry(key) => self.claim_changed(&key),
                topic => self.reconcile(&topic),
            }
        }
        if self.is_synced {
            self.commands.extend(self.queue.wake().map(ClassicCommand::WakeAt));
        }
        std::mem::take(&mut self.commands)
    }

    /// Decides about an object, carries out the effects, and writes the object if it can be written now.
    fn reconcile(&mut self, topic: &Topic) {
        let mut cx = ClassicContext {
            settings: &self.settings,
            claims: &self.claims,
            strangers: &self.strangers,
            negotiations: &self.negotiations,
            catalogue: &self.catalogue,
            inventory: &self.inventory,
            now: self.queue.now,
            effects: Vec::new(),
        };
        let write = match topic {
            Topic::Claim(key) => decide_claim(&mut cx, key),
            Topic::Source(name) => decide_source(&mut cx, name),
            Topic::Node(name) => decide_node(&cx, name),
            Topic::Context(key) | Topic::Waiting(key) => decide_negotiation(&mut cx, key),
            Topic::Immediate(key) => {
                decide_immediate(&mut cx, key);
                None
            }
            Topic::Retry(_) | Topic::Refresh => None,
        };
        let effects = cx.effects;
        effects.into_iter().for_each(|effect| self.apply(effect));
        let Some(write) = write else { return };
        let target = write.target();
        match self.writes.readiness(&target, self.queue.now) {
            WriteReadiness::Ready => {
                self.writes.begin(target, write.clone());
                self.commands.push(ClassicCommand::Write(write));
            }
            WriteReadiness::After(pause) => self.queue.after(pause, target.into()),
            // The outcome of the write in flight queues the object again.
            WriteReadiness::InFlight => {}
        }
    }

    fn apply(&mut self, effect: ClassicEffect) {
        let now = self.queue.now;
        match effect {
            ClassicEffect::Decide(topic) => self.queue.now(topic),
            ClassicEffect::DecideAfter(delay, topic) => self.queue.after(delay, topic),
            ClassicEffect::ReadPod(key) => {
                self.change_negotiation(&key, |state| state.pod = PodKnowledge::Asked);
                self.commands.push(ClassicCommand::FetchPod(key));
            }
            ClassicEffect::UsePod(key) => self.change_negotiation(&key, |state| {
                if let PodKnowledge::Known { is_fresh, .. } = &mut state.pod {
                    *is_fresh = false;
                }
            }),
            ClassicEffect::Prefer(key, since) => {
                self.change_negotiation(&key, |state| state.preferred_since = Some(since))
            }
            ClassicEffect::Answer(key, entries) => self.change_negotiation(&key, |state| state.answer = Some(entries)),
            ClassicEffect::FindClaim(key, uid) => {
                self.strangers.insert(uid.clone(), Stranger::Sought);
                self.commands.push(ClassicCommand::FindClaim(key, uid));
            }
            ClassicEffect::Record(key, reason, message) => self.record(&key, reason, message),
            ClassicEffect::Searched { claim, is_cut_short } => {
                let pause = self.claims.get_mut(&claim).and_then(|state| state.searched(now, is_cut_short));
                pause.into_iter().for_each(|pause| self.queue.after(pause, Topic::Retry(claim.clone())));
            }
            ClassicEffect::Allocate(key, pending) => {
                if let Some(state) = self.claims.get_mut(&key) {
                    state.pending = Some(pending);
                    self.claim_changed(&key);
                }
            }
            ClassicEffect::Refuse { claim, node, message } => self.refuse(&claim, &node, &message),
        }
    }

    fn change_negotiation(&mut self, key: &ObjectKey, change: impl FnOnce(&mut NegotiationState)) {
        if let Some(state) = self.negotiations.get_mut(key) {
            change(state);
        }
    }

    /// Records an Event on a claim once, until the claim is allocated. Events that say why the claim waits are limited.
    pub(super) fn record(&mut self, key: &ObjectKey, reason: EventReason, message: String) {
        let now = self.queue.now;
        let Some(state) = self.claims.get_mut(key) else { return };
        if (reason != EventReason::Waiting || state.may_tell_waiting(now)) && state.is_first(&message) {
            let (claim, uid) = (key.clone(), state.claim.uid.clone());
            self.commands.push(ClassicCommand::Tell(ClassicEventNote { claim, uid, reason, message }));
        }
    }

    fn refresh(&mut self) {
        self.queue.refreshed();
        self.negotiations.keys().for_each(|key| self.queue.now(Topic::Waiting(key.clone())));
        let waiting = self.claims.iter().filter(|state| state.claim.allocation.is_none());
        waiting.for_each(|state| self.queue.now(Topic::Claim(state.claim.key.clone())));
    }
}
