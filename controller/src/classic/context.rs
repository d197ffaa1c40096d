//! Negotiations about the node of a pod (PodSchedulingContext): which nodes are unsuitable, and allocation where a node
//! was selected.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::{
    Doubling, ObjectKey,
    classic::{ClassicConsumer, ClassicVersion, HandleData, HandleError, MAX_SCHEDULING_NODES, ParametersMistake},
    few,
};
use hostler_cluster::is_older;

use super::{
    core::{ClassicCore, consumer},
    event::{ClassicCommand, ClassicWrite, NewAllocation, NoticeReason, WriteTarget},
    fit::{ClaimFit, NodeVerdict, Question, Unfit, prefer_extras},
    model::{NodeAccess, PodFacts, SchedulingContext, UnsuitableNodes},
    state::{ContextState, PendingAllocation, PodKnowledge},
    terms::ClaimTerms,
    topic::Topic,
};
use crate::decision_queue::SHORTEST_REFRESH;

/// Time for which nodes with fewer optional devices are reported as unsuitable. The scheduler tries a pod again after
/// 10 s at most; it cannot use a node that it has not selected by then.
const PREFERRED_FOR: Duration = Duration::from_secs(30);
/// Pauses between two tries of claims whose search takes too many steps: each is twice the last.
const CUT_PAUSES: Doubling = Doubling::new(Duration::from_secs(10), Duration::from_secs(600));

/// The claims of a pod that are ours to allocate.
#[derive(Debug, Default)]
pub(super) struct AskedClaims {
    /// The claims, with the names that the pod has for each of them.
    pub(super) waiting: Vec<(Vec<String>, ObjectKey)>,
    /// The terms of each of these claims.
    pub(super) terms: Vec<ClaimTerms>,
    /// Entries of claims that need no entry any more.
    pub(super) kept: UnsuitableNodes,
    /// True if one of the claims is being written or cleaned up.
    pub(super) is_busy: bool,
}

pub(super) type Verdicts = BTreeMap<String, NodeVerdict>;

impl ClassicCore {
    pub(super) fn context_seen(&mut self, key: ObjectKey, context: SchedulingContext) {
        let known = self.contexts.get(&key).map(|state| &state.context);
        let known = known.map(|known| (known.uid.clone(), known.version.clone()));
        match known {
            Some((uid, version)) if uid == context.uid && is_older(&context.version, &version) => return,
            Some((uid, _)) if uid != context.uid => self.context_gone(&key, &uid),
            _ => {}
        }
        self.writes.object_changed(&WriteTarget::Context(key.clone()));
        let Some(state) = self.contexts.get_mut(&key) else {
            let state = ContextState { context, pod: PodKnowledge::Unknown, answer: None, preferred_since: None };
            self.contexts.insert(key.clone(), state);
            return self.queue.now(Topic::Context(key));
        };
        let asks_the_same =
            (&state.context.selected, &state.context.potential) == (&context.selected, &context.potential);
        let is_answered = state.answer.as_ref().is_some_and(|answer| says(&context.entries, answer));
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

    pub(super) fn context_gone(&mut self, key: &ObjectKey, uid: &str) {
        if self.contexts.get(key).is_none_or(|state| state.context.uid != uid) {
            return;
        }
        self.contexts.remove(key);
        self.writes.object_gone(&WriteTarget::Context(key.clone()));
        self.interested.retain(|_, contexts| {
            contexts.remove(key);
            !contexts.is_empty()
        });
        let is_for = |pending: &PendingAllocation| pending.context.as_ref() == Some(key);
        let claims = self.claims.values().filter(|state| state.pending.as_ref().is_some_and(is_for));
        let claims: Vec<ObjectKey> = claims.map(|state| state.claim.key.clone()).collect();
        claims.iter().for_each(|claim| self.withdraw(claim));
    }

    pub(super) fn pod_seen(&mut self, key: ObjectKey, pod: Result<Option<PodFacts>, String>) {
        let Some(state) = self.contexts.get_mut(&key) else { return };
        let Ok(facts) = pod else {
            state.pod = PodKnowledge::Unknown;
            return self.queue.after(SHORTEST_REFRESH, Topic::Context(key));
        };
        let names = facts.iter().flat_map(|facts| &facts.claims).filter_map(|claim| claim.claim.as_ref());
        let claims: Vec<ObjectKey> = names.map(|name| ObjectKey::new(&key.namespace, name)).collect();
        state.pod = PodKnowledge::Known { facts, is_fresh: true };
        for claim in claims {
            self.interested.entry(claim).or_default().insert(key.clone());
        }
        self.queue.now(Topic::Context(key));
    }

    fn ask_for_pod(&mut self, key: &ObjectKey) {
        let Some(state) = self.contexts.get_mut(key).filter(|state| state.pod != PodKnowledge::Asked) else { return };
        state.pod = PodKnowledge::Asked;
        self.commands.push(ClassicCommand::FetchPod(key.clone()));
    }

    /// Answers a negotiation.
    pub(super) fn settle_context(&mut self, key: &ObjectKey) {
        let Some(facts) = self.pod_of(key) else { return };
        match self.asked_claims(key, &facts) {
            Err(mistakes) => {
                for (claim, mistake) in mistakes {
                    self.tell(&claim, NoticeReason::Failed, mistake.to_string());
                }
            }
            Ok(asked) if asked.is_busy || asked.waiting.is_empty() => {}
            Ok(asked) => self.answer(key, &facts, &asked),
        }
    }

    /// Returns the pod of a negotiation that needs an answer; asks for the pod if it is not known.
    fn pod_of(&mut self, key: &ObjectKey) -> Option<PodFacts> {
        let ContextState { context, pod, .. } = self.contexts.get(key)?;
        if context.is_deleting || (context.selected.is_none() && context.potential.is_empty()) {
            return None;
        }
        match pod {
            PodKnowledge::Asked => None,
            PodKnowledge::Known { facts, .. } => {
                facts.clone().filter(|pod| !pod.is_deleting && context.owner.as_deref() == Some(&*pod.uid))
            }
            PodKnowledge::Unknown => {
                self.ask_for_pod(key);
                None
            }
        }
    }

    fn asked_claims(
        &self,
        key: &ObjectKey,
        pod: &PodFacts,
    ) -> Result<AskedClaims, Vec<(ObjectKey, ParametersMistake)>> {
        let mut asked = AskedClaims::default();
        let mut mistakes = Vec::new();
        let entries = self.contexts.get(key).map(|state| &state.context.entries);
        for (pod_claim, name) in pod.claims.iter().filter_map(|it| Some((it, it.claim.as_ref()?))) {
            let claim = ObjectKey::new(&key.namespace, name);
            let Some(state) = self.claims.get(&claim) else { continue };
            let is_of_pod = !pod_claim.is_made || state.claim.owner.as_deref() == Some(&*pod.uid);
            if !is_of_pod || !self.catalogue.is_ours(&state.claim) {
                continue;
            }
            if !self.is_waiting(state) {
                let entry = entries.and_then(|entries| entries.get_key_value(&pod_claim.name));
                asked.kept.extend(entry.map(|(name, nodes)| (name.clone(), nodes.clone())));
                continue;
            }
            if let Some((names, _)) = asked.waiting.iter_mut().find(|(_, known)| *known == claim) {
                names.push(pod_claim.name.clone());
                continue;
            }
            asked.is_busy |= self.is_busy(state);
            match self.catalogue.terms(&state.claim) {
                Ok(terms) => {
                    asked.waiting.push((vec![pod_claim.name.clone()], claim));
                    asked.terms.push(terms);
                }
                Err(mistake) => mistakes.push((claim, mistake)),
            }
        }
        if mistakes.is_empty() { Ok(asked) } else { Err(mistakes) }
    }

    fn answer(&mut self, key: &ObjectKey, pod: &PodFacts, asked: &AskedClaims) {
        let Some(context) = self.contexts.get(key).map(|state| state.context.clone()) else { return };
        let nodes = self.nodes_to_check(&context, asked);
        let Some(mut verdicts) = self.verdicts(asked, &nodes.iter().map(String::as_str)) else { return };
        self.prefer_extras(key, &context, &mut verdicts);
        let selected = context.selected.as_ref().and_then(|node| Some((node, verdicts.get(node)?.as_ref().ok()?)));
        match selected {
            Some((node, fits)) if self.is_pod_fresh(key) => self.start(key, pod, asked, node, fits),
            Some(_) => self.ask_for_pod(key),
            None => {
                self.say_who_waits(&context, asked, &verdicts);
                let mut entries = unsuitable(&context, asked, &verdicts);
                entries.extend(asked.kept.clone());
                self.publish(key, &context, entries);
            }
        }
    }

    /// Steers the scheduler to nodes with more optional devices, for a while: only the scheduler knows whether it can
    /// use them.
    fn prefer_extras(&mut self, key: &ObjectKey, context: &SchedulingContext, verdicts: &mut Verdicts) {
        let now = self.queue.now;
        let since = self.contexts.get(key).and_then(|state| state.preferred_since).unwrap_or(now);
        let left = (since + PREFERRED_FOR).saturating_sub(now);
        let takes_pods = |node: &&String| self.inventory.node(node).is_some_and(|it| it.access != NodeAccess::Closed);
        let candidates = context.potential.iter().chain(&context.selected).filter(takes_pods);
        if left.is_zero() || !prefer_extras(verdicts, candidates) {
            return;
        }
        if let Some(state) = self.contexts.get_mut(key) {
            state.preferred_since = Some(since);
        }
        self.queue.after(left, Topic::Context(key.clone()));
    }

    /// Returns the nodes that the scheduler asks about, and those that were reported as unsuitable before.
    fn nodes_to_check(&self, context: &SchedulingContext, asked: &AskedClaims) -> BTreeSet<String> {
        let earlier =
            asked.waiting.iter().flat_map(|(names, _)| names).filter_map(|name| context.entries.get(name)).flatten();
        let earlier = earlier.filter(|node| self.inventory.labels(node).is_some());
        context.potential.iter().chain(&context.selected).chain(earlier).cloned().collect()
    }

    /// Checks all of the claims together on each node. Where every node fails for the same reason, an Event on the
    /// claims tells why.
    pub(super) fn verdicts<'n>(
        &mut self,
        asked: &AskedClaims,
        nodes: &(impl Iterator<Item = &'n str> + Clone),
    ) -> Option<Verdicts> {
        if self.is_left_alone(asked) {
            return None;
        }
        self.catalogue.prepare_allocator();
        let is_cut_short = Cell::new(false);
        let asked_of = |terms| -> Option<Result<Verdicts, String>> {
            let needs_devices = self.settings.needs_devices;
            let question = Question::new(self.catalogue.allocator()?, &self.inventory, terms, needs_devices);
            let answer = question.ask(nodes.clone()).map_err(|fatal| fatal.to_string());
            is_cut_short.set(is_cut_short.get() || question.is_cut_short());
            Some(answer)
        };
        match asked_of(&asked.terms)? {
            Ok(mut verdicts) => {
                self.add_refusals(asked, &mut verdicts);
                self.looked_at(asked, is_cut_short.get());
                Some(verdicts)
            }
            Err(all) => {
                let alone = asked.terms.iter().map(|terms| asked_of(std::slice::from_ref(terms)));
                let wrong: Vec<Option<String>> = alone.map(|verdicts| verdicts?.err()).collect();
                let is_together = wrong.iter().all(Option::is_none);
                for ((_, claim), fatal) in asked.waiting.iter().zip(wrong) {
                    if let Some(message) = fatal.or_else(|| is_together.then(|| all.clone())) {
                        self.tell(claim, NoticeReason::Failed, message);
                    }
                }
                None
            }
        }
    }

    /// Returns true if the search for one of the claims was cut short lately: other claims have their turn first.
    fn is_left_alone(&self, asked: &AskedClaims) -> bool {
        let mut pauses = asked.waiting.iter().filter_map(|(_, claim)| self.claims.get(claim)?.cut_short);
        pauses.any(|(_, until)| until > self.queue.now)
    }

    /// Notes a search; the pause doubles each time that it was cut short.
    fn looked_at(&mut self, asked: &AskedClaims, is_cut_short: bool) {
        for (_, claim) in &asked.waiting {
            let Some(state) = self.claims.get_mut(claim) else { continue };
            let pause = CUT_PAUSES.next(state.cut_short.map(|(pause, _)| pause));
            state.cut_short = is_cut_short.then(|| (pause, self.queue.now + pause));
            if is_cut_short {
                self.queue.after(pause, Topic::Retry(claim.clone()));
            }
        }
    }

    fn add_refusals(&self, asked: &AskedClaims, verdicts: &mut Verdicts) {
        for (at, (_, claim)) in asked.waiting.iter().enumerate() {
            let Some(state) = self.claims.get(claim) else { continue };
            for (node, reason) in state.refusals.nodes(self.queue.now) {
                let Some(verdict) = verdicts.get_mut(node) else { continue };
                match verdict {
                    Ok(_) => *verdict = Err(Unfit { claims: BTreeSet::from([at]), reason: reason.clone() }),
                    Err(unfit) => drop(unfit.claims.insert(at)),
                }
            }
        }
    }

    fn is_pod_fresh(&self, key: &ObjectKey) -> bool {
        let pod = self.contexts.get(key).map(|state| &state.pod);
        matches!(pod, Some(PodKnowledge::Known { is_fresh: true, .. }))
    }

    /// Begins to allocate all claims on the node that the scheduler selected.
    fn start(&mut self, key: &ObjectKey, pod: &PodFacts, asked: &AskedClaims, node: &str, fits: &[ClaimFit]) {
        if let Some(PodKnowledge::Known { is_fresh, .. }) = self.contexts.get_mut(key).map(|state| &mut state.pod) {
            *is_fresh = false;
        }
        let consumer = self.settings.reserves_for_pods.then(|| consumer(key, &pod.uid));
        let allocations = asked.waiting.iter().zip(&asked.terms).zip(fits);
        let mut started = Vec::new();
        for (((_, claim), terms), fit) in allocations {
            let new = new_allocation(node, terms, fit, consumer.clone());
            if let Err(error) = self.check_handle(node, fit) {
                return self.was_refused(claim, node, &error.to_string());
            }
            started.push((claim.clone(), PendingAllocation { new, context: Some(key.clone()) }));
        }
        for (claim, pending) in started {
            self.start_one(&claim, pending);
        }
    }

    /// Checks that the result fits into the handle for the node. In 1.31 the configuration has a field of its own.
    pub(super) fn check_handle(&self, node: &str, fit: &ClaimFit) -> Result<(), HandleError> {
        let mut devices = fit.result.devices.clone();
        if self.settings.version == ClassicVersion::V1Alpha3 {
            devices.config.clear();
        }
        HandleData::new(node, devices, fit.absent.clone()).to_text().map(drop)
    }

    pub(super) fn start_one(&mut self, claim: &ObjectKey, pending: PendingAllocation) {
        if let Some(state) = self.claims.get_mut(claim) {
            state.pending = Some(pending);
            self.claim_changed(claim);
        }
    }

    /// Writes the unsuitable nodes of every waiting claim, unless the negotiation has them already.
    fn publish(&mut self, key: &ObjectKey, context: &SchedulingContext, entries: UnsuitableNodes) {
        let is_said = says(&context.entries, &entries);
        let target = WriteTarget::Context(key.clone());
        if let Some(state) = self.contexts.get_mut(key) {
            state.answer = Some(entries.clone());
        }
        if !is_said && self.can_write(&target, Topic::Context(key.clone())) {
            self.write(ClassicWrite::Unsuitable { key: key.clone(), uid: context.uid.clone(), entries });
        }
    }

    /// Records an Event that says why a pod fits on no node.
    fn say_who_waits(&mut self, context: &SchedulingContext, asked: &AskedClaims, verdicts: &Verdicts) {
        let nodes: BTreeSet<&String> = context.potential.iter().chain(&context.selected).collect();
        let unfit: Vec<&Unfit> = nodes.iter().filter_map(|node| verdicts.get(*node)?.as_ref().err()).collect();
        let Some(first) = unfit.first().filter(|_| unfit.len() == nodes.len()) else { return };
        let message = format!("no node will do, not {}: {}", few(&nodes), first.reason);
        for at in first.claims.clone() {
            self.tell_waiting(&asked.waiting[at].1, &message);
        }
    }

    pub(super) fn tell_waiting(&mut self, claim: &ObjectKey, message: &str) {
        let now = self.queue.now;
        if self.claims.get_mut(claim).is_some_and(|state| state.may_tell_waiting(now)) {
            self.tell(claim, NoticeReason::Waiting, message);
        }
    }
}

pub(super) fn new_allocation(
    node: &str,
    terms: &ClaimTerms,
    fit: &ClaimFit,
    consumer: Option<ClassicConsumer>,
) -> NewAllocation {
    NewAllocation {
        node: node.to_owned(),
        result: fit.result.clone(),
        absent: fit.absent.clone(),
        is_shareable: terms.is_shareable,
        consumers: consumer.into_iter().collect(),
    }
}

/// Returns true if the entries contain ours already; entries of others do not matter.
fn says(entries: &UnsuitableNodes, ours: &UnsuitableNodes) -> bool {
    ours.iter().all(|(name, nodes)| entries.get(name) == Some(nodes))
}

/// Returns the unsuitable nodes of each waiting claim. A list that is too long loses the nodes that matter least.
fn unsuitable(context: &SchedulingContext, asked: &AskedClaims, verdicts: &Verdicts) -> UnsuitableNodes {
    let is_unsuitable = |at: usize, node: &String| {
        verdicts.get(node).and_then(|verdict| verdict.as_ref().err()).is_some_and(|unfit| unfit.claims.contains(&at))
    };
    let entries = |(at, (names, _)): (usize, &(Vec<String>, ObjectKey))| {
        let asked_about = context.selected.iter().chain(&context.potential);
        let mut nodes = BTreeSet::new();
        for node in asked_about.chain(verdicts.keys()).filter(|node| is_unsuitable(at, node)) {
            if nodes.len() < MAX_SCHEDULING_NODES {
                nodes.insert(node.clone());
            }
        }
        names.iter().map(|name| (name.clone(), nodes.clone())).collect::<Vec<_>>()
    };
    asked.waiting.iter().enumerate().flat_map(entries).collect()
}
