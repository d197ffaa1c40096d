//! The choice for each grant of a claim, beside what other claims hold. Pure.

use std::collections::BTreeMap;

use hostler_api::{Access, Allocation, BackendName, ClaimRef, Grant, QualifiedName, Quantity, few};
use hostler_backend::{Backend, Device, PlanWork, Sharing};

use super::{
    ClaimError, absent, counters,
    held::{HeldGrant, held_of},
    store::RecordDevice,
};
use crate::{inventory::Inventory, registry::BackendRegistry};

/// A claim to decide on, and the facts to decide by.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdmissionRequest<'a> {
    pub(super) claim: &'a ClaimRef,
    pub(super) allocation: &'a Allocation,
    pub(super) inventory: &'a Inventory,
    pub(super) backends: &'a BackendRegistry,
    pub(super) holdings: &'a [HeldGrant<'a>],
}

/// Reason why a grant cannot be met.
#[derive(Debug)]
pub(super) struct GrantRefusal {
    /// The grant's place in the allocation.
    pub(super) index: usize,
    pub(super) error: Box<ClaimError>,
}

impl<'a> AdmissionRequest<'a> {
    /// The device of a grant, with its backend.
    pub(super) fn find(&self, grant: &Grant) -> Result<(&'a BackendName, &'a Device, &'a dyn Backend), ClaimError> {
        let absent = || absent(self.inventory, &grant.pool, &grant.device);
        let (name, device) = self.inventory.find(&grant.pool, grant.device.as_str()).ok_or_else(absent)?;
        Ok((name, device, self.backends.get(name).ok_or_else(absent)?.as_ref()))
    }

    /// Chooses for every grant; a grant whose index is in `within` is placed on that NUMA node.
    pub(super) fn plan_all(&self, within: &BTreeMap<usize, u32>) -> Result<Vec<RecordDevice>, GrantRefusal> {
        let name = self.claim.full_name();
        let mut admitted: Vec<RecordDevice> = Vec::with_capacity(self.allocation.grants.len());
        for (index, grant) in self.allocation.grants.iter().enumerate() {
            // Most claims have one grant: nothing is copied for those.
            let chosen = if admitted.is_empty() {
                self.plan_one(grant, &name, self.holdings, within.get(&index).copied())
            } else {
                let own = admitted.iter().map(|device| HeldGrant { uid: &self.claim.uid, name: &name, device });
                let all: Vec<HeldGrant<'_>> = self.holdings.iter().cloned().chain(own).collect();
                self.plan_one(grant, &name, &all, within.get(&index).copied())
            };
            admitted.push(chosen.map_err(|error| GrantRefusal { index, error: Box::new(error) })?);
        }
        Ok(admitted)
    }

    fn plan_one(
        &self,
        grant: &Grant,
        claim_name: &str,
        holdings: &[HeldGrant<'_>],
        within: Option<u32>,
    ) -> Result<RecordDevice, ClaimError> {
        let (name, device, backend) = self.find(grant)?;
        check_names(grant, device)?;
        check_amounts(grant, device)?;
        check_free(name, grant, device, holdings)?;
        let pool = self.inventory.pools.get(name);
        let counters = pool.map_or(Ok(Vec::new()), |pool| counters::take(grant, device, (name, pool), holdings))?;
        let held = held_of(holdings, name);
        let plan = backend
            .plan(&PlanWork { claim: &self.claim.uid, claim_name, grant, device, held: &held, within })
            .map_err(|source| ClaimError::Backend { step: "plan", device: grant.device.clone(), source })?;
        let (backend, grant, capacity) = (name.clone(), grant.clone(), shared_capacity(device));
        let local = (device.name != grant.device).then(|| device.name.clone());
        let (edits, unmet) = Default::default();
        Ok(RecordDevice { backend, grant, local, plan, counters, capacity, edits, unmet })
    }
}

/// The capacity of a shared device, which all its users have together, for the record.
fn shared_capacity(device: &Device) -> BTreeMap<QualifiedName, Quantity> {
    let all = device.capacity.keys().zip(device.capacity.values()).filter(|_| device.sharing == Sharing::Shared);
    all.map(|(name, capacity)| (name.clone(), capacity.value)).collect()
}

/// A misspelt capacity must not pass for one that is taken whole.
fn check_names(grant: &Grant, device: &Device) -> Result<(), ClaimError> {
    let Some(unknown) = grant.consumed.keys().find(|name| device.capacity.get(*name).is_none()) else { return Ok(()) };
    let known: Vec<&str> = device.capacity.keys().map(|name| name.as_str()).collect();
    Err(ClaimError::UnknownCapacity {
        device: grant.device.clone(),
        capacity: unknown.to_string(),
        known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
    })
}

/// Refuses to take 0 of a capacity, unless the capacity itself is 0 or the access is administrative, which takes
/// nothing.
fn check_amounts(grant: &Grant, device: &Device) -> Result<(), ClaimError> {
    let is_empty = |name: &QualifiedName| device.capacity.get(name).is_some_and(|capacity| capacity.value.is_zero());
    let nothing = grant.consumed.iter().find(|(name, amount)| amount.is_zero() && !is_empty(name));
    match nothing.filter(|_| grant.access == Access::Use) {
        None => Ok(()),
        Some((name, _)) => Err(ClaimError::NothingTaken { device: grant.device.clone(), capacity: name.to_string() }),
    }
}

/// Checks that the device, or the wanted part of it, is free. Administrative access takes nothing.
///
/// # Errors
/// When other claims have it, or too much of it, by whatever name they were given it.
pub(super) fn check_free(
    backend: &BackendName,
    grant: &Grant,
    device: &Device,
    holdings: &[HeldGrant<'_>],
) -> Result<(), ClaimError> {
    if grant.access == Access::Admin {
        return Ok(());
    }
    let mut users = holdings.iter().filter(|holding| {
        let held = holding.device;
        held.grant.access == Access::Use && held.backend == *backend && *held.local_name() == device.name
    });
    match device.sharing {
        Sharing::Exclusive => users.next().map_or(Ok(()), |holding| {
            Err(ClaimError::Held {
                device: grant.device.clone(),
                holder: format!("{} ({})", holding.uid, holding.name),
            })
        }),
        Sharing::Shared => check_capacity(grant, device, &users.collect::<Vec<_>>()),
    }
}

fn check_capacity(grant: &Grant, device: &Device, users: &[&HeldGrant<'_>]) -> Result<(), ClaimError> {
    for (name, capacity) in device.capacity.iter() {
        // A capacity that a grant does not mention is taken whole: without consumable capacities in the scheduler, a
        // claim gets the whole device.
        let taken = |grant: &Grant| grant.consumed.get(name).copied().unwrap_or(capacity.value);
        let used = users.iter().fold(Quantity::default(), |sum, user| sum.plus(taken(&user.device.grant)));
        let free = capacity.value.minus(used);
        if taken(grant) > free {
            let holder =
                |user: &&HeldGrant<'_>| format!("{} ({}): {}", user.uid, user.name, taken(&user.device.grant).human());
            let holders = few(users.iter().map(holder));
            return Err(ClaimError::NoCapacity {
                device: grant.device.clone(),
                capacity: name.to_string(),
                wanted: taken(grant).human(),
                free: free.human(),
                holders: if holders.is_empty() { "nobody".to_owned() } else { holders },
            });
        }
    }
    Ok(())
}
