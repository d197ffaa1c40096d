//! Stages of a set: a claim that all pods share is allocated with the first of them; the others go to nodes that can
//! use it.

use hostler_api::{
    ObjectKey,
    core::NodeSelector,
    resource::{ResourceClaim, ResourceClaimMetadata, ResourceClaimSpec, ResourceClaimStatus},
};

use super::Placing;
use crate::plan::{
    nodes::Reason,
    pods::{ClaimWish, Wish},
    questions::Given,
    snapshot::{Cluster, GivenClaim, NodePlace, Usage},
};

/// Greatest number of users of a claim.
const MOST_USERS: usize = 256;

/// Claims of the next pods of a set.
#[derive(Debug, Default)]
pub(super) struct Stage {
    /// The claims that are to be allocated.
    pub(super) claims: Option<u32>,
    /// Indices of those claims in the pod.
    asked: Vec<usize>,
    /// Claims among them that all pods share.
    new: Vec<(usize, ObjectKey)>,
    /// Claims that are allocated already.
    used: Vec<ObjectKey>,
    /// Nodes on which the used claims can be used.
    selectors: Vec<(ObjectKey, NodeSelector)>,
    /// Number of pods that the stage is good for.
    pub(super) most: u32,
}

impl Stage {
    /// Returns the reason why a claim of the pod cannot be used on the node; `None`: all can.
    pub(super) fn allows(&self, place: &NodePlace) -> Option<Reason> {
        let (claim, _) = self.selectors.iter().find(|(_, selector)| !place.is_of(selector))?;
        Some(Reason::ClaimElsewhere(claim.to_string()))
    }

    /// Returns the pod's name for a claim that was allocated.
    pub(super) fn names(&self, claim: usize, wish: &Wish) -> String {
        self.asked
            .get(claim)
            .and_then(|at| wish.spec.resource_claims.get(*at))
            .map(|it| it.name.clone())
            .unwrap_or_default()
    }

    /// Notes that the new shared claims are allocated from now on.
    pub(super) fn note_new_claims(&self, usage: &mut Usage, given: &Given, node: &str) {
        for (claim, key) in &self.new {
            let selector = given.selector(*claim, node);
            usage.claims.insert(key.clone(), GivenClaim { selector, reserved: 1 });
        }
    }

    fn use_claim(&mut self, key: &ObjectKey, given: GivenClaim) -> Result<(), String> {
        if given.reserved >= MOST_USERS {
            return Err(format!("claim {key} is used by {MOST_USERS} already, which is the most"));
        }
        self.most = self.most.min(u32::try_from(MOST_USERS - given.reserved).unwrap_or(u32::MAX));
        self.selectors.extend(given.selector.map(|selector| (key.clone(), selector)));
        self.used.push(key.clone());
        Ok(())
    }
}

impl Placing<'_, '_> {
    /// Returns the next stage of the set, in the present state.
    pub(super) fn stage(&mut self, wish: &Wish) -> Result<Stage, String> {
        if let Some(problem) = &wish.problem {
            return Err(problem.clone());
        }
        let mut stage = Stage { most: u32::MAX, ..Stage::default() };
        let mut claims: Vec<ResourceClaim> = Vec::new();
        for (at, claim) in wish.claims.iter().enumerate() {
            if let ClaimWish::Named(key, _) = claim {
                if let Some(given) = self.given_claim(key) {
                    stage.use_claim(key, given)?;
                    continue;
                }
                if !stage.new.iter().any(|(_, other)| other == key) {
                    stage.new.push((claims.len(), key.clone()));
                    stage.most = 1;
                } else {
                    continue;
                }
            }
            claims.push(asked(wish, at, claim));
            stage.asked.push(at);
        }
        stage.claims = (!claims.is_empty()).then(|| self.known.questions.claims(claims));
        Ok(stage)
    }

    /// Notes that pods of the stage use the claims that were allocated before it.
    pub(super) fn use_claims(&mut self, stage: &Stage, pods: u32) {
        for key in &stage.used {
            if let Some(mut given) = self.given_claim(key) {
                given.reserved += pods as usize;
                self.usage.claims.insert(key.clone(), given);
            }
        }
    }

    fn given_claim(&self, key: &ObjectKey) -> Option<GivenClaim> {
        self.usage.claims.get(key).cloned().or_else(|| allocated(self.known.cluster, key))
    }
}

/// Returns a claim as the allocator sees it; a claim of a template has the pod's name for it.
fn asked(wish: &Wish, at: usize, claim: &ClaimWish) -> ResourceClaim {
    let name = match claim {
        ClaimWish::Named(key, _) => key.name.clone(),
        ClaimWish::Own(_) => wish.spec.resource_claims.get(at).map(|it| it.name.clone()).unwrap_or_default(),
    };
    let metadata = ResourceClaimMetadata { name, namespace: wish.namespace.clone(), ..Default::default() };
    ResourceClaim {
        api_version: String::new(),
        kind: String::new(),
        metadata,
        spec: ResourceClaimSpec::clone(claim.spec()),
        status: ResourceClaimStatus::default(),
    }
}

fn allocated(cluster: &Cluster, key: &ObjectKey) -> Option<GivenClaim> {
    let claim = cluster.facts.claims.get(key)?;
    let selector = claim.allocation.as_ref()?.selector(&cluster.facts.store.texts);
    Some(GivenClaim { selector, reserved: claim.reserved() })
}
