//! Rules on claims that hold parts of the same hardware at once.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    thread,
};

use hostler_api::{DeviceName, Grant, Quantity};

use super::{
    Run,
    cycle::{Amount, Claim, grant, plan},
};
use crate::{BackendError, CounterSet, Device, Health, HeldDevice, Sharing};

/// Claims on one shared device: enough to fill a small one and to crowd a large one.
const PER_DEVICE: usize = 8;
/// Claims in all: planning looks at every claim that is there already.
const IN_ALL: usize = 128;

/// Gives every healthy device to as many claims as fit, prepares them all at the same time, and takes them back in two
/// halves.
pub(super) fn check(run: &Run<'_>, devices: &[Device], sets: &[CounterSet]) {
    let before = run.observe();
    let mut claims: Vec<(&Device, Claim)> = Vec::new();
    for device in devices.iter().filter(|device| device.health == Health::Healthy) {
        if counters_left(device, &claims, sets) {
            fill(run, device, &mut claims);
        }
    }
    disjoint(run, claims.iter().map(|(device, claim)| (*device, claim)));
    overask(run, &claims);

    let backend = run.backend;
    for_all(run, "prepare succeeds beside other claims", &claims, |(device, claim)| {
        backend.prepare(&claim.prepare(device)).map(drop)
    });
    for_all(run, "verify succeeds beside other claims", &claims, |(_, claim)| backend.verify(&claim.verify()));
    let (first, second) = claims.split_at(claims.len() / 2);
    let unprepare = |(_, claim): &(&Device, Claim)| backend.unprepare(&claim.unprepare());
    for_all(run, "unprepare succeeds beside other claims", first, unprepare);
    let rule = "unprepare of one claim leaves the others usable";
    for_all(run, rule, second, |(_, claim)| backend.verify(&claim.verify()));
    for_all(run, "unprepare succeeds beside other claims", second, unprepare);
    run.same_state("the hardware is as before when every claim is gone", None, &before);
}

/// Adds claims on `device` until it is full, the backend refuses, or there are enough.
fn fill<'a>(run: &Run<'_>, device: &'a Device, claims: &mut Vec<(&'a Device, Claim)>) {
    let most = if device.sharing == Sharing::Shared { PER_DEVICE } else { 1 };
    for _ in 0..most.min(IN_ALL - claims.len()) {
        let grant = next_grant(run, device, claims.len(), Amount::Least);
        if !fits(device, claims, &grant) {
            return;
        }
        let planned = plan(run, device, claims.len(), grant, &held(claims));
        let Ok(claim) = planned else { return };
        claims.push((device, claim));
    }
}

/// Whether the scheduler would give `device` to anyone beside `claims`: a device takes its counters once.
fn counters_left(device: &Device, claims: &[(&Device, Claim)], sets: &[CounterSet]) -> bool {
    let held: BTreeMap<_, _> = claims.iter().map(|(device, _)| (&device.name, *device)).collect();
    let takes = |device: &Device, set: &DeviceName, counter: &DeviceName| {
        let uses = device.consumes.iter().filter(|taken| taken.set == *set);
        uses.filter_map(|taken| taken.counters.get(counter)).fold(Quantity::default(), |sum, amount| sum.plus(*amount))
    };
    sets.iter().all(|set| {
        set.counters.iter().all(|(counter, value)| {
            let taken =
                held.values().map(|held| takes(held, &set.name, counter)).fold(Quantity::default(), Quantity::plus);
            taken.plus(takes(device, &set.name, counter)) <= *value
        })
    })
}

fn next_grant(run: &Run<'_>, device: &Device, number: usize, amount: Amount) -> Grant {
    grant(device, number, amount, run.samples.configs.first().map_or(&[], |config| config))
}

/// Whether the scheduler would give `grant` beside `claims`.
fn fits(device: &Device, claims: &[(&Device, Claim)], grant: &Grant) -> bool {
    let taken = |name| {
        let others = claims.iter().map(|(_, claim)| &claim.grant).filter(|other| other.device == device.name);
        let amounts = others.chain([grant]).filter_map(|grant| grant.consumed.get(name));
        amounts.fold(Quantity::default(), |sum, amount| sum.plus(*amount))
    };
    device.capacity.iter().all(|(name, capacity)| taken(name) <= capacity.value)
}

fn held<'a>(claims: &'a [(&Device, Claim)]) -> Vec<HeldDevice<'a>> {
    claims.iter().map(|(_, claim)| claim.held()).collect()
}

/// No CPU belongs to two claims.
fn disjoint<'a>(run: &Run<'_>, claims: impl Iterator<Item = (&'a Device, &'a Claim)>) {
    let mut owners: BTreeMap<u32, &Claim> = BTreeMap::new();
    for (device, claim) in claims {
        for cpu in &claim.plan.pinning.cpus {
            match owners.entry(*cpu) {
                Entry::Vacant(free) => _ = free.insert(claim),
                Entry::Occupied(taken) => {
                    let (owner, grant) = (&taken.get().name, &taken.get().grant.device);
                    let seen = format!("CPU {cpu} was planned for {owner} on {grant} and for {}", claim.name);
                    run.broken("claims share no CPU", Some(&device.name), seen);
                }
            }
        }
    }
}

/// Asks for the whole of each shared device that others hold parts of. A scheduler would not; whoever edits a claim by
/// hand may. The backend refuses, or finds something that nobody holds.
fn overask(run: &Run<'_>, claims: &[(&Device, Claim)]) {
    let shared = claims.iter().filter(|(device, _)| device.sharing == Sharing::Shared);
    let devices: BTreeMap<_, _> = shared.map(|(device, _)| (&device.name, *device)).collect();
    for device in devices.into_values() {
        let grant = next_grant(run, device, claims.len(), Amount::Whole);
        if let Ok(claim) = plan(run, device, claims.len(), grant, &held(claims)) {
            disjoint(run, claims.iter().map(|(device, claim)| (*device, claim)).chain([(device, &claim)]));
        }
    }
}

/// Calls `step` for every claim, some at the same time, as the daemon does.
fn for_all<'a>(
    run: &Run<'_>,
    rule: &str,
    claims: &[(&'a Device, Claim)],
    step: impl Fn(&(&'a Device, Claim)) -> Result<(), BackendError> + Sync,
) {
    for some in claims.chunks(PER_DEVICE) {
        let results: Vec<_> = thread::scope(|scope| {
            let running: Vec<_> = some.iter().map(|item| scope.spawn(|| step(item))).collect();
            running.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        for ((device, _), result) in some.iter().zip(results) {
            match result {
                Ok(result) => run.must(rule, device, result),
                Err(_) => run.broken(rule, Some(&device.name), "a thread panicked, see above"),
            }
        }
    }
}
