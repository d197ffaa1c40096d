//! Owns what is known of claims, negotiations, classes and devices, and decides what is written. Fed by one task, read by
//! nobody else; holds no clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_allocator::plan::ObjectKey;
use hostler_api::{
    classic::{ClassicConsumer, ClassicVersion, deletion_protection},
    resource::DeviceClass,
};

use super::{
    agenda::{Agenda, Topic},
    catalogue::Catalogue,
    event::{ClassicCommand, ClassicEvent, ClassicNotice, NoticeReason, WriteTarget},
    inventory::Inventory,
    model::DeviceSource,
    state::{ClaimState, ContextState},
    writes::WriteState,
};

/// Negotiations that are answered in one step, so that nobody waits long for the next one.
const CONTEXTS_IN_A_STEP: usize = 16;

/// What does not change.
#[derive(Clone, Debug)]
pub(crate) struct ClassicSettings {
    /// The version of the API.
    pub(crate) version: ClassicVersion,
    /// The driver that allocates.
    pub(crate) driver: String,
    /// Device classes of hostler's deployment.
    pub(crate) device_classes: Vec<DeviceClass>,
    /// Whether a claim is reserved for the pod that it is allocated for; else the scheduler does it.
    pub(crate) reserves_for_pods: bool,
}

/// The controller of one driver.
#[derive(Debug)]
pub(crate) struct ClassicCore {
    pub(super) settings: ClassicSettings,
    pub(super) finalizer: String,
    is_synced: bool,
    pub(super) claims: BTreeMap<ObjectKey, ClaimState>,
    pub(super) uids: BTreeMap<String, ObjectKey>,
    /// Claims that are gone, and of which a source still says that they were given something.
    pub(super) gone: BTreeSet<String>,
    pub(super) contexts: BTreeMap<ObjectKey, ContextState>,
    /// By claim: the negotiations that it matters to.
    pub(super) interested: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    pub(super) catalogue: Catalogue,
    pub(super) inventory: Inventory,
    pub(super) agenda: Agenda,
    pub(super) writes: BTreeMap<WriteTarget, WriteState>,
    pub(super) commands: Vec<ClassicCommand>,
}

impl ClassicCore {
    pub(crate) fn new(settings: ClassicSettings) -> Self {
        Self {
            finalizer: deletion_protection(&settings.driver),
            is_synced: false,
            claims: BTreeMap::new(),
            uids: BTreeMap::new(),
            gone: BTreeSet::new(),
            contexts: BTreeMap::new(),
            interested: BTreeMap::new(),
            catalogue: Catalogue::new(&settings.driver, settings.device_classes.clone()),
            inventory: Inventory::new(&settings.driver),
            agenda: Agenda::default(),
            writes: BTreeMap::new(),
            commands: Vec::new(),
            settings,
        }
    }

    /// Something happened; says what is to be done. Nothing is decided before everything has been told.
    pub(crate) fn step(&mut self, now: Duration, event: ClassicEvent) -> Vec<ClassicCommand> {
        self.agenda.pass(now);
        self.take(event);
        if self.is_synced {
            self.settle();
        }
        std::mem::take(&mut self.commands)
    }

    fn settle(&mut self) {
        let mut contexts = 0;
        while contexts < CONTEXTS_IN_A_STEP
            && let Some(topic) = self.agenda.pop()
        {
            match topic {
                Topic::Claim(key) => self.settle_claim(&key),
                Topic::Source(name) => self.settle_source(&name),
                Topic::Refresh => self.refresh(),
                Topic::Retry(key) => self.claim_changed(&key),
                Topic::Context(key) => {
                    contexts += 1;
                    self.settle_context(&key);
                }
            }
        }
        self.commands.extend(self.agenda.wake().map(ClassicCommand::WakeAt));
    }

    fn refresh(&mut self) {
        self.agenda.refreshed();
        self.contexts.keys().for_each(|key| self.agenda.now(Topic::Context(key.clone())));
        let waiting = self.claims.values().filter(|state| state.claim.allocation.is_none());
        waiting.for_each(|state| self.agenda.now(Topic::Claim(state.claim.key.clone())));
    }

    fn take(&mut self, event: ClassicEvent) {
        match event {
            ClassicEvent::Claim(claim) => self.claim_seen(*claim),
            ClassicEvent::ClaimGone(key, uid) => self.claim_gone(&key, &uid),
            ClassicEvent::Class(class) => {
                let is_news = self.catalogue.set_class(class.name.clone(), Some(*class));
                self.look_again_if(is_news);
            }
            ClassicEvent::ClassGone(name) => {
                let is_news = self.catalogue.set_class(name, None);
                self.look_again_if(is_news);
            }
            ClassicEvent::Parameters(key, parameters) => {
                let is_news = self.catalogue.set_parameters(key, Some(parameters));
                self.look_again_if(is_news);
            }
            ClassicEvent::ParametersGone(key) => {
                let is_news = self.catalogue.set_parameters(key, None);
                self.look_again_if(is_news);
            }
            ClassicEvent::Node(name, labels) => {
                let is_news = self.inventory.set_node(name, Some(labels));
                self.look_again_if(is_news);
            }
            ClassicEvent::NodeGone(name) => {
                let is_news = self.inventory.set_node(name, None);
                self.look_again_if(is_news);
            }
            ClassicEvent::Source(source) => self.source_seen(*source),
            ClassicEvent::SourceGone(name) => self.source_gone(&name),
            ClassicEvent::Context(key, context) => self.context_seen(key, *context),
            ClassicEvent::ContextGone(key, uid) => self.context_gone(&key, &uid),
            ClassicEvent::Pod(key, pod) => self.pod_seen(key, pod),
            ClassicEvent::Synced => self.synced(),
            ClassicEvent::Written(target, outcome) => self.written(target, outcome),
            ClassicEvent::Tick => {}
        }
    }

    /// Whoever waits for devices is answered anew, soon.
    pub(super) fn look_again_if(&mut self, is_news: bool) {
        if is_news {
            self.agenda.inventory_changed();
        }
    }

    fn synced(&mut self) {
        self.is_synced = true;
        self.claims.keys().for_each(|key| self.agenda.now(Topic::Claim(key.clone())));
        self.contexts.keys().for_each(|key| self.agenda.now(Topic::Context(key.clone())));
        let sources: Vec<String> = self.inventory.source_names().cloned().collect();
        sources.into_iter().for_each(|name| self.agenda.now(Topic::Source(name)));
    }

    fn source_seen(&mut self, source: DeviceSource) {
        let before = self.inventory.source(&source.name).cloned();
        if before.as_ref().is_some_and(|before| is_older(&source.version, &before.version)) {
            return;
        }
        let name = source.name.clone();
        let concerned = self.inventory.concerned_by(before.as_ref(), Some(&source));
        if before.is_some() && concerned.iter().any(|uid| self.is_foreign_grant(&source, uid)) {
            self.withdraw_from(&name);
        }
        let is_news = self.inventory.set_source(source);
        self.after_source(&name, concerned, is_news);
    }

    fn source_gone(&mut self, name: &str) {
        self.withdraw_from(name);
        let gone = self.inventory.remove_source(name);
        let concerned = self.inventory.concerned_by(gone.as_ref(), None);
        self.after_source(name, concerned, gone.is_some());
    }

    fn after_source(&mut self, name: &str, concerned: BTreeSet<String>, is_news: bool) {
        self.look_again_if(is_news);
        self.came_anew(&WriteTarget::Source(name.to_owned()));
        self.agenda.now(Topic::Source(name.to_owned()));
        for uid in concerned {
            self.gone.retain(|gone| *gone != uid || self.inventory.granted_by(gone).next().is_some());
            match self.uids.get(&uid).cloned() {
                Some(key) => self.claim_changed(&key),
                None => {
                    let devices = self.inventory.granted(&uid);
                    let is_news = self.inventory.hold(&uid, devices);
                    self.look_again_if(is_news);
                }
            }
        }
    }

    /// Whether somebody else has given this claim something of the source.
    fn is_foreign_grant(&self, source: &DeviceSource, uid: &str) -> bool {
        let grant = source.grants.get(uid);
        grant.is_some() && self.inventory.wanted_of(&source.name).find(|(of, _)| *of == uid).map(|(_, it)| it) != grant
    }

    /// What the source has may be somebody else's by now: whoever has no grant yet begins anew.
    fn withdraw_from(&mut self, source: &str) {
        let granted = |uid: &str| self.inventory.granted_by(uid).any(|by| by == source);
        let uids = self.inventory.wanted_of(source).map(|(uid, _)| uid).filter(|uid| !granted(uid));
        let keys: Vec<ObjectKey> = uids.filter_map(|uid| self.uids.get(uid).cloned()).collect();
        keys.iter().for_each(|key| self.withdraw(key));
    }

    /// Says it once, until the claim is allocated.
    pub(super) fn tell(&mut self, key: &ObjectKey, reason: NoticeReason, message: impl Into<String>) {
        let message = message.into();
        let Some(state) = self.claims.get_mut(key) else { return };
        if state.is_first_word(&message) {
            let (claim, uid) = (key.clone(), state.claim.uid.clone());
            self.commands.push(ClassicCommand::Tell(ClassicNotice { claim, uid, reason, message }));
        }
    }
}

/// Versions are numbers that rise; where they are none, what comes later counts.
pub(super) fn is_older(version: &str, known: &str) -> bool {
    matches!((version.parse::<u64>(), known.parse::<u64>()), (Ok(version), Ok(known)) if version < known)
}

/// A pod as a consumer of a claim.
pub(super) fn consumer(pod: &ObjectKey, uid: &str) -> ClassicConsumer {
    ClassicConsumer::of_pod(&*pod.name, uid)
}
