//! Owns the state of claims, negotiations, classes and devices, and decides what is written. One task feeds it; no
//! other part reads it; it holds no clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::{
    ObjectKey,
    classic::{ClassicConsumer, ClassicVersion, deletion_protection},
    resource::DeviceClass,
};
use hostler_cluster::is_older;
use hostler_reconcile::InFlightWrites;

use super::{
    catalogue::Catalogue,
    event::{ClassicCommand, ClassicEvent, ClassicEventNote, ClassicWrite, NoticeReason, WriteTarget},
    holdings::HoldingChange,
    inventory::{Inventory, SourceNews},
    model::DeviceSource,
    state::{ClaimState, ContextState, Stranger},
    topic::{Topic, next_in_turn},
};
use crate::decision_queue::DecisionQueue;

/// Negotiations that are answered in one step, and nodes that are labelled. An answer takes some milliseconds, during
/// which events wait.
const ANSWERS_IN_A_STEP: usize = 1;

/// Settings that do not change during a term.
#[derive(Clone, Debug)]
pub(crate) struct ClassicSettings {
    /// The version of the API.
    pub(crate) version: ClassicVersion,
    /// The driver that allocates.
    pub(crate) driver: String,
    /// Device classes of hostler's deployment.
    pub(crate) device_classes: Vec<DeviceClass>,
    /// True if a claim is reserved for the pod that it is allocated for; else the scheduler reserves it.
    pub(crate) reserves_for_pods: bool,
    /// True if kubelets refuse a claim without devices, as those before 1.28 do.
    pub(crate) needs_devices: bool,
}

/// The controller of one driver.
#[derive(Debug)]
pub(crate) struct ClassicCore {
    pub(super) settings: ClassicSettings,
    pub(super) finalizer: String,
    is_synced: bool,
    pub(super) claims: BTreeMap<ObjectKey, ClaimState>,
    pub(super) uids: BTreeMap<String, ObjectKey>,
    /// Claims that are not known although a source has a grant for them, by UID.
    pub(super) strangers: BTreeMap<String, Stranger>,
    pub(super) contexts: BTreeMap<ObjectKey, ContextState>,
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
            finalizer: deletion_protection(&settings.driver),
            is_synced: false,
            claims: BTreeMap::new(),
            uids: BTreeMap::new(),
            strangers: BTreeMap::new(),
            contexts: BTreeMap::new(),
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
        if self.is_synced {
            self.settle();
        }
        std::mem::take(&mut self.commands)
    }

    fn settle(&mut self) {
        let mut answers = 0;
        while answers < ANSWERS_IN_A_STEP
            && let Some(topic) = next_in_turn(&mut self.queue, &mut self.last_asker)
        {
            match topic {
                Topic::Claim(key) => self.settle_claim(&key),
                Topic::Source(name) => self.settle_source(&name),
                Topic::Refresh => self.refresh(),
                Topic::Retry(key) => self.claim_changed(&key),
                Topic::Node(name) => {
                    answers += 1;
                    self.settle_node(&name);
                }
                Topic::Immediate(key) => {
                    answers += 1;
                    self.settle_immediate(&key);
                }
                Topic::Context(key) | Topic::Waiting(key) => {
                    answers += 1;
                    self.settle_context(&key);
                }
            }
        }
        self.commands.extend(self.queue.wake().map(ClassicCommand::WakeAt));
    }

    fn refresh(&mut self) {
        self.queue.refreshed();
        self.contexts.keys().for_each(|key| self.queue.now(Topic::Waiting(key.clone())));
        let waiting = self.claims.values().filter(|state| state.claim.allocation.is_none());
        waiting.for_each(|state| self.queue.now(Topic::Claim(state.claim.key.clone())));
    }

    fn take(&mut self, event: ClassicEvent) {
        match event {
            ClassicEvent::Claim(claim) => self.claim_seen(*claim),
            ClassicEvent::ClaimGone(key, uid) => self.claim_gone(&key, &uid),
            ClassicEvent::Class(class) => {
                let is_news = self.catalogue.set_class(class.name.clone(), Some(*class));
                self.catalogue_changed(is_news);
            }
            ClassicEvent::ClassGone(name) => {
                let is_news = self.catalogue.set_class(name, None);
                self.catalogue_changed(is_news);
            }
            ClassicEvent::Parameters(key, parameters) => {
                let is_news = self.catalogue.set_parameters(key, Some(parameters));
                self.catalogue_changed(is_news);
            }
            ClassicEvent::ParametersGone(key) => {
                let is_news = self.catalogue.set_parameters(key, None);
                self.catalogue_changed(is_news);
            }
            ClassicEvent::Node(name, state) => {
                let is_news = self.inventory.set_node(name.clone(), Some(*state));
                self.node_changed(name, is_news);
            }
            ClassicEvent::NodeGone(name) => {
                let is_news = self.inventory.set_node(name.clone(), None);
                self.writes.object_gone(&WriteTarget::Node(name.clone()));
                self.node_changed(name, is_news);
            }
            ClassicEvent::Source(source) => self.source_seen(*source),
            ClassicEvent::SourceGone(name) => self.source_gone(&name),
            ClassicEvent::Context(key, context) => self.context_seen(key, *context),
            ClassicEvent::ContextGone(key, uid) => self.context_gone(&key, &uid),
            ClassicEvent::Pod(key, pod) => self.pod_seen(key, pod),
            ClassicEvent::ClaimFound(uid, found) => self.claim_found(uid, &found),
            ClassicEvent::Synced => self.synced(),
            ClassicEvent::Written(target, outcome) => self.written(target, outcome),
            ClassicEvent::Tick => {}
        }
    }

    /// Answers waiting negotiations again at once if there is news: there may be devices for them.
    fn look_again_if(&mut self, is_news: bool) {
        if is_news {
            self.queue.gained(Duration::ZERO);
        }
    }

    /// Answers waiting negotiations again: at once if a device became free.
    pub(super) fn holding_changed(&mut self, change: HoldingChange) {
        match change {
            HoldingChange::None => {}
            HoldingChange::Taken => self.queue.inventory_changed(),
            HoldingChange::Freed => self.queue.gained(Duration::ZERO),
        }
    }

    fn catalogue_changed(&mut self, is_news: bool) {
        self.look_again_if(is_news);
        if is_news {
            self.look_at_nodes();
        }
    }

    fn node_changed(&mut self, name: String, is_news: bool) {
        self.look_again_if(is_news);
        if is_news {
            self.queue.now(Topic::Node(name));
        }
    }

    /// Queues the labels of all nodes: the classes that decide over them have changed.
    fn look_at_nodes(&mut self) {
        self.inventory.nodes().for_each(|node| self.queue.now(Topic::Node(node.to_owned())));
    }

    fn synced(&mut self) {
        self.is_synced = true;
        // Claims may have been seen before the sources that offer their devices.
        let claims: Vec<ObjectKey> = self.claims.keys().cloned().collect();
        claims.iter().for_each(|key| self.claim_changed(key));
        self.contexts.keys().for_each(|key| self.queue.now(Topic::Context(key.clone())));
        let sources: Vec<String> = self.inventory.source_names().cloned().collect();
        sources.into_iter().for_each(|name| self.queue.now(Topic::Source(name)));
        self.look_at_nodes();
    }

    fn source_seen(&mut self, source: DeviceSource) {
        let name = source.name.clone();
        if self.inventory.source_version(&name).is_some_and(|known| is_older(&source.version, known)) {
            return;
        }
        let node = source.node.clone();
        let is_given_by_others = self.inventory.is_given_by_others(&source);
        let SourceNews { is_news, concerned, pools } = self.inventory.set_source(source);
        if is_given_by_others {
            self.withdraw_from(&name);
        }
        if self.is_synced && !pools.is_empty() {
            self.grant_again(&pools);
        }
        self.after_source(&name, concerned, is_news);
        match node {
            Some(node) => self.node_changed(node, is_news),
            None => self.catalogue_changed(is_news),
        }
    }

    /// Queues claims with devices of pools that were not known before: the source may lack their grants.
    fn grant_again(&mut self, pools: &BTreeSet<String>) {
        let has_some = |state: &&ClaimState| {
            let devices = state.claim.allocation.iter().filter_map(|allocation| allocation.devices.as_ref().ok());
            devices.flatten().any(|device| pools.contains(&device.pool))
        };
        let keys: Vec<ObjectKey> = self.claims.values().filter(has_some).map(|state| state.claim.key.clone()).collect();
        keys.iter().for_each(|key| self.claim_changed(key));
    }

    fn source_gone(&mut self, name: &str) {
        self.withdraw_from(name);
        let (is_news, concerned) = self.inventory.remove_source(name);
        self.after_source(name, concerned, is_news);
    }

    fn after_source(&mut self, name: &str, concerned: BTreeSet<String>, is_news: bool) {
        self.look_again_if(is_news);
        self.writes.object_changed(&WriteTarget::Source(name.to_owned()));
        self.queue.now(Topic::Source(name.to_owned()));
        for uid in concerned {
            if self.inventory.written().sources(&uid).next().is_none() {
                self.strangers.remove(&uid);
            }
            match self.uids.get(&uid).cloned() {
                Some(key) => self.claim_changed(&key),
                None => {
                    let devices = self.inventory.granted(&uid);
                    let change = self.inventory.hold(&uid, devices);
                    self.holding_changed(change);
                }
            }
        }
    }

    /// Withdraws allocations that the source does not confirm: other claims may have the chosen devices by now. This
    /// holds also if the source was not asked for the grant yet, and if it still has an earlier grant of the claim.
    fn withdraw_from(&mut self, source: &str) {
        let lacks = |state: &&ClaimState| {
            let chosen = state.pending.iter().flat_map(|pending| &pending.new.result.devices.results);
            let mut chosen = chosen.filter(|device| self.inventory.source_of(device) == Some(source));
            chosen.any(|device| !self.inventory.is_given(source, &state.claim.uid, device))
        };
        let concerned = self.claims.values().filter(lacks);
        let keys: Vec<ObjectKey> = concerned.map(|state| state.claim.key.clone()).collect();
        keys.iter().for_each(|key| self.withdraw(key));
    }

    /// Records an Event on a claim once, until the claim is allocated.
    pub(super) fn tell(&mut self, key: &ObjectKey, reason: NoticeReason, message: impl Into<String>) {
        let message = message.into();
        let Some(state) = self.claims.get_mut(key) else { return };
        if state.is_first_word(&message) {
            let (claim, uid) = (key.clone(), state.claim.uid.clone());
            self.commands.push(ClassicCommand::Tell(ClassicEventNote { claim, uid, reason, message }));
        }
    }
}

/// Returns a pod as a consumer of a claim.
pub(super) fn consumer(pod: &ObjectKey, uid: &str) -> ClassicConsumer {
    ClassicConsumer::of_pod(&*pod.name, uid)
}
