//! Devices of a node that claims hold already, by their index in the node's pools.

use hostler_api::resource::policy::Amount;

use super::{
    bits::DeviceBits,
    pools::NodePools,
    quirks::Quirks,
    state::{AllocatedState, DeviceAllocation, PoolAllocations},
};

/// Allocations of claims in the pools of a node.
#[derive(Debug)]
pub(super) struct NodeState<'s> {
    state: &'s AllocatedState,
    quirks: Quirks,
    /// Devices of which a claim holds all.
    pub(super) whole: DeviceBits,
    /// Devices with shares that name their amounts.
    pub(super) shared: DeviceBits,
    /// Amounts that shares take, by capacity; empty where no device is shared.
    pub(super) consumed: Vec<Amount>,
}

impl<'s> NodeState<'s> {
    pub(super) fn new(state: &'s AllocatedState, pools: &NodePools<'_>, quirks: Quirks) -> Self {
        let none = || DeviceBits::none(pools.devices.len());
        let mut this = Self { state, quirks, whole: none(), shared: none(), consumed: Vec::new() };
        for pool in pools.pools.iter().filter(|pool| !pool.devices.is_empty()) {
            let Some(allocations) = state.pool(pool.driver, pool.name) else { continue };
            for device in pool.devices.clone() {
                if let Some(allocation) = allocations.get(&*pools.devices[device].device.name) {
                    this.add(device, allocation, pools);
                }
            }
        }
        this
    }

    fn add(&mut self, at: usize, allocation: &DeviceAllocation, pools: &NodePools<'_>) {
        if allocation.is_whole {
            self.whole.insert(at);
        }
        let Some(consumed) = &allocation.consumed else { return };
        self.shared.insert(at);
        self.consumed.resize(pools.capacities, Amount::default());
        let device = &pools.devices[at];
        for (slot, (name, _)) in device.capacities().zip(device.device.capacity.iter()) {
            self.consumed[slot] = consumed.get(name).copied().unwrap_or_default();
        }
    }

    /// Returns the amount that shares take of the capacity at this place.
    pub(super) fn consumed(&self, slot: usize) -> Amount {
        self.consumed.get(slot).copied().unwrap_or_default()
    }

    /// Returns the allocations in a pool.
    pub(super) fn pool(&self, driver: &str, pool: &str) -> Option<PoolAllocations<'s>> {
        self.state.counter_takers(driver, pool, self.quirks)
    }
}
