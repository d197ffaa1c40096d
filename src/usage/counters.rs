//! Devices that no claim holds and no claim can have: the counters that they share with others are used up.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{DeviceName, Quantity};
use hostler_backend::CounterUse;

use crate::inventory::Pool;

/// Returns the devices of a pool that are not in `held`, and for which too little is left of a counter. `held` has the
/// recorded counters of each held device, which count for a device that is not there any more.
pub fn blocked<'a>(pool: &'a Pool, held: &BTreeMap<&DeviceName, &'a [CounterUse]>) -> BTreeSet<&'a DeviceName> {
    if pool.counter_sets.is_empty() || held.is_empty() {
        return BTreeSet::new();
    }
    let left = left(pool, held);
    let lacks = |wanted: &CounterUse| {
        wanted
            .counters
            .iter()
            .any(|(counter, amount)| left.get(&(&wanted.set, counter)).copied().unwrap_or_default() < *amount)
    };
    let idle = pool.devices.iter().filter(|device| !held.contains_key(&device.name));
    idle.filter(|device| device.consumes.iter().any(lacks)).map(|device| &device.name).collect()
}

/// Returns the remaining amount of each counter, by set and name.
fn left<'a>(
    pool: &'a Pool,
    held: &BTreeMap<&DeviceName, &'a [CounterUse]>,
) -> BTreeMap<(&'a DeviceName, &'a DeviceName), Quantity> {
    let all = pool.counter_sets.iter().flat_map(|set| set.counters.iter().map(move |it| ((&set.name, it.0), *it.1)));
    let mut left: BTreeMap<(&DeviceName, &DeviceName), Quantity> = all.collect();
    for (name, recorded) in held {
        let known = pool.devices.iter().find(|device| device.name == **name);
        for taken in known.map_or(*recorded, |device| &device.consumes) {
            for (counter, amount) in &taken.counters {
                if let Some(left) = left.get_mut(&(&taken.set, counter)) {
                    *left = left.minus(*amount);
                }
            }
        }
    }
    left
}
