//! Finds records that cannot all be true: together they give what can be given once only. Pure.
//!
//! Admission lets a claim in beside the others, so records that it would not let in beside each other are not as it has
//! written them. One of them is wrong, and nothing tells which. A device may have less today without any record being wrong,
//! so what it had when it was given is on record; without that on record no claim is judged.

use std::collections::BTreeMap;

use hostler_api::{Access, BackendName, Chain, ClaimUid, DeviceName, few};
use hostler_backend::{Capacity, Device, Sharing};
use hostler_linux::IdSet;

use crate::{
    claims::{
        ClaimError,
        admission::check_free,
        counters,
        held::HeldGrant,
        store::{ClaimRecord, LoadedRecord, RecordDevice},
    },
    inventory::Inventory,
    pinning::exclusive_cpus,
};

/// A claim that contradicts others, and what it has that they have too.
type Contradiction = (ClaimUid, String);

/// The names of claims.
type ClaimNames<'a> = BTreeMap<&'a ClaimUid, &'a str>;

/// The users of each device, by its backend and name.
type DeviceUsers<'a> = BTreeMap<(&'a BackendName, &'a DeviceName), Vec<HeldGrant<'a>>>;

/// Refuses records that give together what cannot be given twice. Administrative access takes nothing.
pub(in crate::claims) fn refuse_contradictions(loaded: Vec<LoadedRecord>, inventory: &Inventory) -> Vec<LoadedRecord> {
    let sound: Vec<&ClaimRecord> = loaded.iter().filter_map(|it| it.record.as_ref().ok()).collect();
    // The first reason of several is told.
    let mut reasons: BTreeMap<ClaimUid, String> = contradictions(&sound, inventory).into_iter().rev().collect();
    let mut held = |record: ClaimRecord| match reasons.remove(&record.claim.uid) {
        None => Ok(record),
        Some(reason) => Err(reason),
    };
    loaded.into_iter().map(|it| LoadedRecord { record: it.record.and_then(&mut held), ..it }).collect()
}

fn contradictions(records: &[&ClaimRecord], inventory: &Inventory) -> Vec<Contradiction> {
    let names: Vec<String> = records.iter().map(|record| record.claim.full_name()).collect();
    let mut held: Vec<HeldGrant<'_>> = Vec::new();
    for (record, name) in records.iter().zip(&names) {
        let used = record.devices.iter().filter(|device| device.grant.access == Access::Use);
        held.extend(used.map(|device| HeldGrant { uid: &record.claim.uid, name, device }));
    }
    let mut users: DeviceUsers<'_> = BTreeMap::new();
    for holding in &held {
        let device = holding.device;
        users.entry((&device.backend, device.local_name())).or_default().push(holding.clone());
    }
    let mut found = Vec::new();
    for users in users.values() {
        let (whole, parts): (Vec<_>, Vec<_>) =
            users.iter().cloned().partition(|user| is_exclusive(user.device, inventory));
        found.extend(of_whole(&whole));
        found.extend(of_parts(&parts, inventory));
    }
    found.extend(of_counters(&held, &users, inventory));
    found.extend(of_cpus(&held));
    found
}

/// A device that is not there is exclusive if no claim has taken a part of it.
fn is_exclusive(held: &RecordDevice, inventory: &Inventory) -> bool {
    match inventory.find(&held.grant.pool, held.grant.device.as_str()) {
        Some((_, device)) => device.sharing == Sharing::Exclusive,
        None => held.grant.consumed.is_empty() && held.grant.share_id.is_none() && held.capacity.is_empty(),
    }
}

/// Claims that have one device each to itself.
fn of_whole(users: &[HeldGrant<'_>]) -> Vec<Contradiction> {
    let Some(HeldGrant { device, .. }) = users.first() else { return Vec::new() };
    if fit(users, &Device::new(device.local_name().clone())) {
        return Vec::new();
    }
    let what = format!("device {} of pool {}", device.grant.device, device.grant.pool);
    let claims = claims(users);
    claims.keys().map(|uid| ((*uid).clone(), beside_others(uid, &what, &claims))).collect()
}

/// Claims that have more of one device together than it had when they got it.
fn of_parts(users: &[HeldGrant<'_>], inventory: &Inventory) -> Vec<Contradiction> {
    let Some(device) = as_given(users, inventory).filter(|device| !fit(users, device)) else { return Vec::new() };
    let lack = |(index, user): (usize, &HeldGrant<'_>)| {
        let others = [&users[..index], &users[index + 1..]].concat();
        let refusal = check_free(&user.device.backend, &user.device.grant, &device, &others).err()?;
        Some((user.uid.clone(), more_than_there_is(&refusal)))
    };
    users.iter().enumerate().filter_map(lack).collect()
}

/// A shared device with what its users had together when the last of them got a part; absent where no record says that.
/// Each user was let in beside all others, so what it found was enough for them.
fn as_given(users: &[HeldGrant<'_>], inventory: &Inventory) -> Option<Device> {
    let first = users.first()?.device;
    let now = inventory.find(&first.grant.pool, first.grant.device.as_str()).map(|(_, device)| device);
    let mut device = Device { sharing: Sharing::Shared, ..Device::new(first.local_name().clone()) };
    for (name, had) in users.iter().flat_map(|user| &user.device.capacity) {
        let has = now.and_then(|device| device.capacity.get(name)).map(|capacity| capacity.value).unwrap_or_default();
        let most = device.capacity.get(name).map_or(has, |most| most.value).max(*had);
        device.capacity.insert(name.clone(), Capacity { value: most, policy: None });
    }
    (!device.capacity.is_empty()).then_some(device)
}

/// True if a device has room for all of them, which is so if it has room for the last one beside the others. One claim does
/// not contradict itself.
fn fit(users: &[HeldGrant<'_>], device: &Device) -> bool {
    let Some((last, others)) = users.split_last() else { return true };
    others.iter().all(|other| other.uid == last.uid) || is_free_for(last, device, others)
}

fn is_free_for(user: &HeldGrant<'_>, device: &Device, others: &[HeldGrant<'_>]) -> bool {
    check_free(&user.device.backend, &user.device.grant, device, others).is_ok()
}

/// Claims whose devices take more of a counter together than there is: partitions of one card.
fn of_counters(held: &[HeldGrant<'_>], users: &DeviceUsers<'_>, inventory: &Inventory) -> Vec<Contradiction> {
    let mut found = Vec::new();
    for (backend, pool) in &inventory.pools {
        for (device, refusal) in counters::overdrawn((backend, pool), held) {
            let users = users.get(&(backend, device)).into_iter().flatten();
            found.extend(users.map(|user| (user.uid.clone(), more_than_there_is(&refusal))));
        }
    }
    found
}

/// Claims that have the same CPUs each to itself.
fn of_cpus(held: &[HeldGrant<'_>]) -> Vec<Contradiction> {
    let mut holders: BTreeMap<u32, ClaimNames<'_>> = BTreeMap::new();
    for holding in held {
        for cpu in exclusive_cpus([&holding.device.plan]).iter() {
            holders.entry(cpu).or_default().insert(holding.uid, holding.name);
        }
    }
    holders.retain(|_, claims| claims.len() > 1);
    let mut twice: BTreeMap<&ClaimUid, (IdSet, ClaimNames<'_>)> = BTreeMap::new();
    for (cpu, claims) in &holders {
        for uid in claims.keys() {
            let (cpus, all) = twice.entry(*uid).or_default();
            cpus.insert(*cpu);
            all.extend(claims);
        }
    }
    let told = |(uid, (cpus, all)): (&ClaimUid, (IdSet, ClaimNames<'_>))| {
        (uid.clone(), beside_others(uid, &format!("CPUs {cpus}"), &all))
    };
    twice.into_iter().map(told).collect()
}

fn claims<'a>(users: &[HeldGrant<'a>]) -> ClaimNames<'a> {
    users.iter().map(|user| (user.uid, user.name)).collect()
}

/// The problem of a claim's record: others have the same.
fn beside_others(uid: &ClaimUid, what: &str, all: &ClaimNames<'_>) -> String {
    let others = all.iter().filter(|(other, _)| **other != uid);
    let others = few(others.map(|(uid, name)| format!("{name} ({uid})")));
    format!("it has {what}, and so has the record of claim {others}")
}

/// The problem of a record beside others, as admission says it.
fn more_than_there_is(refusal: &ClaimError) -> String {
    format!("with other records it gives more than there is: {}", Chain(refusal))
}
