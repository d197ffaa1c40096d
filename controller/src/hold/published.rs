//! Devices that slices publish.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_cluster::is_older;

use super::objects::{DeviceKey, PublishedDevice, PublishedSlice};

/// Driver and name of a pool.
pub(super) type PoolName = (String, String);

/// Slices, by name. Copies share the slices: each question to the planner takes a copy.
#[derive(Clone, Debug, Default)]
pub(super) struct PublishedDevices {
    slices: BTreeMap<String, Arc<PublishedSlice>>,
    pools: BTreeMap<PoolName, BTreeSet<String>>,
}

impl PublishedDevices {
    /// True if a newer version of the slice is known.
    pub(super) fn is_old(&self, slice: &PublishedSlice) -> bool {
        self.slices.get(&slice.name).is_some_and(|known| is_older(&slice.version, &known.version))
    }

    /// True if the slice has a device that can be used now and could not be used before.
    pub(super) fn has_gained(&self, slice: &PublishedSlice) -> bool {
        let was_usable = |device: &PublishedDevice| {
            let key = DeviceKey::new(&slice.driver, &slice.pool, &device.name);
            self.device(&key).is_some_and(|(_, known)| known.is_usable)
        };
        slice.devices.iter().any(|device| device.is_usable && !was_usable(device))
    }

    /// Takes a slice; returns the pools that may have changed.
    pub(super) fn add(&mut self, slice: PublishedSlice) -> Vec<PoolName> {
        let mut pools = self.remove(&slice.name);
        let pool = (slice.driver.clone(), slice.pool.clone());
        self.pools.entry(pool.clone()).or_default().insert(slice.name.clone());
        self.slices.insert(slice.name.clone(), Arc::new(slice));
        pools.push(pool);
        pools
    }

    pub(super) fn remove(&mut self, name: &str) -> Vec<PoolName> {
        let Some(slice) = self.slices.remove(name) else { return Vec::new() };
        let pool = (slice.driver.clone(), slice.pool.clone());
        if let Some(slices) = self.pools.get_mut(&pool) {
            slices.remove(name);
            if slices.is_empty() {
                self.pools.remove(&pool);
            }
        }
        vec![pool]
    }

    /// All devices, each with the slice that publishes it.
    pub(super) fn devices(&self) -> impl Iterator<Item = (&PublishedSlice, &PublishedDevice)> {
        self.slices.values().flat_map(|slice| slice.devices.iter().map(|device| (&**slice, device)))
    }

    /// The device with this key, and the slice that publishes it.
    pub(super) fn device(&self, key: &DeviceKey) -> Option<(&PublishedSlice, &PublishedDevice)> {
        let slices = self.pools.get(&(key.driver.clone(), key.pool.clone()))?;
        slices.iter().filter_map(|name| self.slices.get(name)).find_map(|slice| {
            let device = slice.devices.iter().find(|device| device.name == key.device)?;
            Some((&**slice, device))
        })
    }
}
