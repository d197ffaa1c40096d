//! A new plan for a pod whose claims the scheduler has freed again (race 11): the next Reservation, under the next
//! name, leaves out the failed node. The Reservation names the former attempts, so the next leader goes on from there.

use std::time::Duration;

use hostler_api::{
    hardware::ConditionStatus,
    reservation::{ReservationConditionReason as Reason, ReservationConditionType as Type, ReservedDevice},
};
use hostler_cluster::since_1970;

use super::{
    attempt::Attempt,
    context::{DirectClaim, DirectContext, DirectPod, DirectStep},
    pinned::is_other,
    reserve::reserve,
    steps::finalizers,
};
use crate::{claim_write::DELETE_PROTECTION, reservation_object::ReservationObject};

/// A scheduler that frees all claims of a pod does so within a few tries, seconds apart.
const STUCK: Duration = Duration::from_secs(30);

impl DirectContext {
    /// Returns what is done where the scheduler has looked at the pod already; nothing else than before where it took
    /// nothing back.
    pub(super) fn step_of_ungated(
        &self,
        pod: &DirectPod,
        own: &ReservationObject,
        claims: &[(&String, &DirectClaim)],
    ) -> Option<DirectStep> {
        let attempt = Attempt::of(own);
        let theirs = self.claims_of(own);
        let devices: Vec<&ReservedDevice> = own.status.kept().collect();
        let left_out = match self.is_taken_back(own) {
            true => attempt.left_out_with(devices.iter().map(|it| &it.node_name).find(|it| !it.is_empty())),
            // The scheduler has given a claim other devices by itself, and goes on with the other claims.
            false if theirs.iter().any(|(name, claim)| is_other(claim, name, &devices)) => {
                return Some(DirectStep::Wait);
            }
            // No node is left without the failed ones: they are tried again.
            false if has_no_devices(own) && !attempt.left_out.is_empty() => Vec::new(),
            false => return None,
        };
        // The scheduler frees one claim after the other. A claim keeps the devices that it still has: the pod may be
        // bound at this moment.
        if theirs.iter().any(|(_, claim)| claim.is_allocated()) {
            return (!self.is_stuck(own)).then_some(DirectStep::Wait);
        }
        if self.now < own.created + attempt.pause() {
            return Some(DirectStep::Wait);
        }
        let bare = theirs.iter().find(|(_, claim)| !claim.metadata.finalizers.iter().any(|it| it == DELETE_PROTECTION));
        if let Some((_, claim)) = bare {
            return Some(finalizers(claim));
        }
        Some(reserve(pod, claims, &attempt.next(left_out, &theirs)))
    }

    /// True if the scheduler stopped long ago after freeing some of the claims: it finds no other node for which it
    /// would free the rest, so the claims get their devices again.
    fn is_stuck(&self, own: &ReservationObject) -> bool {
        let said = own.status.condition(Type::Placed).filter(|it| it.reason == Reason::TakenBack.as_str());
        let since = said.and_then(|it| since_1970(&it.last_transition_time));
        since.is_some_and(|since| self.now >= since + STUCK)
    }

    /// True if a claim had what was kept for it, and has nothing any more.
    pub(super) fn is_taken_back(&self, own: &ReservationObject) -> bool {
        let attempt = Attempt::of(own);
        // If a user removes the gate by hand, the pod may have lost it before the claims have devices.
        let is_let_go = self.pod.as_ref().is_some_and(DirectPod::is_let_go);
        let had_something = |name: &str, claim: &DirectClaim| match attempt.versions.get(name) {
            Some(version) => *version != claim.metadata.resource_version,
            None => is_let_go,
        };
        self.claims_of(own).into_iter().any(|(name, claim)| !claim.is_allocated() && had_something(name, claim))
    }
}

/// True if no devices could be chosen for the Reservation.
pub(super) fn has_no_devices(own: &ReservationObject) -> bool {
    own.status.condition(Type::Scheduled).is_some_and(|it| it.status == ConditionStatus::False)
}
