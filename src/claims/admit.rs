//! Decides whether a claim can have what it was given, and what exactly it gets. Pure.

use hostler_backend::{Access, Backend, ClaimUid, Device, Grant, Held, Plan, PlanWork, Quantity, Sharing};

use super::{Allocation, ClaimError, ClaimRef, counters, store::RecordDevice};
use crate::{inventory::Inventory, registry::Backends};

/// Something that a claim holds, with the claim's full name at hand.
#[derive(Clone, Debug)]
pub struct Holding<'a> {
    /// The holder.
    pub uid: &'a ClaimUid,
    /// `namespace/name` of the holder.
    pub name: &'a str,
    /// What it holds.
    pub device: &'a RecordDevice,
}

/// Chooses for every grant of `allocation`.
///
/// # Errors
/// When a device is not there, is held by another claim, has not enough left, or its backend refuses.
pub fn admit(
    claim: &ClaimRef,
    allocation: &Allocation,
    inventory: &Inventory,
    backends: &Backends,
    holdings: &[Holding<'_>],
) -> Result<Vec<RecordDevice>, ClaimError> {
    let name = claim.full_name();
    let mut admitted: Vec<RecordDevice> = Vec::with_capacity(allocation.grants.len());
    for grant in &allocation.grants {
        let chosen = {
            let own = admitted.iter().map(|device| Holding { uid: &claim.uid, name: &name, device });
            let all: Vec<Holding<'_>> = holdings.iter().cloned().chain(own).collect();
            admit_one(claim, grant, inventory, backends, &all)?
        };
        admitted.push(chosen);
    }
    Ok(admitted)
}

fn admit_one(
    claim: &ClaimRef,
    grant: &Grant,
    inventory: &Inventory,
    backends: &Backends,
    holdings: &[Holding<'_>],
) -> Result<RecordDevice, ClaimError> {
    let absent = || ClaimError::NoSuchDevice { pool: grant.pool.clone(), device: grant.device.clone() };
    let (backend_name, device) = inventory.find(&grant.pool, grant.device.as_str()).ok_or_else(absent)?;
    let backend = backends.get(backend_name).ok_or_else(absent)?;
    check_names(grant, device)?;
    check_free(grant, device, holdings)?;
    let pool = inventory.pools.get(backend_name).ok_or_else(absent)?;
    let counters = counters::take(grant, device, pool, holdings)?;
    let held: Vec<Held<'_>> = holdings
        .iter()
        .filter(|holding| holding.device.backend == *backend_name)
        .map(|holding| Held {
            claim: holding.uid,
            claim_name: holding.name,
            grant: &holding.device.grant,
            plan: &holding.device.plan,
        })
        .collect();
    let plan = choose(backend.as_ref(), claim, grant, device, &held)?;
    Ok(RecordDevice { backend: backend_name.clone(), grant: grant.clone(), plan, counters, edits: Default::default() })
}

fn choose(
    backend: &dyn Backend,
    claim: &ClaimRef,
    grant: &Grant,
    device: &Device,
    held: &[Held<'_>],
) -> Result<Plan, ClaimError> {
    backend
        .plan(&PlanWork { claim: &claim.uid, grant, device, held, within: None })
        .map_err(|source| ClaimError::Backend { step: "plan", device: grant.device.clone(), source })
}

/// A misspelt capacity must not pass for one that is taken whole.
fn check_names(grant: &Grant, device: &Device) -> Result<(), ClaimError> {
    let Some(unknown) = grant.consumed.keys().find(|name| !device.capacity.contains_key(*name)) else { return Ok(()) };
    let known: Vec<&str> = device.capacity.keys().map(|name| name.as_str()).collect();
    Err(ClaimError::UnknownCapacity {
        device: grant.device.clone(),
        capacity: unknown.to_string(),
        known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
    })
}

/// Whether the device, or the part of it that is wanted, is free. Administrative access takes nothing.
fn check_free(grant: &Grant, device: &Device, holdings: &[Holding<'_>]) -> Result<(), ClaimError> {
    if grant.access == Access::Admin {
        return Ok(());
    }
    let mut users = holdings.iter().filter(|holding| {
        let held = &holding.device.grant;
        held.access == Access::Use && held.pool == grant.pool && held.device == grant.device
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

fn check_capacity(grant: &Grant, device: &Device, users: &[&Holding<'_>]) -> Result<(), ClaimError> {
    for (name, capacity) in &device.capacity {
        // A capacity that a grant does not mention is taken whole: without consumable capacities in the scheduler, a
        // claim gets the whole device.
        let taken = |grant: &Grant| grant.consumed.get(name).copied().unwrap_or(capacity.value);
        let used = users.iter().fold(Quantity::default(), |sum, user| sum.plus(taken(&user.device.grant)));
        let free = capacity.value.minus(used);
        if taken(grant) > free {
            let holders: Vec<String> = users
                .iter()
                .map(|user| format!("{} ({}): {}", user.uid, user.name, taken(&user.device.grant).human()))
                .collect();
            return Err(ClaimError::NoCapacity {
                device: grant.device.clone(),
                capacity: name.to_string(),
                wanted: taken(grant).human(),
                free: free.human(),
                holders: if holders.is_empty() { "nobody".to_owned() } else { holders.join(", ") },
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
