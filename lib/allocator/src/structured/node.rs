//! A node and the devices that it may use, as slices name them.

use std::{collections::BTreeMap, ops::Range};

use hostler_api::{
    core::{NodeSelector, NodeSelectorError},
    resource::{DeviceCapacity, ResourceSliceSpec, SliceDevice},
};
use hostler_cel::DeviceFacts;

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
    pub(super) fn is_allowed(
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

/// True if one claim holds all of the device, and no policy applies to its capacities.
pub(super) fn is_simple(device: &SliceDevice) -> bool {
    let is_simple = |capacity: &DeviceCapacity| capacity.request_policy.is_none() && capacity.value.get().is_some();
    !device.allow_multiple_allocations && device.capacity.iter().all(|(_, capacity)| is_simple(capacity))
}

/// Returns true if the device names the node, or selects it.
pub(super) fn allows(node: &NodeFacts<'_>, device: &SliceDevice) -> Result<bool, NodeSelectorError> {
    node.is_allowed(device.node_name.as_deref(), device.all_nodes, device.node_selector.as_deref())
}
