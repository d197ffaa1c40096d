//! Decides the next write of each claim, and of the grants of sources.

use std::collections::BTreeMap;

use hostler_api::{ObjectKey, classic::deletion_protection, hardware::NodeGrant};
use hostler_cluster::is_older;

use super::{
    context::{ClassicContext, ClassicEffect},
    event::ClassicWrite,
    model::{ClaimContent, ClassicClaim},
    state::{ClaimState, Stranger},
    topic::Topic,
};
use crate::claim_write::ClaimVersion;

/// The next step of a claim.
enum ClaimStep {
    Rest,
    AddFinalizer,
    AwaitGrant,
    Allocate,
    Deallocate,
    RemoveFinalizer,
}

/// Decides the next write of a claim.
pub(super) fn decide_claim(cx: &mut ClassicContext<'_>, key: &ObjectKey) -> Option<ClassicWrite> {
    let state = cx.claims.get(key)?;
    let ClassicClaim { uid, version, finalizers, content, .. } = &state.claim;
    let written = ClaimVersion { key: key.clone(), uid: uid.clone(), version: version.clone() };
    let ours = deletion_protection(&cx.settings.driver);
    let others = finalizers.iter().filter(|finalizer| **finalizer != ours).cloned();
    match next_step(cx, state) {
        ClaimStep::Rest => {
            if matches!(content, ClaimContent::Class { is_immediate: true, .. }) {
                cx.push(ClassicEffect::Decide(Topic::Immediate(key.clone())));
            }
            None
        }
        ClaimStep::AwaitGrant => None,
        ClaimStep::AddFinalizer => Some(ClassicWrite::Finalizers(written, others.chain([ours.clone()]).collect())),
        ClaimStep::RemoveFinalizer => Some(ClassicWrite::Finalizers(written, others.collect())),
        ClaimStep::Deallocate => Some(ClassicWrite::Deallocation(written)),
        ClaimStep::Allocate => {
            let pending = state.pending.as_ref()?;
            Some(ClassicWrite::Allocation(written, Box::new(pending.new.clone())))
        }
    }
}

fn next_step(cx: &ClassicContext<'_>, state: &ClaimState) -> ClaimStep {
    let ClaimState { claim, is_kept, .. } = state;
    let is_ours = claim.is_allocated_by(&cx.settings.driver);
    // An allocation that came out without our name is taken back, with the one consumer that was written with it.
    if *is_kept && state.has_vanished && claim.allocation.is_some() && claim.consumers.len() <= 1 {
        return ClaimStep::Deallocate;
    }
    if !claim.consumers.is_empty() {
        let is_bare = is_ours && !is_kept && !claim.is_deleting;
        return if is_bare { ClaimStep::AddFinalizer } else { ClaimStep::Rest };
    }
    let is_aborted = claim.is_deallocation_requested && claim.allocation.is_none();
    if *is_kept && is_aborted || is_ours && claim.is_over() {
        return ClaimStep::Deallocate;
    }
    if is_ours {
        return if *is_kept { ClaimStep::Rest } else { ClaimStep::AddFinalizer };
    }
    match &state.pending {
        Some(_) if !is_kept => ClaimStep::AddFinalizer,
        Some(_) if cx.inventory.is_granted(&claim.uid, state.chosen()) => ClaimStep::Allocate,
        Some(_) => ClaimStep::AwaitGrant,
        // Nothing is in flight: neither a write of ours nor a rest of an earlier run.
        None if *is_kept => ClaimStep::RemoveFinalizer,
        None => ClaimStep::Rest,
    }
}

/// Decides which grants of a source change.
pub(super) fn decide_source(cx: &mut ClassicContext<'_>, name: &str) -> Option<ClassicWrite> {
    let version = cx.inventory.source_version(name)?.clone();
    let missing = cx.inventory.missing_grants(name).into_iter();
    let mut grants: BTreeMap<String, Option<NodeGrant>> = missing.map(|(uid, grant)| (uid, Some(grant))).collect();
    for (uid, grant) in cx.inventory.spare_grants(name) {
        if can_release(cx, &uid, &grant) {
            grants.insert(uid, None);
        }
    }
    (!grants.is_empty()).then(|| ClassicWrite::Grants { source: name.to_owned(), version, grants })
}

/// Returns true if a grant can be dropped: the claim is gone, or has another version than the one that the grant is
/// for. A controller that grants for a version allocates that version or none, and that version had our finalizer.
fn can_release(cx: &mut ClassicContext<'_>, uid: &str, grant: &NodeGrant) -> bool {
    if let Some(state) = cx.claims.with_uid(uid) {
        let ClassicClaim { version, allocation, .. } = &state.claim;
        if !state.is_kept {
            return !is_older(version, &grant.claim_version);
        }
        // The claim has, or shall have, other devices. A claim without any loses the finalizer first.
        return (allocation.is_some() || state.pending.is_some()) && is_older(&grant.claim_version, version);
    }
    let stranger = cx.strangers.get(uid);
    if stranger.is_none() {
        cx.push(ClassicEffect::FindClaim(ObjectKey::new(&grant.namespace, &grant.name), uid.to_owned()));
    }
    stranger == Some(&Stranger::Gone)
}
