//! A new plan for a pod whose claims the scheduler has freed again (race 11): the next Reservation, under the next
//! name, leaves out the failed node. The Reservation names the former attempts, so the next leader goes on from there.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{
    Doubling, few,
    hardware::ConditionStatus,
    reservation::{
        ReservationConditionReason as Reason, ReservationConditionType as Type, ReservedDevice, placement_name,
    },
};
use hostler_cluster::since_1970;
use serde::{Deserialize, Serialize};

use super::{
    context::{DirectClaim, DirectContext, DirectPod, DirectStep},
    decide::{finalizers, reserve},
    pinned::is_other,
};
use crate::{claim_write::DELETE_PROTECTION, hold::ReservationObject};

/// The annotation of the template that names the former attempts.
pub(super) const ATTEMPT: &str = "hostler.dev/placement-attempt";
/// Pauses between two plans for one pod; each doubles the last one, up to the longest.
const PAUSES: Doubling = Doubling::new(Duration::from_secs(5), Duration::from_secs(300));
/// The most nodes that are left out; of more nodes the last ones are.
const MOST_LEFT_OUT: usize = 16;
/// The time after which a scheduler frees no more claims of a pod: it frees all of them within a few tries, seconds
/// apart.
const STUCK: Duration = Duration::from_secs(30);

/// An attempt to place a pod, with what was tried before.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Attempt {
    /// Number of the attempt: 0 for the first, which has no former ones.
    pub(super) number: u32,
    pub(super) left_out: Vec<String>,
    /// The resourceVersion of each claim without devices when this attempt was made: under another version the claim
    /// got devices since.
    pub(super) versions: BTreeMap<String, String>,
}

impl Attempt {
    pub(super) fn of(own: &ReservationObject) -> Self {
        let template = own.spec.pod_template().ok();
        let said = template.and_then(|template| template.metadata.annotations.get(ATTEMPT).cloned());
        said.and_then(|said| serde_json::from_str(&said).ok()).unwrap_or_default()
    }

    /// Returns the name of the attempt's Reservation.
    pub(super) fn name(&self, uid: &str) -> String {
        let first = placement_name(uid);
        if self.number == 0 { first } else { format!("{first}-{}", self.number) }
    }

    /// Returns the pause before the next attempt; the first new plan is made at once.
    fn pause(&self) -> Duration {
        self.number.checked_sub(1).map_or(Duration::ZERO, |failures| PAUSES.after(failures))
    }

    /// Returns the message about the attempt, for people.
    pub(super) fn message(&self) -> String {
        let number = self.number.saturating_add(1);
        if self.left_out.is_empty() {
            return format!(
                "try {number}: the scheduler freed the claims of the pod wherever they had devices, and no other node has \
                 any; all nodes are tried again"
            );
        }
        let nodes = few(&self.left_out);
        format!(
            "try {number}: the scheduler freed the claims of the pod that had devices on {nodes}; elsewhere than there"
        )
    }

    fn next(&self, left_out: Vec<String>, claims: &[(&String, &DirectClaim)]) -> Self {
        let versions = claims.iter().map(|(name, claim)| ((*name).clone(), claim.metadata.resource_version.clone()));
        Self { number: self.number.saturating_add(1), left_out, versions: versions.collect() }
    }
}

impl DirectContext {
    /// Returns the step for a pod that the scheduler has tried already; the usual step where the scheduler took nothing
    /// back.
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

    /// Returns the claims for which the Reservation keeps devices.
    pub(super) fn claims_of(&self, own: &ReservationObject) -> Vec<(&String, &DirectClaim)> {
        let is_of_it = |name: &str| own.spec.device_claims.iter().any(|it| it.name == name);
        self.claims.iter().filter(|(name, _)| is_of_it(name)).collect()
    }

    /// True if a claim had its kept devices, and has none any more.
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

impl Attempt {
    fn left_out_with(&self, node: Option<&String>) -> Vec<String> {
        let others = self.left_out.iter().filter(|it| Some(*it) != node);
        let all: Vec<String> = others.chain(node).cloned().collect();
        all[all.len().saturating_sub(MOST_LEFT_OUT)..].to_vec()
    }
}

/// True if no devices could be chosen for the Reservation.
pub(super) fn has_no_devices(own: &ReservationObject) -> bool {
    own.status.condition(Type::Scheduled).is_some_and(|it| it.status == ConditionStatus::False)
}
