//! What a cluster has in stock: for every pool its devices, judged: where they are, of which classes, in which state, and who
//! has them. Pools are judged one by one, and only those anew of which something changed.
//!
//! A device that the driver publishes counts, whoever could have it now:
//! - One in a pool that is incomplete, or whose name is there twice, is given to nobody: it is blocked.
//! - A partition of a card that draws on counters of which others have too much is blocked as well.
//! - Who looks after a device with administrative access has nothing of it.

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

/// Which pool is meant, as long as nothing is judged anew from the ground up.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PoolId(PoolKey);

/// The devices of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolStock {
    /// Its name.
    pub pool: Arc<str>,
    /// Devices that are alike.
    pub groups: Vec<DeviceGroup>,
    /// What claims have, by namespace.
    pub given: Vec<GivenDevices>,
}

/// Devices of a pool that are alike in all that is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceGroup {
    /// The one node that can use them.
    pub node: Option<Arc<str>>,
    /// What they are.
    pub kind: Arc<DeviceKind>,
    /// How many are in which state.
    pub counts: DeviceCounts,
    /// Of these, what is counted of those of which claims have something.
    pub given: DeviceCounts,
    /// How many are held, by the value of the taint that holds them, which says for whom.
    pub held_for: Vec<(Arc<str>, u32)>,
    /// What there is of each capacity that several claims can share, by its name.
    pub amounts: Vec<(Arc<str>, AmountCounts)>,
}

/// What the claims of a namespace have of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenDevices {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The one node that can use them.
    pub node: Option<Arc<str>>,
    /// What they are.
    pub kind: Arc<DeviceKind>,
    /// Of how many devices they have all or a part.
    pub devices: u32,
    /// What they have of each capacity that several claims can share, by its name.
    pub amounts: Vec<(Arc<str>, Quantity)>,
}

/// One device.
#[derive(Clone, Debug, PartialEq)]
pub struct StockDevice {
    /// Its name in the pool.
    pub name: String,
    /// The pool.
    pub pool: Arc<str>,
    /// The one node that can use it.
    pub node: Option<Arc<str>>,
    /// What it is.
    pub kind: Arc<DeviceKind>,
    /// How it is.
    pub state: DeviceState,
    /// For whom it is held, also while somebody has it: the value of the taint; empty where only an attribute says that it is.
    pub held_for: Option<Arc<str>>,
    /// The claims that have it or a part of it, with the pods that may use them.
    pub holders: Vec<DeviceHolder>,
    /// What there is of each capacity that several claims can share, by its name.
    pub amounts: Vec<(Arc<str>, AmountCounts)>,
}

/// A claim that has a device or a part of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceHolder {
    /// The claim.
    pub claim: Arc<ObjectKey>,
    /// Names of the pods that may use it.
    pub pods: Vec<String>,
    /// What it has of each capacity that several claims can share, by its name.
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
