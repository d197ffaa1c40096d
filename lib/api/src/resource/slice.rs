//! ResourceSlices as the API server writes them, in the shape of v1: only the fields that this driver publishes, in
//! as little memory as a thousand devices need. v1beta1 wraps the fields of a device in `basic`;
//! [`SliceDevice::wrapped`] and [`SliceDevice::unwrapped`] translate.
//!
//! Two contents are equal when they mean the same: quantities by value, maps in any order, and whenever a taint was
//! added.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::or_empty;
use crate::{
    ExactQuantity, Quantity,
    core::{NodeSelector, ObjectMeta},
    quantity::quantity_text,
    resource::{DeviceTaint, SortedMap},
};

/// A ResourceSlice: a part of a pool.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ResourceSlice {
    /// Name.
    pub metadata: ObjectMeta,
    /// Pool, nodes and devices.
    pub spec: ResourceSliceSpec,
}

impl ResourceSlice {
    /// Returns the slice in the shape of v1, from either shape.
    #[must_use]
    pub fn unwrapped(mut self) -> Self {
        self.spec.devices = self.spec.devices.into_iter().map(SliceDevice::unwrapped).collect();
        self
    }
}

/// Content of a slice.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSliceSpec {
    /// Driver of the devices.
    pub driver: String,
    /// Pool that the slice is a part of.
    pub pool: ResourcePool,
    /// Node that can use the devices; absent for devices that are not one node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Nodes that can use the devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<Box<NodeSelector>>,
    /// True if every node can use the devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// True if each device itself names the nodes that can use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_device_node_selection: Option<bool>,
    /// Devices in the order of preference.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<SliceDevice>,
    /// Counters that devices of the pool draw on.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub shared_counters: Vec<SliceCounterSet>,
}

/// The pool that a slice is a part of.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcePool {
    /// Name of the pool.
    pub name: String,
    /// Only the slices with the highest generation count.
    pub generation: i64,
    /// Number of slices with this generation.
    pub resource_slice_count: i64,
}

/// Published content of a slice: devices or counters, never both.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct SliceContent {
    /// Nodes that can use the devices, where these are not one node's.
    pub node_selector: Option<Box<NodeSelector>>,
    /// Devices in the order of preference.
    pub devices: Vec<SliceDevice>,
    /// Counters that devices of the pool draw on.
    pub shared_counters: Vec<SliceCounterSet>,
}

/// A device; with `basic`, the inner one has no name and the outer one nothing else.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceDevice {
    /// Name of the device, unique in the pool.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Box<str>,
    /// Inner device; v1beta1 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic: Option<Box<SliceDevice>>,
    /// Attributes, for selectors.
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub attributes: SortedMap<DeviceAttribute>,
    /// Capacities: properties that can be counted.
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub capacity: SortedMap<DeviceCapacity>,
    /// Amounts of shared counters that the device takes.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub consumes_counters: Vec<DeviceCounterConsumption>,
    /// Node that can use the device, where each device says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<Box<str>>,
    /// Nodes that can use the device, where each device says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<Box<NodeSelector>>,
    /// True if every node can use the device, where each device says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// Reasons against its use.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<DeviceTaint>,
    /// True if an allocation is then only good on the node that was chosen.
    #[serde(skip_serializing_if = "is_false")]
    pub binds_to_node: bool,
    /// Conditions that must become true before a pod is bound.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub binding_conditions: Vec<String>,
    /// Conditions that make the scheduler choose anew.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub binding_failure_conditions: Vec<String>,
    /// True if several claims can hold the device.
    #[serde(skip_serializing_if = "is_false")]
    pub allow_multiple_allocations: bool,
    /// Resources of the node that the device stands for, in the field of 1.36.
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub node_allocatable_resource_mappings: SortedMap<NodeAllocatableMapping136>,
    /// Resources of the node that the device stands for, in the field of 1.37.
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub node_allocatable_resources: SortedMap<NodeAllocatableResource137>,
}

impl SliceDevice {
    /// Returns the device in the shape of v1beta1.
    pub fn wrapped(&self) -> Self {
        let inner = Self { name: Box::default(), ..self.clone() };
        Self { name: self.name.clone(), basic: Some(Box::new(inner)), ..Self::default() }
    }

    /// Returns the device in the shape of v1, from either shape.
    #[must_use]
    pub fn unwrapped(mut self) -> Self {
        match self.basic.take() {
            Some(basic) => Self { name: self.name, ..*basic },
            None => self,
        }
    }
}

/// The value of an attribute.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DeviceAttribute {
    /// A whole number.
    Int(i64),
    /// True or false.
    Bool(bool),
    /// Text.
    String(Box<str>),
    /// A semantic version.
    Version(Box<str>),
    /// Several whole numbers.
    Ints(Box<[i64]>),
    /// Several of true and false.
    Bools(Box<[bool]>),
    /// Several texts.
    Strings(Box<[String]>),
    /// Several versions.
    Versions(Box<[String]>),
    /// A value of a kind that is not known here, or none.
    #[serde(untagged)]
    Unknown(serde_json::Value),
}

/// An amount, and the parts of it that can be requested.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceCapacity {
    /// The whole amount.
    pub value: SliceQuantity,
    /// Parts that can be requested; only where several claims share the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_policy: Option<Box<CapacityRequestPolicy>>,
}

/// Parts of a capacity that can be requested.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityRequestPolicy {
    /// Amount for a request that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<SliceQuantity>,
    /// The only valid amounts.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub valid_values: Vec<SliceQuantity>,
    /// Range of valid amounts, instead of single ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_range: Option<CapacityRequestPolicyRange>,
}

/// `min`, `min + step`, … up to `max`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CapacityRequestPolicyRange {
    /// Least amount.
    pub min: SliceQuantity,
    /// Greatest amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<SliceQuantity>,
    /// Distance between amounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<SliceQuantity>,
}

/// A quantity. A foreign one that cannot be counted is kept as it is, and stops nothing.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum SliceQuantity {
    /// An amount.
    Exact(ExactQuantity),
    /// Not an amount, or more than can be counted.
    Unreadable(Box<str>),
}

impl SliceQuantity {
    /// The amount, if it is one.
    pub fn get(&self) -> Option<ExactQuantity> {
        match self {
            Self::Exact(quantity) => Some(*quantity),
            Self::Unreadable(_) => None,
        }
    }
}

impl From<Quantity> for SliceQuantity {
    fn from(quantity: Quantity) -> Self {
        Self::Exact(quantity.into())
    }
}

impl Serialize for SliceQuantity {
    /// Writes hostler's own amounts as [`Quantity`] does: they shall not look different in other places.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Exact(exact) => {
                let ours = Quantity::try_from(*exact).ok();
                match ours.filter(|ours| ExactQuantity::from(*ours) == *exact) {
                    Some(ours) => serializer.collect_str(&ours),
                    None => exact.serialize(serializer),
                }
            }
            Self::Unreadable(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for SliceQuantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = quantity_text(deserializer)?;
        Ok(text.parse().map_or_else(|_| Self::Unreadable((*text).into()), Self::Exact))
    }
}

/// Counters that devices of a pool draw on.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SliceCounterSet {
    /// Unique in the pool.
    pub name: Box<str>,
    /// Total of each counter, by name.
    #[serde(default)]
    pub counters: SortedMap<Counter>,
}

/// Amounts that a device takes of a [`SliceCounterSet`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceCounterConsumption {
    /// Name of the set.
    pub counter_set: Box<str>,
    /// Amount of each counter, by name.
    #[serde(default)]
    pub counters: SortedMap<Counter>,
}

/// One counter.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Counter {
    /// Amount of the counter.
    pub value: SliceQuantity,
}

/// Share of a node's resource that a device stands for, in 1.36.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAllocatableMapping136 {
    /// The capacity that counts; the whole device where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_key: Option<Box<str>>,
    /// Units of the resource per unit of the capacity, or per device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_multiplier: Option<SliceQuantity>,
}

/// Share of a node's resource that a device stands for, in 1.37.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeAllocatableResource137 {
    /// Mapping to the resource; absent where a device only costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<Box<NodeAllocatableMapping137>>,
}

/// Multipliers of 1.37.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAllocatableMapping137 {
    /// The capacity that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_key: Option<Box<str>>,
    /// Units of the resource per unit of the capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_multiplier: Option<SliceQuantity>,
    /// Units of the resource per device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_multiplier: Option<SliceQuantity>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests;
