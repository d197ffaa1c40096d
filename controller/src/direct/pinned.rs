//! Claims of a gated pod that have devices already, from somebody else: the pod can only go where these are.

use hostler_api::{core::NodeSelector, few, reservation::ReservedDevice};

use super::{
    decide::{clear, release},
    sight::{DirectClaim, DirectPod, DirectSight, DirectStep},
};
use crate::hold::ReservationObject;

/// Where the devices of a claim can be used, if not everywhere.
fn pin(claim: &DirectClaim) -> Option<&NodeSelector> {
    claim.status.allocation.as_ref()?.node_selector.as_ref()
}

/// Where the devices of these can be used.
pub(super) fn pins<'a>(claims: &[(&String, &'a DirectClaim)]) -> Vec<&'a NodeSelector> {
    claims.iter().filter_map(|(_, claim)| pin(claim)).collect()
}

/// Two claims have devices on two nodes: no pod can have both.
pub(super) fn contradiction(claims: &[(&String, &DirectClaim)]) -> Option<String> {
    let mut pinned =
        claims.iter().filter_map(|(_, claim)| Some((&*claim.metadata.name, pin(claim).and_then(NodeSelector::name)?)));
    let (first, node) = pinned.next()?;
    let (second, other) = pinned.find(|(_, it)| *it != node)?;
    Some(format!(
        "claim {first} has devices on node {node} and claim {second} on node {other}, and no pod can be on both; free one of \
         them (delete what uses it), or leave it out of the pod"
    ))
}

impl DirectSight {
    /// Which claims keep the pod where nothing could be chosen for the others.
    pub(super) fn pinned(&self, own: &ReservationObject) -> Option<String> {
        let is_own = |name: &String| own.spec.device_claims.iter().any(|it| it.name == *name);
        let others = self.claims.iter().filter(|(name, _)| !is_own(name));
        let pinned: Vec<String> = others
            .filter_map(|(_, claim)| {
                let place =
                    pin(claim)?.name().map_or_else(|| "on some nodes".to_owned(), |node| format!("on node {node}"));
                Some(format!("{} {place}", claim.metadata.name))
            })
            .collect();
        (!pinned.is_empty()).then(|| {
            format!(
                "claims of the pod have devices already ({}), and the others can get theirs only there; wait, or free these",
                few(&pinned)
            )
        })
    }

    /// What is done where a claim of a gated pod has something else than what is kept for it: somebody has given it that meanwhile.
    /// The others are planned anew, for where that is.
    pub(super) fn step_of_elsewhere(&self, pod: &DirectPod, own: &ReservationObject) -> Option<DirectStep> {
        let theirs = self.claims_of(own);
        let devices: Vec<&ReservedDevice> = own.status.kept().collect();
        let is_elsewhere = |(name, claim): &&(&String, &DirectClaim)| is_other(claim, name, &devices);
        theirs.iter().find(is_elsewhere)?;
        // What we gave is taken back first; with what is kept now it is given something again.
        let ours = theirs.iter().find(|(_, claim)| claim.is_written_for(pod));
        Some(ours.map_or_else(|| DirectStep::Write(release(own)), |(_, claim)| clear(claim)))
    }
}

/// Whether the claim has something else than what is kept for it.
pub(super) fn is_other(claim: &DirectClaim, name: &str, devices: &[&ReservedDevice]) -> bool {
    let mut results = claim.status.allocation.iter().flat_map(|it| &it.devices.results);
    results.any(|it| {
        !devices.iter().any(|device| device.claim == name && device.key() == (&*it.driver, &*it.pool, &*it.device))
    })
}
