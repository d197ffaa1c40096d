//! Claims of a gated pod that have devices from elsewhere already: the pod can only run where these are.

use std::collections::BTreeMap;

use hostler_api::{core::NodeSelector, few, reservation::ReservedDevice, resource::DeviceAllocationMode};

use super::{
    context::{DirectClaim, DirectContext, DirectPod, DirectStep},
    steps::{clear, release},
};
use crate::reservation_object::ReservationObject;

/// Returns the nodes where the devices of a claim can be used; `None` if they can be used everywhere.
fn pin(claim: &DirectClaim) -> Option<&NodeSelector> {
    claim.status.allocation.as_ref()?.node_selector.as_ref()
}

/// Returns the nodes where the devices of these claims can be used.
pub(super) fn pins<'a>(claims: &[(&String, &'a DirectClaim)]) -> Vec<&'a NodeSelector> {
    claims.iter().filter_map(|(_, claim)| pin(claim)).collect()
}

/// Explains that two claims have devices on two nodes: no pod can have both.
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

impl DirectContext {
    /// Names the claims that bind the pod to nodes where no devices could be chosen for the other claims.
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

    /// Returns the step for a claim of a gated pod that got other devices than the kept ones meanwhile. The other
    /// claims are planned anew, for the node of those devices. All claims are planned anew where a lost device was
    /// replaced and the other claims kept theirs: they could be on another node.
    pub(super) fn step_of_elsewhere(&self, pod: &DirectPod, own: &ReservationObject) -> Option<DirectStep> {
        let theirs = self.claims_of(own);
        let devices: Vec<&ReservedDevice> = own.status.kept().collect();
        let is_elsewhere = |(name, claim): &(&String, &DirectClaim)| is_other(claim, name, &devices);
        let has_more = |(name, claim): &(&String, &DirectClaim)| is_more(claim, name, &devices);
        if !theirs.iter().any(|it| is_elsewhere(it) || has_more(it)) {
            return None;
        }
        // hostler first takes back the devices that it gave; the claim then gets the devices that are kept now.
        let ours = theirs.iter().find(|(_, claim)| claim.is_written_for(pod));
        Some(ours.map_or_else(|| DirectStep::Write(release(own)), |(_, claim)| clear(claim)))
    }
}

/// True if the claim has other devices than those that are kept for it.
pub(super) fn is_other(claim: &DirectClaim, name: &str, devices: &[&ReservedDevice]) -> bool {
    let mut results = claim.status.allocation.iter().flat_map(|it| &it.devices.results);
    results.any(|it| {
        !devices.iter().any(|device| device.claim == name && device.key() == (&*it.driver, &*it.pool, &*it.device))
    })
}

/// True if more devices are kept for the claim than it asks for, if it names a number.
fn is_more(claim: &DirectClaim, name: &str, devices: &[&ReservedDevice]) -> bool {
    let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
    for device in devices.iter().filter(|device| device.claim == name) {
        *kept.entry(&device.request).or_default() += 1;
    }
    kept.into_iter().any(|(request, count)| asked(claim, request).is_some_and(|asked| count > asked))
}

/// Returns the number of devices that a request of the claim asks for; `None` if it asks for all.
fn asked(claim: &DirectClaim, request: &str) -> Option<usize> {
    let (name, alternative) = request.split_once('/').unwrap_or((request, ""));
    let found = claim.spec.devices.requests.iter().find(|it| it.name == name)?;
    let of_alternative = || found.first_available.iter().find(|it| it.name == alternative);
    let (mode, count) = match &found.exactly {
        Some(exactly) => (exactly.allocation_mode.clone(), exactly.count),
        None => of_alternative().map(|it| (it.allocation_mode.clone(), it.count))?,
    };
    (mode == DeviceAllocationMode::ExactCount).then(|| usize::try_from(count.unwrap_or(1)).unwrap_or(1).max(1))
}
