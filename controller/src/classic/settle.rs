//! The next step of each claim, and of the grants of sources.

use std::collections::BTreeMap;

use hostler_api::{ObjectKey, hardware::NodeGrant, resource::DeviceRequestAllocationResult};
use hostler_cluster::is_older;
use hostler_reconcile::WriteOutcome;

use super::{
    core::ClassicCore,
    event::{ClassicCommand, ClassicWrite, NoticeReason, WriteTarget, WrittenClaim},
    model::{ClaimWish, ClassicClaim},
    state::{ClaimState, Stranger},
    topic::Topic,
};
use crate::decision_queue::SHORTEST_REFRESH;

/// The next step of a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ClaimStep {
    Rest,
    AddFinalizer,
    AwaitGrant,
    Allocate,
    Deallocate,
    RemoveFinalizer,
}

impl ClassicCore {
    pub(super) fn claim_seen(&mut self, claim: ClassicClaim) {
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
        self.uids.insert(claim.uid.clone(), key.clone());
        let is_over = claim.is_deleting || claim.is_deallocation_requested || claim.allocation.is_some();
        let is_allocated = claim.allocation.as_ref().is_some_and(|it| it.by == self.settings.driver);
        let state = self.claims.entry(key.clone()).or_insert_with(|| ClaimState::new(claim.clone()));
        state.claim = claim;
        if is_over {
            state.pending = None;
        }
        let unreadable = state.claim.allocation.as_ref().and_then(|it| it.devices.as_ref().err()).cloned();
        if is_allocated && unreadable.is_none() {
            state.is_well();
        }
        if let Some(error) = unreadable.filter(|_| is_allocated) {
            let message = format!("{error}; what NodeHardware says was given counts until the claim is made anew");
            self.tell(&key, NoticeReason::Failed, message);
        }
        self.writes.object_changed(&WriteTarget::Claim(key.clone()));
        self.claim_changed(&key);
    }

    pub(super) fn claim_gone(&mut self, key: &ObjectKey, uid: &str) {
        if self.claims.get(key).is_none_or(|state| state.claim.uid != uid) {
            return;
        }
        self.claims.remove(key);
        self.uids.remove(uid);
        self.writes.object_gone(&WriteTarget::Claim(key.clone()));
        let mut sources = self.inventory.want_nothing(uid);
        sources.extend(self.inventory.written().sources(uid).cloned());
        if self.inventory.written().sources(uid).next().is_some() {
            self.strangers.insert(uid.to_owned(), Stranger::Gone);
        }
        let granted = self.inventory.granted(uid);
        let change = self.inventory.hold(uid, granted);
        self.holding_changed(change);
        sources.into_iter().for_each(|source| self.queue.now(Topic::Source(source)));
        self.look_at_contexts_of(key);
    }

    /// Derives from a claim the devices that it holds and the grants that sources should have.
    pub(super) fn claim_changed(&mut self, key: &ObjectKey) {
        let Some(state) = self.claims.get(key) else { return };
        let (holds, wants) = self.devices_of(state);
        let claim = &state.claim;
        let mut sources = self.inventory.want(claim, &wants);
        sources.extend(self.inventory.written().sources(&claim.uid).cloned());
        let change = self.inventory.hold(&claim.uid, holds);
        self.holding_changed(change);
        sources.into_iter().for_each(|source| self.queue.now(Topic::Source(source)));
        self.queue.now(Topic::Claim(key.clone()));
        self.look_at_contexts_of(key);
    }

    fn look_at_contexts_of(&mut self, claim: &ObjectKey) {
        for context in self.interested.get(claim).into_iter().flatten() {
            self.queue.now(Topic::Context(context.clone()));
        }
    }

    /// Returns the devices that a claim holds, and the devices that sources should have granted to it. A claim holds
    /// its own devices, chosen or allocated, and those of earlier grants: no other claim gets these before the sources
    /// have dropped the grants.
    fn devices_of(
        &self,
        state: &ClaimState,
    ) -> (Vec<DeviceRequestAllocationResult>, Vec<DeviceRequestAllocationResult>) {
        let granted = self.inventory.granted(&state.claim.uid);
        let (has, is_wanted) = match (&state.claim.allocation, &state.pending) {
            (Some(allocation), _) => {
                let devices = allocation.devices.clone().unwrap_or_else(|_| granted.clone());
                (devices, allocation.by == self.settings.driver)
            }
            (None, Some(pending)) => (pending.new.result.devices.results.clone(), self.has_finalizer(&state.claim)),
            (None, None) => (Vec::new(), false),
        };
        let names = |one: &DeviceRequestAllocationResult, other: &DeviceRequestAllocationResult| {
            (&one.driver, &one.pool, &one.device, &one.share_id)
                == (&other.driver, &other.pool, &other.device, &other.share_id)
        };
        let earlier = granted.into_iter().filter(|it| !has.iter().any(|has| names(has, it)));
        let holds = has.iter().cloned().chain(earlier).collect();
        (holds, if is_wanted { has } else { Vec::new() })
    }

    pub(super) fn has_finalizer(&self, claim: &ClassicClaim) -> bool {
        claim.finalizers.contains(&self.finalizer)
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

    fn next_step(&self, state: &ClaimState) -> ClaimStep {
        let claim = &state.claim;
        let is_kept = self.has_finalizer(claim);
        let is_over = claim.is_deleting || claim.is_deallocation_requested;
        let is_ours = claim.allocation.as_ref().is_some_and(|it| it.by == self.settings.driver);
        // An allocation that came out without our name is taken back, with the one consumer that was written with it.
        if is_kept && state.has_vanished && claim.allocation.is_some() && claim.consumers.len() <= 1 {
            return ClaimStep::Deallocate;
        }
        if !claim.consumers.is_empty() {
            let is_bare = is_ours && !is_kept && !claim.is_deleting;
            return if is_bare { ClaimStep::AddFinalizer } else { ClaimStep::Rest };
        }
        let is_aborted = claim.is_deallocation_requested && claim.allocation.is_none();
        if is_kept && is_aborted || is_ours && is_over {
            return ClaimStep::Deallocate;
        }
        if is_ours {
            return if is_kept { ClaimStep::Rest } else { ClaimStep::AddFinalizer };
        }
        match &state.pending {
            Some(_) if !is_kept => ClaimStep::AddFinalizer,
            Some(pending) if self.inventory.is_granted(&claim.uid, &pending.new.result.devices.results) => {
                ClaimStep::Allocate
            }
            Some(_) => ClaimStep::AwaitGrant,
            // Nothing is in flight: neither a write of ours nor a rest of an earlier run.
            None if is_kept => ClaimStep::RemoveFinalizer,
            None => ClaimStep::Rest,
        }
    }

    pub(super) fn settle_claim(&mut self, key: &ObjectKey) {
        let Some(state) = self.claims.get(key) else { return };
        let step = self.next_step(state);
        if step == ClaimStep::Rest {
            if matches!(state.claim.wish, ClaimWish::Class { is_immediate: true, .. }) {
                self.queue.now(Topic::Immediate(key.clone()));
            }
            return;
        }
        let target = WriteTarget::Claim(key.clone());
        if step == ClaimStep::AwaitGrant || !self.can_write(&target, Topic::Claim(key.clone())) {
            return;
        }
        if let Some(write) = self.claim_write(key, step) {
            self.write(write);
        }
    }

    fn claim_write(&self, key: &ObjectKey, step: ClaimStep) -> Option<ClassicWrite> {
        let state = self.claims.get(key)?;
        let ClassicClaim { uid, version, finalizers, .. } = &state.claim;
        let written = WrittenClaim { key: key.clone(), uid: uid.clone(), version: version.clone() };
        let others = finalizers.iter().filter(|finalizer| **finalizer != self.finalizer).cloned();
        match step {
            ClaimStep::Rest | ClaimStep::AwaitGrant => None,
            ClaimStep::AddFinalizer => {
                Some(ClassicWrite::Finalizers(written, others.chain([self.finalizer.clone()]).collect()))
            }
            ClaimStep::RemoveFinalizer => Some(ClassicWrite::Finalizers(written, others.collect())),
            ClaimStep::Deallocate => Some(ClassicWrite::Deallocation(written)),
            ClaimStep::Allocate => {
                let pending = state.pending.as_ref()?;
                Some(ClassicWrite::Allocation(written, Box::new(pending.new.clone())))
            }
        }
    }

    pub(super) fn claim_written(&mut self, key: &ObjectKey, write: Option<ClassicWrite>, outcome: WriteOutcome) {
        let target = WriteTarget::Claim(key.clone());
        match (outcome, write) {
            (WriteOutcome::Done | WriteOutcome::Gone, _) => {}
            (WriteOutcome::Conflict, write) => self.try_again_if_newer(&target, write.as_ref()),
            (WriteOutcome::Dropped(fields), _) => {
                self.writes.object_changed(&target);
                self.has_vanished(key, &fields);
            }
            (WriteOutcome::Refused(message), Some(ClassicWrite::Allocation(_, new))) => {
                self.writes.object_changed(&target);
                self.was_refused(key, &new.node, &message);
            }
            (WriteOutcome::Refused(message), _) => {
                self.tell(
                    key,
                    NoticeReason::Failed,
                    format!("the API server refused a change of the claim: {message}"),
                );
            }
            (WriteOutcome::Failed(message) | WriteOutcome::Forbidden(message), _) => {
                self.tell(key, NoticeReason::Failed, format!("failed to change the claim: {message}"));
            }
        }
    }

    fn has_vanished(&mut self, key: &ObjectKey, fields: &str) {
        let Some(state) = self.claims.get_mut(key) else { return };
        state.has_vanished = true;
        state.pending = None;
        let message = format!(
            "the API server let {fields} fall: classic allocation by a controller is switched off there; turn on the \
             feature gate DRAControlPlaneController, then make the claim anew"
        );
        self.tell(key, NoticeReason::Failed, message);
        self.claim_changed(key);
    }

    /// Notes a node as unsuitable for a while; the negotiation says so in the same step.
    pub(super) fn was_refused(&mut self, key: &ObjectKey, node: &str, message: &str) {
        let now = self.queue.now;
        let Some(state) = self.claims.get_mut(key) else { return };
        let pause = state.refusals.add(now, node, message);
        self.queue.after(pause, Topic::Retry(key.clone()));
        self.tell(key, NoticeReason::Failed, format!("failed to allocate for node {node}: {message}"));
        self.withdraw(key);
        self.claim_changed(key);
    }

    /// Records an Event on claims that wait for their grants.
    pub(super) fn grants_failed(&mut self, source: &str, write: Option<ClassicWrite>, message: &str) {
        let Some(ClassicWrite::Grants { grants, .. }) = write else { return };
        let claims: Vec<ObjectKey> = grants.keys().filter_map(|uid| self.uids.get(uid).cloned()).collect();
        for claim in claims {
            let message = format!("failed to write into NodeHardware {source} what the claim is given: {message}");
            self.tell(&claim, NoticeReason::Failed, message);
        }
    }

    /// Writes the grants that a source should have.
    pub(super) fn settle_source(&mut self, name: &str) {
        let Some(version) = self.inventory.source_version(name).cloned() else { return };
        let missing = self.inventory.missing_grants(name).into_iter();
        let mut grants: BTreeMap<String, Option<NodeGrant>> = missing.map(|(uid, grant)| (uid, Some(grant))).collect();
        for (uid, grant) in self.inventory.spare_grants(name) {
            if self.can_release(&uid, &grant) {
                grants.insert(uid, None);
            }
        }
        if !grants.is_empty() && self.can_write(&WriteTarget::Source(name.to_owned()), Topic::Source(name.to_owned())) {
            self.write(ClassicWrite::Grants { source: name.to_owned(), version, grants });
        }
    }

    /// Returns true if a grant can be dropped: the claim is gone, or has another version than the one that the grant is
    /// for. A controller that grants for a version allocates that version or none, and that version had our finalizer.
    fn can_release(&mut self, uid: &str, grant: &NodeGrant) -> bool {
        if let Some(state) = self.uids.get(uid).and_then(|key| self.claims.get(key)) {
            let ClassicClaim { version, allocation, .. } = &state.claim;
            if !self.has_finalizer(&state.claim) {
                return !is_older(version, &grant.claim_version);
            }
            // The claim has, or shall have, other devices. A claim without any loses the finalizer first.
            return (allocation.is_some() || state.pending.is_some()) && is_older(&grant.claim_version, version);
        }
        if !self.strangers.contains_key(uid) {
            self.strangers.insert(uid.to_owned(), Stranger::Sought);
            let key = ObjectKey::new(&grant.namespace, &grant.name);
            self.commands.push(ClassicCommand::FindClaim(key, uid.to_owned()));
        }
        self.strangers.get(uid) == Some(&Stranger::Gone)
    }

    /// Handles the search for an unknown claim: it is gone for good, or will come as an event.
    pub(super) fn claim_found(&mut self, uid: String, found: &Result<bool, String>) {
        if self.strangers.remove(&uid) != Some(Stranger::Sought) {
            return;
        }
        let sources: Vec<String> = self.inventory.written().sources(&uid).cloned().collect();
        let topics = sources.into_iter().map(Topic::Source);
        if *found == Ok(false) {
            self.strangers.insert(uid, Stranger::Gone);
            topics.for_each(|topic| self.queue.now(topic));
        } else {
            topics.for_each(|topic| self.queue.after(SHORTEST_REFRESH, topic));
        }
    }

    /// Returns true if the claim could be allocated: it has no allocation, and is not being deleted or released.
    pub(super) fn is_waiting(&self, state: &ClaimState) -> bool {
        let claim = &state.claim;
        claim.allocation.is_none() && !claim.is_deleting && !claim.is_deallocation_requested && !state.has_vanished
    }

    /// Returns true if the claim is being allocated or cleaned up.
    pub(super) fn is_busy(&self, state: &ClaimState) -> bool {
        state.pending.is_some() || self.has_finalizer(&state.claim)
    }
}
