//! The counters that devices of a pool share: partitions of one card exclude each other. Pure.
//!
//! A device takes its counters once, for as long as anyone holds it, however many claims share it. What it takes is
//! what the inventory says of it now; of a device that is not there any more, what was recorded when it was given.

use std::{borrow::Cow, collections::BTreeMap};

use hostler_api::{Access, BackendName, DeviceName, Grant, Quantity, few, resource::policy::Amount};
use hostler_backend::{CounterSet, CounterUse, Device};

use super::{ClaimError, held::HeldGrant};
use crate::inventory::Pool;

/// Counters that `grant` takes of `pool`, for the record; none for administrative access.
///
/// # Errors
/// When a counter has not enough left.
pub(super) fn take(
    grant: &Grant,
    device: &Device,
    (backend, pool): (&BackendName, &Pool),
    holdings: &[HeldGrant<'_>],
) -> Result<Vec<CounterUse>, ClaimError> {
    if grant.access == Access::Admin || device.consumes.is_empty() {
        return Ok(Vec::new());
    }
    let users = users(backend, pool, holdings);
    if users.iter().all(|user| user.device != &device.name) {
        for wanted in &device.consumes {
            fits(wanted, &device.name, pool, &users)?;
        }
    }
    Ok(device.consumes.clone())
}

/// The devices that take more of a counter, together with others, than there is, each with what it lacks. Only what the
/// record and the inventory both say that a device takes counts: one that took something else when it was given, or is
/// not there, contradicts no other.
pub(super) fn overdrawn<'a>(
    (backend, pool): (&BackendName, &'a Pool),
    holdings: &'a [HeldGrant<'a>],
) -> Vec<(&'a DeviceName, ClaimError)> {
    let described = |user: &CounterHolder<'_>| pool.devices.iter().any(|device| device.name == *user.device);
    let mut users = users(backend, pool, holdings);
    users.retain(described);
    for user in &mut users {
        user.consumes = agreed(&user.consumes, &user.holder.device.counters).into();
    }
    users.retain(|user| !user.consumes.is_empty());
    let lack = |(index, user): (usize, &CounterHolder<'a>)| {
        let others: Vec<CounterHolder<'_>> = [&users[..index], &users[index + 1..]].concat();
        let refusal = user.consumes.iter().find_map(|wanted| fits(wanted, user.device, pool, &others).err())?;
        Some((user.device, refusal))
    };
    users.iter().enumerate().filter_map(lack).collect()
}

/// The counters that both say are taken.
fn agreed(now: &[CounterUse], recorded: &[CounterUse]) -> Vec<CounterUse> {
    let both = |wanted: &CounterUse| {
        let least = |(counter, amount): (&DeviceName, &Quantity)| {
            Some((counter.clone(), taken(recorded, &wanted.set, counter)?.min(*amount)))
        };
        CounterUse { set: wanted.set.clone(), counters: wanted.counters.iter().filter_map(least).collect() }
    };
    now.iter().map(both).filter(|wanted| !wanted.counters.is_empty()).collect()
}

/// A held device with what it takes.
#[derive(Clone)]
struct CounterHolder<'a> {
    device: &'a DeviceName,
    consumes: Cow<'a, [CounterUse]>,
    /// One of the claims that hold the device.
    holder: &'a HeldGrant<'a>,
}

/// Every held device of the pool, once, by name.
fn users<'a>(backend: &BackendName, pool: &'a Pool, holdings: &'a [HeldGrant<'a>]) -> Vec<CounterHolder<'a>> {
    let mut users = BTreeMap::new();
    for holder in holdings {
        let held = holder.device;
        if held.grant.access == Access::Use && held.backend == *backend {
            let device = held.local_name();
            let recorded = CounterHolder { device, consumes: Cow::from(&held.counters), holder };
            users.entry(device).or_insert(recorded);
        }
    }
    for device in &pool.devices {
        if let Some(user) = users.get_mut(&device.name) {
            user.consumes = Cow::from(&device.consumes);
        }
    }
    users.into_values().collect()
}

fn fits(wanted: &CounterUse, device: &DeviceName, pool: &Pool, users: &[CounterHolder<'_>]) -> Result<(), ClaimError> {
    let set = pool.counter_sets.iter().find(|set| set.name == wanted.set);
    for (counter, amount) in &wanted.counters {
        let taking: Vec<(&CounterHolder<'_>, Quantity)> =
            users.iter().filter_map(|user| Some((user, taken(&user.consumes, &wanted.set, counter)?))).collect();
        let used = taking.iter().fold(Quantity::default(), |sum, (_, amount)| sum.plus(*amount));
        // A counter that is not described has nothing to give.
        let total = set.map_or(Quantity::default(), |set| value(set, counter));
        if !Amount::from(*amount).fits(used.into(), total.into()) {
            let holder = |(user, amount): &(&CounterHolder<'_>, Quantity)| {
                format!("{} ({}): {} with {}", user.holder.uid, user.holder.name, amount.human(), user.device)
            };
            let holders = few(taking.iter().map(holder));
            return Err(ClaimError::NoCounter {
                device: device.clone(),
                counter: format!("{counter} in set {}", wanted.set),
                wanted: amount.human(),
                free: total.minus(used).human(),
                holders: if holders.is_empty() { "nobody".to_owned() } else { holders },
            });
        }
    }
    Ok(())
}

fn value(set: &CounterSet, counter: &DeviceName) -> Quantity {
    set.counters.get(counter).copied().unwrap_or_default()
}

/// Total of a counter that all of `uses` take together, if any does.
fn taken(uses: &[CounterUse], set: &DeviceName, counter: &DeviceName) -> Option<Quantity> {
    uses.iter()
        .filter(|taken| taken.set == *set)
        .filter_map(|taken| taken.counters.get(counter).copied())
        .reduce(Quantity::plus)
}

#[cfg(test)]
mod tests;
