//! The devices that one node can use, in the order in which the search goes through them.
//!
//! Everything here depends on slices and the node alone; allocations of claims come in with [`AllocatedState`] only.
//!
//! [`AllocatedState`]: super::AllocatedState

use std::{collections::BTreeMap, ops::Range};

use hostler_api::{
    core::NodeSelectorError,
    resource::{ResourceSlice, ResourceSliceSpec, SliceDevice},
};

use super::{
    counters::{CounterLayout, CounterLayoutBuilder},
    found_pool::{FoundPool, PoolState},
    names::NameSet,
    node::{NodeDevice, NodeFacts, allows, is_simple},
    quirks::{Quirk, Quirks},
    version::{Feature, Features},
};

mod gather;
mod index;

pub use index::SliceIndex;

/// The reason why the devices of a node cannot be gathered.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GatherError {
    /// The slice's selector of nodes is invalid.
    #[error("slice {slice}: its nodeSelector cannot be understood")]
    Slice {
        /// Name of the slice.
        slice: String,
        /// The reason.
        #[source]
        source: NodeSelectorError,
    },
    /// A device's selector of nodes is invalid.
    #[error("slice {slice}, device {device}: its nodeSelector cannot be understood")]
    Device {
        /// Name of the slice.
        slice: String,
        /// Name of the device.
        device: String,
        /// The reason.
        #[source]
        source: NodeSelectorError,
    },
}

/// The pools that a node can use.
#[derive(Debug)]
pub struct NodePools<'a> {
    pub(super) node: NodeFacts<'a>,
    pub(super) pools: Vec<Pool<'a>>,
    /// Devices of all usable pools, one pool after the other.
    pub(super) devices: Vec<NodeDevice<'a>>,
    pub(super) counters: CounterLayout<'a>,
    /// Index of the device before which the search comes to an invalid pool, where that ends the search.
    pub(super) fails_at: Option<usize>,
    /// Number of capacities of all devices together.
    pub(super) capacities: usize,
}

/// A pool, as the node sees it.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    pub(super) driver: &'a str,
    pub(super) name: &'a str,
    pub(super) state: PoolState,
    /// Range of the devices in [`NodePools::devices`].
    pub(super) devices: Range<usize>,
}

impl Pool<'_> {
    /// `driver/name`.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.driver, self.name)
    }
}

impl<'a> NodePools<'a> {
    /// Gathers the pools of a node from the slices of all nodes.
    ///
    /// # Errors
    /// Fails when a selector of nodes is invalid.
    pub fn gather(
        features: Features,
        quirks: Quirks,
        node: NodeFacts<'a>,
        slices: &SliceIndex<'a>,
    ) -> Result<Self, GatherError> {
        let found = gather::PoolSlices::find(features, quirks, &node, slices)?;
        let mut builder = NodePoolsBuilder::new(features, quirks, node);
        for pool in found {
            builder.add(pool);
        }
        Ok(builder.finish())
    }

    /// Number of devices that the node may use.
    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// Driver, pool and name of the devices that the node may use, in the order of the search.
    pub fn devices(&self) -> impl Iterator<Item = (&'a str, &'a str, &'a SliceDevice)> {
        self.devices.iter().map(|it| (&*it.slice.driver, &*it.slice.pool.name, it.device))
    }
}

/// Puts pools together, device after device.
struct NodePoolsBuilder<'a> {
    features: Features,
    quirks: Quirks,
    counters: CounterLayoutBuilder<'a>,
    pools: NodePools<'a>,
}

impl<'a> NodePoolsBuilder<'a> {
    fn new(features: Features, quirks: Quirks, node: NodeFacts<'a>) -> Self {
        let counters = CounterLayout::default();
        let pools = NodePools { node, pools: Vec::new(), devices: Vec::new(), counters, fails_at: None, capacities: 0 };
        Self { features, quirks, counters: CounterLayoutBuilder::new(quirks), pools }
    }

    fn add(&mut self, found: FoundPool<'a>) {
        let start = self.pools.devices.len();
        let is_valid = found.state.contradiction.is_none();
        if !is_valid && self.quirks.has(Quirk::InvalidPoolsFatal) {
            self.pools.fails_at.get_or_insert(start);
        }
        if is_valid && (!found.state.is_incomplete || self.quirks.has(Quirk::IncompletePoolsUsed)) {
            found.device_slices.iter().for_each(|slice| self.add_devices(&slice.spec));
            if self.features.has(Feature::PartitionableDevices) {
                self.counters.add_pool(&found, &self.pools.devices[start..]);
            }
        }
        let devices = start..self.pools.devices.len();
        self.pools.pools.push(Pool { driver: found.driver, name: found.name, state: found.state, devices });
    }

    fn add_devices(&mut self, slice: &'a ResourceSliceSpec) {
        let start = self.pools.devices.len();
        let siblings = start..start + slice.devices.len();
        for device in &slice.devices {
            let first_capacity = self.pools.capacities;
            self.pools.capacities += device.capacity.len();
            let (siblings, is_simple) = (siblings.clone(), is_simple(device));
            self.pools.devices.push(NodeDevice { device, slice, siblings, first_capacity, is_simple });
        }
    }

    fn finish(self) -> NodePools<'a> {
        NodePools { counters: self.counters.finish(), ..self.pools }
    }
}
