//! News of objects: the state that follows, and the topics that are decided about again.

use std::{collections::BTreeSet, time::Duration};

use hostler_api::{ObjectKey, classic::deletion_protection};
use hostler_cluster::is_older;

use super::{
    core::ClassicCore,
    event::{ClassicEvent, EventReason, WriteTarget},
    holdings::HoldingChange,
    inventory::SourceNews,
    model::{ClassicClaim, DeviceSource, PodFacts, SchedulingContext},
    state::{NegotiationState, PodKnowledge, Stranger},
    topic::Topic,
};
use crate::decision_queue::SHORTEST_REFRESH;

impl ClassicCore {
    pub(super) fn take(&mut self, event: ClassicEvent) {
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

    fn claim_seen(&mut self, claim: ClassicClaim) {
        let key = claim.key.clone();
        if claim.is_deleting && claim.finalizers.is_empty() {
            // No finalizer keeps the claim any more. The object that a write returned is the last that the server tells
            // of it.
            return self.claim_gone(&key, &claim.uid);
        }
        let known = self.claims.get(&key).map(|state| (state.claim.uid.clone(), state.claim.version.clone()));
        match known {
            Some((uid, version)) if uid == claim.uid && is_older(&claim.version, &version) => return,
            Some((uid, _)) if uid != claim.uid => self.claim_gone(&key, &uid),
            _ => {}
        }
        let is_kept = claim.finalizers.contains(&deletion_protection(&self.settings.driver));
        let is_allocated = claim.is_allocated_by(&self.settings.driver);
        let unreadable = claim.allocation.as_ref().and_then(|it| it.devices.as_ref().err()).cloned();
        let state = self.claims.insert(claim, is_kept);
        if state.claim.is_over() || state.claim.allocation.is_some() {
            state.pending = None;
        }
        match unreadable.filter(|_| is_allocated) {
            None if is_allocated => state.is_well(),
            None => {}
            Some(error) => {
                let message = format!("{error}; what NodeHardware says was given counts until the claim is made anew");
                self.record(&key, EventReason::Failed, message);
            }
        }
        self.writes.object_changed(&WriteTarget::Claim(key.clone()));
        self.claim_changed(&key);
    }

    pub(super) fn claim_gone(&mut self, key: &ObjectKey, uid: &str) {
        if !self.claims.remove(key, uid) {
            return;
        }
        self.writes.object_gone(&WriteTarget::Claim(key.clone()));
        let mut sources = self.inventory.want_nothing(uid);
        sources.extend(self.inventory.written().sources(uid).cloned());
        if self.inventory.written().sources(uid).next().is_some() {
            self.strangers.insert(uid.to_owned(), Stranger::Gone);
        }
        self.hold_granted(uid);
        sources.into_iter().for_each(|source| self.queue.now(Topic::Source(source)));
        self.decide_about_negotiations_of(key);
    }

    /// Derives from a claim the devices that it holds and the grants that sources should have.
    pub(super) fn claim_changed(&mut self, key: &ObjectKey) {
        let Some(state) = self.claims.get(key) else { return };
        let claim = &state.claim;
        let (holds, wants) = state.devices(&self.settings.driver, self.inventory.granted(&claim.uid));
        let mut sources = self.inventory.want(claim, &wants);
        sources.extend(self.inventory.written().sources(&claim.uid).cloned());
        let change = self.inventory.hold(&claim.uid, holds);
        self.holding_changed(change);
        sources.into_iter().for_each(|source| self.queue.now(Topic::Source(source)));
        self.queue.now(Topic::Claim(key.clone()));
        self.decide_about_negotiations_of(key);
    }

    fn decide_about_negotiations_of(&mut self, claim: &ObjectKey) {
        for negotiation in self.interested.get(claim).into_iter().flatten() {
            self.queue.now(Topic::Context(negotiation.clone()));
        }
    }

    /// A claim that is not known holds the devices that sources have granted to it.
    fn hold_granted(&mut self, uid: &str) {
        let devices = self.inventory.granted(uid);
        let change = self.inventory.hold(uid, devices);
        self.holding_changed(change);
    }

    /// Answers waiting negotiations again: at once if a device became free.
    fn holding_changed(&mut self, change: HoldingChange) {
        match change {
            HoldingChange::None => {}
            HoldingChange::Taken => self.queue.inventory_changed(),
            HoldingChange::Freed => self.queue.gained(Duration::ZERO),
        }
    }

    /// Withdraws an allocation that is not written yet.
    pub(super) fn withdraw(&mut self, key: &ObjectKey) {
        // The allocation may be in the claim already; the answer to the write tells.
        if self.is_allocating(key) {
            return;
        }
        if self.claims.get_mut(key).and_then(|state| state.pending.take()).is_some() {
            self.claim_changed(key);
        }
    }

    /// Leaves a node out for a claim for a while; the negotiation says so in the same step.
    pub(super) fn refuse(&mut self, key: &ObjectKey, node: &str, message: &str) {
        let now = self.queue.now;
        let Some(state) = self.claims.get_mut(key) else { return };
        let pause = state.refusals.add(now, node, message);
        self.queue.after(pause, Topic::Retry(key.clone()));
        self.record(key, EventReason::Failed, format!("failed to allocate for node {node}: {message}"));
        self.withdraw(key);
        self.claim_changed(key);
    }

    /// Handles the search for an unknown claim: it is gone for good, or will come as an event.
    fn claim_found(&mut self, uid: String, found: &Result<bool, String>) {
        if self.strangers.remove(&uid) != Some(Stranger::Sought) {
            return;
        }
        let topics = self.inventory.written().sources(&uid).cloned().map(Topic::Source);
        if *found == Ok(false) {
            topics.for_each(|topic| self.queue.now(topic));
            self.strangers.insert(uid, Stranger::Gone);
        } else {
            topics.for_each(|topic| self.queue.after(SHORTEST_REFRESH, topic));
        }
    }

    fn context_seen(&mut self, key: ObjectKey, context: SchedulingContext) {
        let known = self.negotiations.get(&key).map(|state| &state.context);
        let known = known.map(|known| (known.uid.clone(), known.version.clone()));
        match known {
            Some((uid, version)) if uid == context.uid && is_older(&context.version, &version) => return,
            Some((uid, _)) if uid != context.uid => self.context_gone(&key, &uid),
            _ => {}
        }
        self.writes.object_changed(&WriteTarget::Context(key.clone()));
        let Some(state) = self.negotiations.get_mut(&key) else {
            self.negotiations.insert(key.clone(), NegotiationState::new(context));
            return self.queue.now(Topic::Context(key));
        };
        let asks_the_same =
            (&state.context.selected, &state.context.potential) == (&context.selected, &context.potential);
        let is_answered = state.answer.as_ref().is_some_and(|answer| context.has_entries(answer));
        if state.context.potential != context.potential {
            state.preferred_since = None;
        }
        state.context = context;
        if !asks_the_same {
            state.pod = PodKnowledge::Unknown;
        }
        if !asks_the_same || !is_answered {
            self.queue.now(Topic::Context(key));
        }
    }

    fn context_gone(&mut self, key: &ObjectKey, uid: &str) {
        if self.negotiations.get(key).is_none_or(|state| state.context.uid != uid) {
            return;
        }
        self.negotiations.remove(key);
        self.writes.object_gone(&WriteTarget::Context(key.clone()));
        self.interested.retain(|_, negotiations| {
            negotiations.remove(key);
            !negotiations.is_empty()
        });
        let claims = self
            .claims
            .keys(|state| state.pending.as_ref().is_some_and(|pending| pending.negotiation.as_ref() == Some(key)));
        claims.iter().for_each(|claim| self.withdraw(claim));
    }

    fn pod_seen(&mut self, key: ObjectKey, pod: Result<Option<PodFacts>, String>) {
        let Some(state) = self.negotiations.get_mut(&key) else { return };
        let Ok(facts) = pod else {
            state.pod = PodKnowledge::Unknown;
            return self.queue.after(SHORTEST_REFRESH, Topic::Context(key));
        };
        for name in facts.iter().flat_map(|facts| &facts.claims).filter_map(|claim| claim.claim.as_ref()) {
            self.interested.entry(ObjectKey::new(&key.namespace, name)).or_default().insert(key.clone());
        }
        state.pod = PodKnowledge::Known { facts, is_fresh: true };
        self.queue.now(Topic::Context(key));
    }

    /// Answers waiting negotiations again at once if there is news: there may be devices for them.
    fn gained_if(&mut self, is_news: bool) {
        if is_news {
            self.queue.gained(Duration::ZERO);
        }
    }

    fn catalogue_changed(&mut self, is_news: bool) {
        self.gained_if(is_news);
        if is_news {
            self.decide_about_nodes();
        }
    }

    fn node_changed(&mut self, name: String, is_news: bool) {
        self.gained_if(is_news);
        if is_news {
            self.queue.now(Topic::Node(name));
        }
    }

    /// Queues the labels of all nodes: the classes that decide over them have changed.
    fn decide_about_nodes(&mut self) {
        self.inventory.nodes().for_each(|node| self.queue.now(Topic::Node(node.to_owned())));
    }

    fn synced(&mut self) {
        self.is_synced = true;
        // Claims may have been seen before the sources that offer their devices.
        self.claims.keys(|_| true).iter().for_each(|key| self.claim_changed(key));
        self.negotiations.keys().for_each(|key| self.queue.now(Topic::Context(key.clone())));
        self.inventory.source_names().for_each(|name| self.queue.now(Topic::Source(name.clone())));
        self.decide_about_nodes();
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
        let claims = self.claims.keys(|state| {
            let devices = state.claim.allocation.iter().filter_map(|allocation| allocation.devices.as_ref().ok());
            devices.flatten().any(|device| pools.contains(&device.pool))
        });
        claims.iter().for_each(|key| self.claim_changed(key));
    }

    fn source_gone(&mut self, name: &str) {
        self.withdraw_from(name);
        let (is_news, concerned) = self.inventory.remove_source(name);
        self.after_source(name, concerned, is_news);
    }

    fn after_source(&mut self, name: &str, concerned: BTreeSet<String>, is_news: bool) {
        self.gained_if(is_news);
        self.writes.object_changed(&WriteTarget::Source(name.to_owned()));
        self.queue.now(Topic::Source(name.to_owned()));
        for uid in concerned {
            if self.inventory.written().sources(&uid).next().is_none() {
                self.strangers.remove(&uid);
            }
            match self.claims.with_uid(&uid).map(|state| state.claim.key.clone()) {
                Some(key) => self.claim_changed(&key),
                None => self.hold_granted(&uid),
            }
        }
    }

    /// Withdraws allocations that the source does not confirm: other claims may have the chosen devices by now. This
    /// holds also if the source was not asked for the grant yet, and if it still has an earlier grant of the claim.
    fn withdraw_from(&mut self, source: &str) {
        let claims = self.claims.keys(|state| {
            let mut chosen = state.chosen().iter().filter(|it| self.inventory.source_of(it) == Some(source));
            chosen.any(|device| !self.inventory.is_given(source, &state.claim.uid, device))
        });
        claims.iter().for_each(|key| self.withdraw(key));
    }
}
