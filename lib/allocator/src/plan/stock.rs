//! The stock of a cluster: for every pool its devices, with their node, classes, state and holders. Pools are judged
//! one by one, and only changed pools anew.
//!
//! A device that the driver publishes counts, no matter if it can be allocated now:
//! - A device of an incomplete pool, or of one with a device name twice, is given to no claim: it is blocked.
//! - A partition of a card that draws on counters of which others have too much is blocked as well.
//! - A claim with administrative access to a device has nothing of it.

mod amounts;
mod counters;
mod judge;
mod kinds;
mod pool;

use std::sync::Arc;

use hostler_api::{
    ObjectKey, Quantity,
    hardware::{AmountCounts, DeviceCounts, DeviceState},
};

use super::facts::{ClusterFacts, FactChanges, PoolKey};

pub use judge::DeviceJudge;
pub use kinds::DeviceKind;

/// Identity of a pool. It stays valid until everything is judged anew.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PoolId(PoolKey);

/// The devices of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolStock {
    /// Name of the pool.
    pub pool: Arc<str>,
    /// Devices that are alike.
    pub groups: Vec<DeviceGroup>,
    /// Devices that claims have, by namespace.
    pub given: Vec<GivenDevices>,
}

/// Devices of a pool that are alike in all that is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceGroup {
    /// The one node that can use them.
    pub node: Option<Arc<str>>,
    /// Kind of the devices.
    pub kind: Arc<DeviceKind>,
    /// Numbers of devices by state.
    pub counts: DeviceCounts,
    /// Numbers of those devices of which claims have all or a part.
    pub given: DeviceCounts,
    /// Numbers of held devices, by the value of the taint that holds them, which identifies the Reservation.
    pub held_for: Vec<(Arc<str>, u32)>,
    /// Counted amounts of each capacity that several claims can share, by its name.
    pub amounts: Vec<(Arc<str>, AmountCounts)>,
}

/// Devices of a pool that the claims of a namespace have.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenDevices {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The one node that can use them.
    pub node: Option<Arc<str>>,
    /// Kind of the devices.
    pub kind: Arc<DeviceKind>,
    /// Number of devices of which the claims have all or a part.
    pub devices: u32,
    /// Amounts that the claims have of each capacity that several claims can share, by its name.
    pub amounts: Vec<(Arc<str>, Quantity)>,
}

/// One device.
#[derive(Clone, Debug, PartialEq)]
pub struct StockDevice {
    /// Name of the device in the pool.
    pub name: String,
    /// The pool.
    pub pool: Arc<str>,
    /// The one node that can use it.
    pub node: Option<Arc<str>>,
    /// Kind of the device.
    pub kind: Arc<DeviceKind>,
    /// State of the device.
    pub state: DeviceState,
    /// Value of the taint that holds the device, also while a claim has it: it identifies the Reservation. Empty
    /// where only an attribute marks the device as held.
    pub held_for: Option<Arc<str>>,
    /// The claims that have it or a part of it, with the pods that may use them.
    pub holders: Vec<DeviceHolder>,
    /// Counted amounts of each capacity that several claims can share, by its name.
    pub amounts: Vec<(Arc<str>, AmountCounts)>,
}

/// A claim that has a device or a part of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceHolder {
    /// The claim.
    pub claim: Arc<ObjectKey>,
    /// Names of the pods that may use it.
    pub pods: Vec<String>,
    /// Amounts that the claim has of each capacity that several claims can share, by its name.
    pub amounts: Vec<(Arc<str>, Quantity)>,
}

impl ClusterFacts {
    /// All pools.
    pub fn pools(&self) -> impl Iterator<Item = PoolId> {
        self.pools.iter().map(|(key, _)| PoolId(*key))
    }

    /// The pools that a change is about.
    pub fn changed_pools(&self, changes: &FactChanges) -> Vec<PoolId> {
        if changes.is_all() {
            return self.pools().collect();
        }
        let rules = || changes.rules.values().flatten();
        let is_ruled = |key: &PoolKey| rules().any(|rule| pool::may_be_about(rule, self.text(key.0), self.text(key.1)));
        let mut pools: Vec<PoolId> = changes.pools.iter().copied().map(PoolId).collect();
        if rules().next().is_some() {
            pools.extend(self.pools().filter(|pool| !changes.pools.contains(&pool.0) && is_ruled(&pool.0)));
        }
        pools
    }
}

impl Default for DeviceKind {
    fn default() -> Self {
        Self { driver: "".into(), numa_node: None, classes: Arc::new([]) }
    }
}

#[cfg(test)]
mod tests;
