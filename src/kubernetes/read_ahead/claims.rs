//! The claims that are read ahead, and the progress of each. Pure but for the channel that ends the wait for a read.
//!
//! ```text
//!   (wanted) ──► waiting ──► under way ──┬─► read ──► spent        every state: forgotten when its pod is gone, ends,
//!                   │            │       └─► spent                 begins to run, or is not known any more
//!                   └────────────┴── asked for meanwhile ──► spent
//! ```

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{Allocation, ClaimRef, ClaimUid, ObjectKey};
use tokio::sync::watch;

use crate::pods::{NodePod, PodClaim, PodsOfNode};

/// More than a kubelet has pods, of which few wait at the same time. What is beyond is read when it is asked for.
const MOST: usize = 512;

/// A read that is to be made.
#[derive(Debug)]
pub(super) struct AheadRead {
    pub claim: ObjectKey,
    /// UID of the pod that it was made for.
    pub pod: String,
    /// Dropped when what was found can be taken.
    _done_tx: watch::Sender<()>,
}

/// Answer to a call for a claim.
#[derive(Debug)]
pub(super) enum AheadAnswer {
    /// The allocation of the claim.
    Read(Allocation),
    /// A read is under way: the allocation is there when the other side of this is dropped, or not.
    UnderWay(watch::Receiver<()>),
    /// Nothing: it has to be read.
    Nothing,
}

impl AheadAnswer {
    pub(super) fn into_allocation(self) -> Option<Allocation> {
        match self {
            Self::Read(allocation) => Some(allocation),
            Self::UnderWay(_) | Self::Nothing => None,
        }
    }
}

#[derive(Debug)]
enum AheadState {
    Waiting,
    UnderWay(watch::Receiver<()>),
    Read(ClaimUid, Allocation),
    /// The read was used, or is of no use. Kept so that the claim is not read again for the same pod.
    Spent,
}

#[derive(Debug)]
struct AheadClaim {
    /// UID of the pod that it was made for.
    pod: String,
    state: AheadState,
}

/// The claims that are read ahead.
#[derive(Debug, Default)]
pub(super) struct AheadClaims(BTreeMap<ObjectKey, AheadClaim>);

/// The claims that were made for pods that wait to be started, with the UIDs of these pods. A claim that another pod
/// names as well is left out.
pub(super) fn wanted(pods: &PodsOfNode) -> BTreeMap<ObjectKey, String> {
    // What is stale may be wrong, and what is read may be a claim of another pod by then.
    let PodsOfNode::Known(pods) = pods else { return BTreeMap::new() };
    let own = pods.values().filter(|pod| waits(pod)).flat_map(|pod| {
        let generated = pod.claims.values().filter_map(|claim| match claim {
            PodClaim::Generated(Some(name)) => Some(name),
            PodClaim::Generated(None) | PodClaim::Named(_) | PodClaim::Nothing => None,
        });
        generated.map(|name| (claim_name(pod, name), pod.uid.clone()))
    });
    let mut own: BTreeMap<ObjectKey, String> = own.collect();
    let named = pods.values().flat_map(|pod| {
        let named = pod.claims.values().filter_map(|claim| match claim {
            PodClaim::Named(name) => Some(name),
            PodClaim::Generated(_) | PodClaim::Nothing => None,
        });
        named.map(|name| claim_name(pod, name))
    });
    let named: BTreeSet<ObjectKey> = named.collect();
    own.retain(|claim, _| !named.contains(claim));
    own
}

fn claim_name(pod: &NodePod, name: &str) -> ObjectKey {
    ObjectKey { namespace: pod.name.namespace.clone(), name: name.to_owned() }
}

/// True if the kubelet will still ask for the pod's claims. Before a container starts, it has asked.
fn waits(pod: &NodePod) -> bool {
    let has_started = pod.containers.iter().any(|container| container.runtime_id.is_some());
    !pod.ended && !pod.deleting && !has_started
}

impl AheadClaims {
    /// These are wanted from now on, and no others.
    pub(super) fn want(&mut self, wanted: &BTreeMap<ObjectKey, String>) {
        self.0.retain(|claim, ahead| wanted.get(claim) == Some(&ahead.pod));
        for (claim, pod) in wanted {
            if self.0.len() >= MOST {
                break;
            }
            let new = || AheadClaim { pod: pod.clone(), state: AheadState::Waiting };
            self.0.entry(claim.clone()).or_insert_with(new);
        }
    }

    /// The next read to make, which is under way then.
    pub(super) fn begin_next(&mut self) -> Option<AheadRead> {
        let waits = |(_, ahead): &(&ObjectKey, &mut AheadClaim)| matches!(ahead.state, AheadState::Waiting);
        let (claim, ahead) = self.0.iter_mut().find(waits)?;
        let (done_tx, done_rx) = watch::channel(());
        ahead.state = AheadState::UnderWay(done_rx);
        Some(AheadRead { claim: claim.clone(), pod: ahead.pod.clone(), _done_tx: done_tx })
    }

    /// A read is over; `found` is what may be believed. What was forgotten meanwhile, or asked for in vain, is not
    /// kept.
    pub(super) fn finish(&mut self, read: &AheadRead, found: Option<(ClaimUid, Allocation)>) -> bool {
        let is_it = |ahead: &&mut AheadClaim| ahead.pod == read.pod && matches!(ahead.state, AheadState::UnderWay(_));
        let Some(ahead) = self.0.get_mut(&read.claim).filter(is_it) else { return false };
        let is_kept = found.is_some();
        ahead.state = found.map_or(AheadState::Spent, |(uid, allocation)| AheadState::Read(uid, allocation));
        is_kept
    }

    /// Takes the read of a claim for a call. A read serves one call, and one that was not begun will not be.
    pub(super) fn take(&mut self, claim: &ClaimRef) -> AheadAnswer {
        match self.state(claim) {
            Some(AheadState::UnderWay(done_rx)) => AheadAnswer::UnderWay(done_rx.clone()),
            Some(_) => self.give_up(claim),
            None => AheadAnswer::Nothing,
        }
    }

    /// As [`take`](Self::take), for a call that waits no longer.
    pub(super) fn give_up(&mut self, claim: &ClaimRef) -> AheadAnswer {
        let Some(state) = self.state(claim) else { return AheadAnswer::Nothing };
        match std::mem::replace(state, AheadState::Spent) {
            AheadState::Read(uid, allocation) if uid == claim.uid => AheadAnswer::Read(allocation),
            _ => AheadAnswer::Nothing,
        }
    }

    fn state(&mut self, claim: &ClaimRef) -> Option<&mut AheadState> {
        let name = ObjectKey { namespace: claim.namespace.clone(), name: claim.name.clone() };
        Some(&mut self.0.get_mut(&name)?.state)
    }
}

#[cfg(test)]
mod tests;
