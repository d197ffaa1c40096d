//! The release of claims: the asking pod is deleted first, then hostler's entry among the consumers, then the claim's
//! allocation, and then the claim.

use hostler_api::{few, resource::ResourceClaimConsumerReference};

use super::context::{ObservedClaim, ReservePod, SharedContext, SharedWrite};
use crate::claim_write::{ClaimWrite, DELETE_PROTECTION};

/// Takes all devices from a claim without users. One write takes the devices and hostler's entry, since the controller
/// of claims would not take devices for consumers that are no pods. The write comes before the claim is deleted, since
/// deletions wake no pod that waits for devices.
pub(super) fn cleared(claim: &ObservedClaim) -> SharedWrite {
    SharedWrite::Claim(ClaimWrite::Status(claim.written(), Box::default()))
}

pub(super) fn delete_pod(pod: &ReservePod) -> SharedWrite {
    SharedWrite::DeletePod(pod.metadata.key(), pod.metadata.version())
}

impl SharedContext {
    /// Returns the next write towards nothing being kept; `None` where others have to do something, or nothing is left.
    pub(super) fn release(&self) -> Option<SharedWrite> {
        let mut asking = self.pods.values().filter(|pod| pod.metadata.is_made_for(&self.name)).peekable();
        if asking.peek().is_some() {
            // As long as the pod exists, the scheduler can give it what is released.
            return asking.find(|pod| !pod.metadata.is_going()).map(delete_pod);
        }
        let mut claims = self.claims.values().filter(|claim| claim.metadata.is_made_for(&self.name));
        claims.find_map(|claim| self.release_of(claim))
    }

    /// Returns the next write towards the deletion of this claim.
    pub(super) fn release_of(&self, claim: &ObservedClaim) -> Option<SharedWrite> {
        let users = claim.users();
        if users.is_empty() {
            return self.release_of_unused(claim);
        }
        if claim.is_pinned() {
            let users: Vec<ResourceClaimConsumerReference> = users.into_iter().cloned().collect();
            return Some(SharedWrite::Claim(ClaimWrite::Consumers(claim.written(), users)));
        }
        // A claim that is being deleted gets no new consumers; its devices go with its last consumer.
        (!claim.metadata.is_going()).then(|| SharedWrite::Claim(ClaimWrite::Delete(claim.written())))
    }

    fn release_of_unused(&self, claim: &ObservedClaim) -> Option<SharedWrite> {
        if claim.is_allocated() || claim.is_pinned() {
            return Some(cleared(claim));
        }
        if claim.is_protected() {
            let others = claim.metadata.finalizers.iter().filter(|it| *it != DELETE_PROTECTION).cloned();
            return Some(SharedWrite::Claim(ClaimWrite::Finalizers(claim.written(), others.collect())));
        }
        (!claim.metadata.is_going()).then(|| SharedWrite::Claim(ClaimWrite::Delete(claim.written())))
    }

    /// Names what has to happen elsewhere before all claims are released.
    pub(super) fn waits_for(&self) -> Option<String> {
        let pods = self.pods.values().filter(|pod| pod.metadata.is_made_for(&self.name));
        let pods = pods.map(|pod| format!("Pod {} is being deleted", pod.metadata.key()));
        let claims = self.claims.values().filter(|claim| claim.metadata.is_made_for(&self.name));
        let claims = claims
            .map(|claim| format!("ResourceClaim {} is being deleted{}", claim.metadata.key(), self.used_by(claim)));
        let all: Vec<String> = pods.chain(claims).collect();
        (!all.is_empty()).then(|| few(&all))
    }

    /// Returns `, used by pod ml/train-0`, or nothing without users.
    pub(super) fn used_by(&self, claim: &ObservedClaim) -> String {
        let users: Vec<String> =
            claim.users().iter().map(|user| format!("pod {}/{}", claim.metadata.namespace, user.name)).collect();
        if users.is_empty() { String::new() } else { format!(", used by {}", few(&users)) }
    }
}
