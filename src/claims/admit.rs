//! Decides whether a claim can have what it was given, and what exactly it gets. Pure.

use std::collections::BTreeSet;

use hostler_api::{Access, Allocation, Chain, ClaimRef, ClaimUid, Grant, opaque::SameNumaNode};
use hostler_backend::BackendError;
use tracing::debug;

use super::{
    ClaimError,
    admission::AdmissionRequest,
    held::HeldGrant,
    place::{self, PlacedGrant},
    store::RecordDevice,
};
use crate::{inventory::Inventory, registry::BackendRegistry};

/// Chooses for every grant of `allocation`.
///
/// # Errors
/// When a device is not there, is held by another claim, has not enough left, or its backend refuses; and when what has
/// to be on one NUMA node cannot be.
pub fn admit(
    claim: &ClaimRef,
    allocation: &Allocation,
    inventory: &Inventory,
    backends: &BackendRegistry,
    holdings: &[HeldGrant<'_>],
) -> Result<Vec<RecordDevice>, ClaimError> {
    let admission = AdmissionRequest { claim, allocation, inventory, backends, holdings };
    let members = place::members(&admission)?;
    let all: Vec<&PlacedGrant<'_>> = members.iter().collect();
    let required: Vec<&PlacedGrant<'_>> =
        members.iter().filter(|member| member.same == SameNumaNode::Required).collect();
    let error = match place::on_one_node(&admission, &all) {
        Ok(devices) => return Ok(devices),
        Err(error) if required.len() == all.len() => return Err(error),
        Err(error) => error,
    };
    debug!(claim.uid = %claim.uid, reason = %Chain(&error), "not all devices are placed on one node");
    place::on_one_node(&admission, &required)
}

/// The claims that hold what a claim was refused for: those of the device where one device is at issue, else all of
/// its pool, as only the backend knows what devices share among each other. Pure.
pub(super) fn in_the_way(
    refusal: &ClaimError,
    allocation: &Allocation,
    holdings: &[HeldGrant<'_>],
) -> BTreeSet<ClaimUid> {
    let device = match refusal {
        ClaimError::Held { device, .. } => Some(device),
        ClaimError::NoCapacity { .. }
        | ClaimError::NoCounter { .. }
        | ClaimError::Placement { .. }
        | ClaimError::Backend { step: "plan", source: BackendError::Refused { .. }, .. } => None,
        // No claim stands in the way.
        _ => return BTreeSet::new(),
    };
    let is_wanted = |held: &Grant| {
        let mut wanted = allocation.grants.iter().filter(|grant| grant.access == Access::Use);
        let is_it = device.is_none_or(|device| *device == held.device);
        is_it && held.access == Access::Use && wanted.any(|grant| grant.pool == held.pool)
    };
    holdings.iter().filter(|holding| is_wanted(&holding.device.grant)).map(|holding| holding.uid.clone()).collect()
}

#[cfg(test)]
mod tests;
