//! ResourceSlices as the API server writes them, in the shape of v1: only what this driver publishes, in as little memory
//! as a thousand devices need. v1beta1 wraps what it says of a device in `basic`; [`SliceDevice::wrapped`] and
//! [`SliceDevice::unwrapped`] translate.
//!
//! Two contents are equal when they mean the same: quantities by value, maps in any order, and whenever a taint was added.

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
    /// What it says.
    pub spec: ResourceSliceSpec,
}

impl ResourceSlice {
    /// As v1 has it, whichever way it came.
    #[must_use]
    pub fn unwrapped(mut self) -> Self {
        self.spec.devices = self.spec.devices.into_iter().map(SliceDevice::unwrapped).collect();
        self
    }
}

/// What a slice says.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSliceSpec {
    /// Whose devices.
    pub driver: String,
    /// Of which pool.
    pub pool: ResourcePool,
    /// The node that can use them; absent for devices that are not one node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The nodes that can use them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<Box<NodeSelector>>,
    /// Whether every node can use them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// Whether each device says itself which nodes can use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_device_node_selection: Option<bool>,
    /// In the order of preference.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<SliceDevice>,
    /// What devices of the pool draw on.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub shared_counters: Vec<SliceCounterSet>,
}

/// The pool that a slice is a part of.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcePool {
    /// Its name.
    pub name: String,
    /// Only the slices with the highest generation count.
    pub generation: i64,
    /// How many slices there are with this generation.
    pub resource_slice_count: i64,
}

/// What a slice publishes: devices or counters, never both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SliceContent {
    /// In the order of preference.
    pub devices: Vec<SliceDevice>,
    /// What devices of the pool draw on.
    pub shared_counters: Vec<SliceCounterSet>,
}

/// A device; with `basic`, the inner one has no name and the outer one nothing else.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceDevice {
    /// Unique in the pool.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Box<str>,
    /// v1beta1 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic: Option<Box<SliceDevice>>,
    /// For selectors.
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub attributes: SortedMap<DeviceAttribute>,
    /// What can be counted.
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub capacity: SortedMap<DeviceCapacity>,
    /// What it takes of shared counters.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub consumes_counters: Vec<DeviceCounterConsumption>,
    /// The node that can use it, where each device says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<Box<str>>,
    /// The nodes that can use it, where each device says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<Box<NodeSelector>>,
    /// Whether every node can use it, where each device says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// Why it should not be used.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<DeviceTaint>,
    /// Whether an allocation is then only good on the node that was chosen.
    #[serde(skip_serializing_if = "is_false")]
    pub binds_to_node: bool,
    /// What must become true before a pod is bound.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub binding_conditions: Vec<String>,
    /// What makes the scheduler choose anew.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub binding_failure_conditions: Vec<String>,
    /// Whether several claims can hold it.
    #[serde(skip_serializing_if = "is_false")]
    pub allow_multiple_allocations: bool,
    /// What it stands for of the node's own resources, as 1.36 calls it.
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub node_allocatable_resource_mappings: SortedMap<NodeAllocatableMapping136>,
    /// As 1.37 calls it.
    #[serde(skip_serializing_if = "SortedMap::is_empty")]
    pub node_allocatable_resources: SortedMap<NodeAllocatableResource137>,
}

impl SliceDevice {
    /// As v1beta1 has it.
    pub fn wrapped(&self) -> Self {
        let inner = Self { name: Box::default(), ..self.clone() };
        Self { name: self.name.clone(), basic: Some(Box::new(inner)), ..Self::default() }
    }

    /// As v1 has it, whichever way it came.
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

/// An amount, and how parts of it are requested.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceCapacity {
    /// All there is.
    pub value: SliceQuantity,
    /// Only where several claims share the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_policy: Option<Box<CapacityRequestPolicy>>,
}

/// Which parts of a capacity can be requested.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityRequestPolicy {
    /// What a request that names no amount gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<SliceQuantity>,
    /// These and no others.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub valid_values: Vec<SliceQuantity>,
    /// Or these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_range: Option<CapacityRequestPolicyRange>,
}

/// `min`, `min + step`, … up to `max`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CapacityRequestPolicyRange {
    /// The least.
    pub min: SliceQuantity,
    /// The most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<SliceQuantity>,
    /// The distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<SliceQuantity>,
}

/// A quantity. One that somebody else wrote and that cannot be counted is kept as it is, and stops nothing.
#[derive(Clone, Debug, PartialEq)]
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
    /// Our own amounts as [`Quantity`] writes them: they shall not look different in other places.
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
    /// What there is.
    #[serde(default)]
    pub counters: SortedMap<Counter>,
}

/// How much of a [`SliceCounterSet`] a device takes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceCounterConsumption {
    /// Name of the set.
    pub counter_set: Box<str>,
    /// How much of each.
    #[serde(default)]
    pub counters: SortedMap<Counter>,
}

/// One counter.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Counter {
    /// How much.
    pub value: SliceQuantity,
}

/// What a device stands for of a resource of the node, in 1.36.
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

/// The same in 1.37.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeAllocatableResource137 {
    /// Absent where a device only costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<Box<NodeAllocatableMapping137>>,
}

/// How 1.37 counts.
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
