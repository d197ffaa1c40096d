//! Splits the sets of a request into Reservations. Pure.

use hostler_allocator::plan::{ClusterFacts, PodSet};
use hostler_api::{
    ObjectKey,
    reservation::{MAX_REPLICAS, MAX_RESERVED_DEVICES},
    resource::{DeviceAllocationMode, DeviceRequest, DeviceSubRequest},
};

/// Limit of Reservations of one request. Their names stand in one detail, and each costs several writes.
const MOST_RESERVATIONS: usize = 64;
/// Assumed number of devices for a request of all devices of a node.
const ALL_DEVICES: u64 = 8;

/// Returns true if devices for a set can be kept: only devices that pods get from claim templates. A claim that exists
/// keeps its own devices, and binds the pods to its node, which a Reservation knows nothing of.
pub(super) fn can_be_kept(set: &PodSet) -> bool {
    let claims = &set.spec.resource_claims;
    !claims.is_empty() && claims.iter().all(|claim| claim.resource_claim_template_name.is_some())
}

/// Returns the set and the first pod of each Reservation that keeps devices of the sets; empty if there would be too many.
pub(super) fn reservation_starts(sets: &[PodSet], facts: &ClusterFacts) -> Vec<(usize, u32)> {
    let mut starts = Vec::new();
    for (at, set) in sets.iter().enumerate().filter(|(_, set)| can_be_kept(set)) {
        let most = MAX_RESERVED_DEVICES as u64 / devices_of(set, facts).max(1);
        let most = u32::try_from(most).unwrap_or(u32::MAX).clamp(1, MAX_REPLICAS);
        starts.extend((0..set.count).step_by(most as usize).map(|from| (at, from)));
    }
    if starts.len() > MOST_RESERVATIONS { Vec::new() } else { starts }
}

/// Returns the largest number of devices that a pod can have.
fn devices_of(set: &PodSet, facts: &ClusterFacts) -> u64 {
    let templates = set.spec.resource_claims.iter().filter_map(|claim| claim.resource_claim_template_name.as_deref());
    let specs = templates.filter_map(|name| facts.template(&ObjectKey::new(&set.namespace, name)));
    specs.flat_map(|spec| &spec.devices.requests).map(devices_of_request).sum()
}

fn devices_of_request(request: &DeviceRequest) -> u64 {
    let count = |count: Option<i64>, mode: &DeviceAllocationMode| match mode {
        DeviceAllocationMode::All => ALL_DEVICES,
        _ => u64::try_from(count.unwrap_or(1)).unwrap_or(1),
    };
    let exactly = request.exactly.iter().map(|it| count(it.count, &it.allocation_mode));
    let first = |it: &DeviceSubRequest| count(it.count, &it.allocation_mode);
    exactly.chain(request.first_available.iter().map(first)).max().unwrap_or(1)
}
