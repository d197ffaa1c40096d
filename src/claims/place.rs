//! Chooses the NUMA node of a claim's devices, where they are to lie together. Pure.
//!
//! The grants that carry a `PlacementConfig` are planned together: each backend says from which nodes its device can
//! be had, and every node that all of them have is tried, with all plans from the beginning, until one has room for
//! all. If no node has, and some grants merely prefer it, those are let go.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use hostler_api::{Access, Chain, Grant, few, listed, opaque::SameNumaNode};
use hostler_backend::{BackendError, PlanWork, opaque::placement_of};
use tracing::debug;

use super::{
    ClaimError,
    admission::{AdmissionRequest, GrantRefusal},
    held::held_of,
    store::RecordDevice,
};

/// A grant that is to lie on one node with others.
#[derive(Debug)]
pub(super) struct PlacedGrant<'a> {
    /// Index of the grant in the allocation.
    index: usize,
    grant: &'a Grant,
    pub(super) same: SameNumaNode,
    /// The nodes that it can come from; empty where nothing is known, which rules out none.
    nodes: BTreeSet<u32>,
}

/// The grants that are to lie together.
///
/// # Errors
/// When a configuration is wrong, or a device is not there.
pub(super) fn members<'a>(admission: &AdmissionRequest<'a>) -> Result<Vec<PlacedGrant<'a>>, ClaimError> {
    let mut members = Vec::new();
    for (index, grant) in admission.allocation.grants.iter().enumerate() {
        let same = placement_of(grant).map_err(|source| ClaimError::Backend {
            step: "plan",
            device: grant.device.clone(),
            source,
        })?;
        // Administrative access takes nothing of any node.
        if let Some(same) = same.filter(|_| grant.access == Access::Use) {
            let (_, device, backend) = admission.find(grant)?;
            members.push(PlacedGrant { index, grant, same, nodes: backend.nodes(device) });
        }
    }
    Ok(members)
}

/// Plans all grants, with these members on the first node that has room for all of them.
///
/// # Errors
/// When a grant cannot be met, or there is no node for those that are to lie together.
pub(super) fn on_one_node(
    admission: &AdmissionRequest<'_>,
    members: &[&PlacedGrant<'_>],
) -> Result<Vec<RecordDevice>, ClaimError> {
    let plan_all = |within| admission.plan_all(&within);
    let Some(mut nodes) = common_nodes(members) else {
        return plan_all(BTreeMap::new()).map_err(|refusal| *refusal.error);
    };
    if nodes.len() > 1 {
        nodes.sort_by_cached_key(|node| (Reverse(free(admission, members, *node)), *node));
    }
    let mut refusals = Vec::new();
    for node in nodes {
        match plan_all(members.iter().map(|member| (member.index, node)).collect()) {
            Ok(devices) => {
                debug!(claim.uid = %admission.claim.uid, node, "devices are placed on one node");
                return Ok(devices);
            }
            Err(refusal) if is_about_the_node(&refusal.error) => refusals.push((node, refusal)),
            Err(refusal) => return Err(*refusal.error),
        }
    }
    Err(refused(members, refusals))
}

/// True if another node may do. A wrong configuration or a device that is held is the same everywhere.
fn is_about_the_node(error: &ClaimError) -> bool {
    matches!(error, ClaimError::Backend { source: BackendError::Refused { .. }, .. })
}

/// Returns one error for all nodes. If only grants that need not lie together failed, their error is returned.
fn refused(members: &[&PlacedGrant<'_>], mut refusals: Vec<(u32, GrantRefusal)>) -> ClaimError {
    let is_member = |refusal: &GrantRefusal| members.iter().any(|member| member.index == refusal.index);
    if refusals.iter().all(|(_, refusal)| !is_member(refusal))
        && let Some((_, refusal)) = refusals.pop()
    {
        return *refusal.error;
    }
    let mut reasons: Vec<String> =
        refusals.iter().map(|(node, refusal)| format!("on node {node}: {}", Chain(&refusal.error))).collect();
    if reasons.is_empty() {
        reasons.push("they have no node in common".to_owned());
    }
    /// Machines with more nodes are rare, and an Event has room for as many.
    const MOST: usize = 8;
    let grants = few(members.iter().map(|member| describe(member)));
    ClaimError::Placement { grants, reasons: listed(MOST, "; ", reasons) }
}

/// The nodes that every member can come from; `None` if nothing is known of any.
fn common_nodes(members: &[&PlacedGrant<'_>]) -> Option<Vec<u32>> {
    let known = members.iter().map(|member| &member.nodes).filter(|nodes| !nodes.is_empty());
    let common = known.cloned().reduce(|common, nodes| &common & &nodes)?;
    Some(common.into_iter().collect())
}

/// Amounts that are free on a node for each member, in their order, as far as they are known.
fn free(admission: &AdmissionRequest<'_>, members: &[&PlacedGrant<'_>], node: u32) -> Vec<Option<u64>> {
    let free = |member: &&PlacedGrant<'_>| {
        let (name, device, backend) = admission.find(member.grant).ok()?;
        let held = held_of(admission.holdings, name);
        let (claim, claim_name, grant) = (&admission.claim.uid, &*admission.claim.full_name(), member.grant);
        backend.free(&PlanWork { claim, claim_name, grant, device, held: &held, within: Some(node) })
    };
    members.iter().map(free).collect()
}

fn describe(member: &PlacedGrant<'_>) -> String {
    let Grant { request, device, .. } = member.grant;
    let nodes: Vec<String> = member.nodes.iter().map(u32::to_string).collect();
    let nodes = match nodes.as_slice() {
        [] => "any node".to_owned(),
        [node] => format!("node {node}"),
        nodes => format!("nodes {}", nodes.join(",")),
    };
    format!("{device} for request {request} ({nodes})")
}

#[cfg(test)]
mod tests;
