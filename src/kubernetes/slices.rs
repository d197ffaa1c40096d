//! The slices that should exist: a pure function of the inventory, the configuration, and the features of the server.

mod device;

use std::{collections::BTreeSet, sync::Arc};

use hostler_api::{
    BackendName, DeviceName,
    limits::{MAX_ADVANCED_DEVICES, MAX_COUNTER_SETS, MAX_DEVICES},
    resource::{SliceContent, SliceCounterSet},
};
use hostler_backend::{CounterSet, Device};
pub use hostler_reconcile::slices::Dropped;
use hostler_reconcile::slices::{DesiredPool, DesiredSlice, Feature, slice_name};

pub(super) use self::device::{DeviceObjections, taints};
use super::holds::HoldsInForce;
use crate::{
    config::{DaemonConfig, NodeAllocatableNames},
    inventory::{Inventory, Pool, UnknownPool},
};

/// How devices are published.
#[derive(Clone, Debug)]
pub struct SliceSettings {
    /// Name of the driver.
    pub driver: String,
    /// True if pods that use a device are evicted when it turns unhealthy.
    pub evict_unhealthy: bool,
    /// True if attributes with several values are published.
    pub list_attributes: bool,
    /// Names by which devices say what they take of the node's own resources, if they do.
    pub node_allocatable: NodeAllocatableNames,
}

impl SliceSettings {
    /// As the daemon's configuration wants it.
    pub fn of(config: &DaemonConfig) -> Self {
        Self {
            driver: config.driver.clone(),
            evict_unhealthy: config.cluster.evict_unhealthy,
            list_attributes: config.cluster.list_attributes,
            node_allocatable: config.cluster.node_allocatable,
        }
    }
}

/// The pools of all backends, with the devices that are held.
pub fn desired_slices(
    inventory: &Inventory,
    holds: &HoldsInForce,
    settings: &SliceSettings,
    dropped: &Dropped,
) -> Vec<DesiredPool> {
    let known = inventory.pools.iter();
    let known = known.map(|(backend, pool)| desired_pool(inventory, holds, backend, pool, settings, dropped));
    known.chain(inventory.unknown.values().map(untouched_pool)).collect()
}

/// To say that it is empty would cost pods their devices, and the scheduler a node, over a backend that is slow once.
fn untouched_pool(pool: &UnknownPool) -> DesiredPool {
    DesiredPool { name: pool.name.clone(), slices: Vec::new(), left_out: Vec::new(), unknown: true }
}

fn desired_pool(
    inventory: &Inventory,
    holds: &HoldsInForce,
    backend: &BackendName,
    pool: &Pool,
    settings: &SliceSettings,
    dropped: &Dropped,
) -> DesiredPool {
    let counters = counters(pool, dropped);
    let mut left_out = Vec::new();
    let mut devices = Vec::with_capacity(pool.devices.len());
    for device in &pool.devices {
        let against = DeviceObjections {
            is_stale: pool.stale.is_some(),
            drain: inventory.drain(backend, &device.name),
            held: holds.value(&pool.name, device.name.as_str()),
        };
        let translated = unresolved(device, pool, dropped)
            .map_or_else(|| device::device(device, against, settings, dropped), |reason| Err(reason.to_owned()));
        match translated {
            Ok(device) => devices.push(device),
            Err(reason) => left_out.push(format!("{}/{}: {reason}", pool.name, device.name)),
        }
    }
    // Counters that no device draws on say nothing.
    let counters = if devices.is_empty() { Vec::new() } else { counters };
    let counters = chunks(counters, MAX_COUNTER_SETS)
        .map(|shared_counters| SliceContent { shared_counters, ..SliceContent::default() });
    let most = most_devices(&pool.devices, settings, dropped);
    let contents =
        counters.chain(chunks(devices, most).map(|devices| SliceContent { devices, ..SliceContent::default() }));
    let slice = |(index, content)| DesiredSlice {
        name: slice_name(index, &settings.driver, &pool.name),
        content: Arc::new(content),
    };
    DesiredPool { name: pool.name.clone(), slices: contents.enumerate().map(slice).collect(), left_out, unknown: false }
}

/// Decided by what devices can get, not by what they have: a device that turns unhealthy must not move all others.
fn most_devices(devices: &[Device], settings: &SliceSettings, dropped: &Dropped) -> usize {
    let is_advanced = |device: &Device| {
        (!device.consumes.is_empty() && !dropped.contains(&Feature::Counters))
            || (settings.list_attributes && device.attributes.values().any(device::is_list))
    };
    let taints = !dropped.contains(&Feature::Taints);
    if taints || devices.iter().any(is_advanced) { MAX_ADVANCED_DEVICES } else { MAX_DEVICES }
}

/// In slices of their own, since 1.35 wants it so.
fn counters(pool: &Pool, dropped: &Dropped) -> Vec<SliceCounterSet> {
    if dropped.contains(&Feature::Counters) {
        return Vec::new();
    }
    let mut names = BTreeSet::new();
    // A set that is there twice would make the whole pool invalid.
    let sets = pool.counter_sets.iter().filter(|set| names.insert(&set.name));
    sets.map(|set| SliceCounterSet { name: set.name.as_str().into(), counters: device::counters(&set.counters) })
        .collect()
}

/// Why the counters of a device cannot be published. One reference that leads nowhere makes the whole pool invalid.
fn unresolved(device: &Device, pool: &Pool, dropped: &Dropped) -> Option<&'static str> {
    if device.consumes.is_empty() {
        return None;
    }
    if dropped.contains(&Feature::Counters) {
        return Some("the API server does not store shared counters");
    }
    let has = |set: &DeviceName, counter: &DeviceName| {
        let found: Option<&CounterSet> = pool.counter_sets.iter().find(|candidate| candidate.name == *set);
        found.is_some_and(|set| set.counters.contains_key(counter))
    };
    let all_there = device.consumes.iter().all(|uses| uses.counters.keys().all(|counter| has(&uses.set, counter)));
    (!all_there).then_some("it draws on a counter that its backend does not have")
}

fn chunks<T>(items: Vec<T>, most: usize) -> impl Iterator<Item = Vec<T>> {
    let mut items = items.into_iter().peekable();
    std::iter::from_fn(move || items.peek().is_some().then(|| items.by_ref().take(most).collect()))
}

#[cfg(test)]
mod tests;
