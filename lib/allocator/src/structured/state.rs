//! Devices that claims hold already.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::resource::{AllocationResult, DeviceRequestAllocationResult, SliceQuantity, policy::Amount};

use super::{
    names::NameTable,
    quirks::{Quirk, Quirks},
    version::{Feature, Features},
};

/// Allocations of claims in a cluster, pool by pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatedState {
    /// Devices by driver, then pool.
    pools: NameTable<Box<str>, NameTable<Box<str>, DeviceAllocations>>,
}

pub(super) type DeviceAllocations = NameTable<Box<str>, DeviceAllocation>;

/// Allocations of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DeviceAllocation {
    /// True if one claim holds all of it.
    pub(super) is_whole: bool,
    /// Identities of shares.
    shares: BTreeSet<Box<str>>,
    /// The sum of all shares, where any share names its amounts.
    pub(super) consumed: Option<BTreeMap<Box<str>, Amount>>,
}

impl DeviceAllocation {
    fn is_nothing(&self) -> bool {
        !self.is_whole && self.shares.is_empty() && self.consumed.is_none()
    }
}

impl AllocatedState {
    /// Makes a state in which no device is held.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that a claim holds all of a device.
    pub fn hold(&mut self, driver: &str, pool: &str, device: &str) {
        self.device(driver, pool, device).is_whole = true;
    }

    /// Notes that a claim holds a share of a device.
    pub fn share(&mut self, driver: &str, pool: &str, device: &str, share_id: &str) {
        self.device(driver, pool, device).shares.insert(share_id.into());
    }

    /// Adds to the amounts that shares of a device take of its capacities.
    pub fn consume<'c>(
        &mut self,
        driver: &str,
        pool: &str,
        device: &str,
        capacities: impl IntoIterator<Item = (&'c str, &'c SliceQuantity)>,
    ) {
        let consumed = self.device(driver, pool, device).consumed.get_or_insert_default();
        for (capacity, quantity) in capacities {
            let sum = consumed.entry(capacity.into()).or_default();
            *sum = sum.plus(quantity.into());
        }
    }

    /// Adds the allocation of a claim.
    pub fn add(&mut self, features: Features, allocation: &AllocationResult) {
        for result in held(allocation) {
            let DeviceRequestAllocationResult { driver, pool, device, .. } = result;
            match share_of(features, result) {
                None => self.hold(driver, pool, device),
                Some(share) => {
                    self.share(driver, pool, device, share);
                    let consumed = consumed(result);
                    if !consumed.is_empty() {
                        self.consume(driver, pool, device, consumed.iter().map(|(name, quantity)| (&**name, quantity)));
                    }
                }
            }
        }
    }

    /// Removes the allocation of a claim.
    pub fn remove(&mut self, features: Features, allocation: &AllocationResult) {
        for result in held(allocation) {
            let device = self.device(&result.driver, &result.pool, &result.device);
            match share_of(features, result) {
                None => device.is_whole = false,
                Some(share) => {
                    device.shares.remove(share);
                    device.give_back(&consumed(result));
                }
            }
            self.forget_nothing(result);
        }
    }

    fn forget_nothing(&mut self, result: &DeviceRequestAllocationResult) {
        let Some(pools) = self.pools.get_mut(&*result.driver) else { return };
        let Some(devices) = pools.get_mut(&*result.pool) else { return };
        if devices.get(&*result.device).is_some_and(DeviceAllocation::is_nothing) {
            devices.remove(&*result.device);
        }
    }

    fn device(&mut self, driver: &str, pool: &str, device: &str) -> &mut DeviceAllocation {
        let pools = self.pools.entry(driver.into()).or_default();
        pools.entry(pool.into()).or_default().entry(device.into()).or_default()
    }

    pub(super) fn pool(&self, driver: &str, pool: &str) -> Option<&DeviceAllocations> {
        self.pools.get(driver)?.get(pool).filter(|devices| !devices.is_empty())
    }

    /// Returns the allocations in a pool, for the counters that they take.
    pub(super) fn counter_takers(&self, driver: &str, pool: &str, quirks: Quirks) -> Option<PoolAllocations<'_>> {
        let devices = self.pool(driver, pool)?;
        Some(PoolAllocations { devices, whole_only: quirks.has(Quirk::SharesTakeNoCounters) })
    }
}

impl DeviceAllocation {
    fn give_back(&mut self, capacities: &BTreeMap<String, SliceQuantity>) {
        let Some(consumed) = &mut self.consumed else { return };
        for (capacity, quantity) in capacities {
            if let Some(sum) = consumed.get_mut(&**capacity) {
                *sum = sum.minus(quantity.into());
            }
        }
        if consumed.values().all(|sum| sum.is_zero()) {
            self.consumed = None;
        }
    }
}

/// Returns the results that keep others away: access for administration does not.
fn held(allocation: &AllocationResult) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    allocation.devices.results.iter().filter(|result| result.admin_access != Some(true))
}

fn share_of(features: Features, result: &DeviceRequestAllocationResult) -> Option<&str> {
    result.share_id.as_deref().filter(|_| features.has(Feature::ConsumableCapacity))
}

fn consumed(result: &DeviceRequestAllocationResult) -> BTreeMap<String, SliceQuantity> {
    let quantities = result.consumed_capacity.iter();
    quantities.filter_map(|(name, value)| Some((name.clone(), serde_json::from_value(value.clone()).ok()?))).collect()
}

/// Allocations of claims in a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolAllocations<'s> {
    devices: &'s DeviceAllocations,
    whole_only: bool,
}

impl PoolAllocations<'_> {
    /// Returns true if the device is held in a way that takes its counters.
    pub(super) fn takes_counters(&self, device: &str) -> bool {
        self.devices.get(device).is_some_and(|it| it.is_whole || (!self.whole_only && !it.is_nothing()))
    }
}

#[cfg(test)]
mod tests {
    use hostler_api::{Quantity, resource::DeviceAllocationResult};
    use serde_json::json;

    use super::*;

    fn allocation(results: serde_json::Value) -> AllocationResult {
        let results = serde_json::from_value(results).unwrap();
        let devices = DeviceAllocationResult { results, config: Vec::new() };
        AllocationResult { devices, ..AllocationResult::default() }
    }

    fn share(id: &str, amount: &str) -> serde_json::Value {
        json!({"request": "r", "driver": "d", "pool": "p", "device": "a", "shareID": id,
            "consumedCapacity": {"memory": amount}})
    }

    #[test]
    fn what_is_added_and_removed_again_leaves_nothing() {
        let mut state = AllocatedState::new();
        let whole = allocation(json!([{"request": "r", "driver": "d", "pool": "p", "device": "b"}]));
        let shares = [allocation(json!([share("1", "2")])), allocation(json!([share("2", "3")]))];
        for allocation in shares.iter().chain([&whole]) {
            state.add(Features::all(), allocation);
        }
        let device = state.device("d", "p", "a").clone();
        assert_eq!(device.consumed.unwrap()["memory"], Quantity::whole(5).into());
        assert_eq!(device.shares.len(), 2);
        assert!(state.device("d", "p", "b").is_whole);
        for allocation in shares.iter().chain([&whole]) {
            state.remove(Features::all(), allocation);
        }
        assert!(state.pool("d", "p").is_none());
    }

    #[test]
    fn access_for_administration_holds_nothing() {
        let admin = json!([{"request": "r", "driver": "d", "pool": "p", "device": "a", "adminAccess": true}]);
        let mut state = AllocatedState::new();
        state.add(Features::all(), &allocation(admin));
        assert!(state.pool("d", "p").is_none());
    }

    #[test]
    fn where_shares_are_not_known_a_share_holds_the_device() {
        let mut state = AllocatedState::new();
        state.add(Features::default(), &allocation(json!([share("1", "2")])));
        assert!(state.device("d", "p", "a").is_whole);
    }
}
