//! The counters that devices of a pool share: partitions of one card exclude each other. Pure.
//!
//! A device takes its counters once, for as long as anyone holds it, however many claims share it. What it takes is what
//! the inventory says of it now; of a device that is not there any more, what was recorded when it was given.

use std::collections::BTreeMap;

use hostler_api::{Access, DeviceName, Grant, Quantity, few, resource::policy::Amount};
use hostler_backend::{CounterSet, CounterUse, Device};

use super::{ClaimError, admit::HeldGrant};
use crate::inventory::Pool;

/// What `grant` takes of the counters of `pool`, for the record; nothing for administrative access.
///
/// # Errors
/// When a counter has not enough left.
pub(super) fn take(
    grant: &Grant,
    device: &Device,
    pool: &Pool,
    holdings: &[HeldGrant<'_>],
) -> Result<Vec<CounterUse>, ClaimError> {
    if grant.access == Access::Admin || device.consumes.is_empty() {
        return Ok(Vec::new());
    }
    let users = users(pool, holdings);
    if users.iter().all(|user| user.device != &device.name) {
        for wanted in &device.consumes {
            fits(wanted, device, pool, &users)?;
        }
    }
    Ok(device.consumes.clone())
}

/// A held device with what it takes.
struct CounterHolder<'a> {
    device: &'a DeviceName,
    consumes: &'a [CounterUse],
    /// One of those who hold it.
    holder: &'a HeldGrant<'a>,
}

/// Every held device of the pool, once, by name.
fn users<'a>(pool: &'a Pool, holdings: &'a [HeldGrant<'a>]) -> Vec<CounterHolder<'a>> {
    let mut users = BTreeMap::new();
    for holder in holdings {
        let held = &holder.device.grant;
        if held.access == Access::Use && held.pool == pool.name {
            let recorded = CounterHolder { device: &held.device, consumes: &holder.device.counters, holder };
            users.entry(&held.device).or_insert(recorded);
        }
    }
    for device in &pool.devices {
        if let Some(user) = users.get_mut(&device.name) {
            user.consumes = &device.consumes;
        }
    }
    users.into_values().collect()
}

fn fits(wanted: &CounterUse, device: &Device, pool: &Pool, users: &[CounterHolder<'_>]) -> Result<(), ClaimError> {
    let set = pool.counter_sets.iter().find(|set| set.name == wanted.set);
    for (counter, amount) in &wanted.counters {
        let taking: Vec<(&CounterHolder<'_>, Quantity)> =
            users.iter().filter_map(|user| Some((user, taken(user.consumes, &wanted.set, counter)?))).collect();
        let used = taking.iter().fold(Quantity::default(), |sum, (_, amount)| sum.plus(*amount));
        // A counter that nobody has described has nothing to give.
        let total = set.map_or(Quantity::default(), |set| value(set, counter));
        if !Amount::from(*amount).fits(used.into(), total.into()) {
            let holder = |(user, amount): &(&CounterHolder<'_>, Quantity)| {
                format!("{} ({}): {} with {}", user.holder.uid, user.holder.name, amount.human(), user.device)
            };
            let holders = few(taking.iter().map(holder));
            return Err(ClaimError::NoCounter {
                device: device.name.clone(),
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

/// What all of `uses` together take of a counter, if anything.
fn taken(uses: &[CounterUse], set: &DeviceName, counter: &DeviceName) -> Option<Quantity> {
    uses.iter()
        .filter(|taken| taken.set == *set)
        .filter_map(|taken| taken.counters.get(counter).copied())
        .reduce(Quantity::plus)
}

#[cfg(test)]
mod tests;
