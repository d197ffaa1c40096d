//! The devices that one node can use, in the order in which the search goes through them.
//!
//! Everything here depends on slices and the node alone; allocations of claims come in with [`AllocatedState`] only.
//!
//! [`AllocatedState`]: super::AllocatedState

use std::{collections::BTreeMap, ops::Range};

use hostler_api::{
    core::{NodeSelector, NodeSelectorError},
    resource::{DeviceCapacity, ResourceSlice, ResourceSliceSpec, SliceDevice},
};

use super::{
    counters::{CounterLayout, CounterLayoutBuilder},
    names::NameSet,
    quirks::{Quirk, Quirks},
    version::{Feature, Features},
};
use hostler_cel::DeviceFacts;

mod gather;
mod index;

pub(super) use gather::FoundPool;
pub use index::SliceIndex;

/// Name and labels of a node, for selectors of nodes.
#[derive(Clone, Copy, Debug)]
pub struct NodeFacts<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Labels of the node.
    pub labels: &'a BTreeMap<String, String>,
}

impl NodeFacts<'_> {
    /// Returns true if the node is the one with this name, or one of those selected, or if all nodes are allowed.
    fn is_allowed(
        &self,
        name: Option<&str>,
        all: Option<bool>,
        selector: Option<&NodeSelector>,
    ) -> Result<bool, NodeSelectorError> {
        match (name, all, selector) {
            (Some(name), ..) if !name.is_empty() => Ok(name == self.name),
            (_, Some(true), _) => Ok(true),
            (.., Some(selector)) => selector.check().map(|()| selector.matches(self.name, self.labels)),
            _ => Ok(false),
        }
    }
}

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

/// State of a pool: reasons why its devices cannot be used, if there are any.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct PoolState {
    /// True if some of its slices are missing.
    pub(super) is_incomplete: bool,
    /// Contradiction within the pool, in words.
    pub(super) contradiction: Option<String>,
}

impl PoolState {
    pub(super) fn is_usable(&self) -> bool {
        !self.is_incomplete && self.contradiction.is_none()
    }

    /// Returns the reason why devices cannot be used, in words.
    pub(super) fn problem(&self) -> Option<String> {
        let incomplete = self.is_incomplete.then(|| "incomplete: some of its slices are missing".to_owned());
        incomplete.or_else(|| self.contradiction.as_ref().map(|contradiction| format!("invalid: {contradiction}")))
    }
}

/// A device that a node may use.
#[derive(Debug)]
pub(super) struct NodeDevice<'a> {
    pub(super) device: &'a SliceDevice,
    pub(super) slice: &'a ResourceSliceSpec,
    /// The devices of its slice.
    pub(super) siblings: Range<usize>,
    /// Index of its first capacity among those of all devices.
    pub(super) first_capacity: usize,
    /// True if one claim holds all of it, and no policy applies to its capacities.
    pub(super) is_simple: bool,
}

impl NodeDevice<'_> {
    /// Returns true if the node can use the device. Only devices of a slice with per-device node selection exclude
    /// nodes.
    pub(super) fn is_for(&self, node: &NodeFacts<'_>) -> Result<bool, NodeSelectorError> {
        if self.slice.per_device_node_selection != Some(true) {
            return Ok(true);
        }
        allows(node, self.device)
    }

    /// Returns the device as selectors see it.
    pub(super) fn facts(&self, knows_parts: bool) -> DeviceFacts<'_> {
        DeviceFacts {
            driver: &self.slice.driver,
            attributes: &self.device.attributes,
            capacity: &self.device.capacity,
            allow_multiple_allocations: knows_parts && self.device.allow_multiple_allocations,
        }
    }

    /// Range of its capacities among those of all devices.
    pub(super) fn capacities(&self) -> Range<usize> {
        self.first_capacity..self.first_capacity + self.device.capacity.len()
    }

    /// `driver/pool/device`.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}/{}", self.slice.driver, self.slice.pool.name, self.device.name)
    }
}

fn is_simple(device: &SliceDevice) -> bool {
    let is_simple = |capacity: &DeviceCapacity| capacity.request_policy.is_none() && capacity.value.get().is_some();
    !device.allow_multiple_allocations && device.capacity.iter().all(|(_, capacity)| is_simple(capacity))
}

fn allows(node: &NodeFacts<'_>, device: &SliceDevice) -> Result<bool, NodeSelectorError> {
    node.is_allowed(device.node_name.as_deref(), device.all_nodes, device.node_selector.as_deref())
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
