//! One device in the words of the API.

use std::collections::BTreeMap;

use hostler_api::{
    DeviceName, Quantity,
    limits::MAX_ATTRIBUTES_AND_CAPACITIES,
    resource::{
        CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, DeviceAttribute, DeviceCapacity,
        DeviceCounterConsumption, DeviceTaint, NodeAllocatableMapping136, NodeAllocatableMapping137,
        NodeAllocatableResource137, SliceDevice, SliceQuantity, SortedMap,
    },
    well_known::{HELD_ATTRIBUTE, HELD_FOR_ATTRIBUTE, HELD_TAINT, TaintReason},
};
use hostler_backend::{AttributeValue, Capacity, CounterUse, Device, Health, NodeAllocatable, RequestPolicy, Sharing};
use hostler_reconcile::slices::{Dropped, Feature};

use super::SliceSettings;
use crate::{config::NodeAllocatableNames, inventory::Drain};

/// Obstacles to a new claim on a device, beside its health.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::kubernetes) struct DeviceObjections<'a> {
    /// True if the last scan of the device's backend failed.
    pub(in crate::kubernetes) is_stale: bool,
    /// The order of an operator that takes the device out of service.
    pub(in crate::kubernetes) drain: Option<&'a Drain>,
    /// For whom it is held.
    pub(in crate::kubernetes) held: Option<&'a str>,
}

/// The device, or why it is left out.
pub(super) fn device(
    device: &Device,
    against: DeviceObjections<'_>,
    settings: &SliceSettings,
    dropped: &Dropped,
) -> Result<SliceDevice, String> {
    let has_taints = !dropped.contains(&Feature::Taints);
    let by_attribute = against.held.is_some() && !has_taints;
    let words = held_words(device, against.held, by_attribute, settings);
    let against = DeviceObjections { held: against.held.filter(|_| has_taints), ..against };
    let taints = taints(device, against, settings);
    if let Some(taint) = taints.first().filter(|_| !has_taints) {
        return Err(format!("it would have the taint {}, which the API server does not store", taint.key));
    }
    if by_attribute && words.is_empty() {
        return Err("it is held, and has no room for the attribute that says so".to_owned());
    }
    let attributes = published_attributes(device, settings).chain(words).collect();
    let shared = device.sharing == Sharing::Shared && !dropped.contains(&Feature::Sharing);
    let binding = device.binding.as_ref().filter(|_| !dropped.contains(&Feature::Binding));
    let mut published = SliceDevice {
        name: device.name.as_str().into(),
        attributes,
        capacity: device.capacity.iter().map(|(name, it)| (name, capacity(it, shared))).collect(),
        consumes_counters: device.consumes.iter().map(consumption).collect(),
        taints,
        binds_to_node: binding.is_some_and(|binding| binding.binds_to_node),
        binding_conditions: binding.map(|binding| binding.conditions.clone()).unwrap_or_default(),
        binding_failure_conditions: binding.map(|binding| binding.failure_conditions.clone()).unwrap_or_default(),
        allow_multiple_allocations: shared,
        ..SliceDevice::default()
    };
    if !dropped.contains(&Feature::NodeAllocatable) {
        add_node_allocatable(&mut published, device, settings.node_allocatable);
    }
    Ok(published)
}

/// Taints that keep new claims from the device.
pub(in crate::kubernetes) fn taints(
    device: &Device,
    against: DeviceObjections<'_>,
    settings: &SliceSettings,
) -> Vec<DeviceTaint> {
    let taint = |reason: TaintReason, evict: bool| DeviceTaint {
        key: reason.key(&settings.driver).into(),
        value: Some(reason.value().into()),
        effect: if evict { "NoExecute" } else { "NoSchedule" }.into(),
        time_added: None,
    };
    let health = match &device.health {
        Health::Healthy => None,
        Health::Unhealthy { .. } => Some(taint(TaintReason::Unhealthy, settings.evict_unhealthy)),
        Health::Unknown { .. } => Some(taint(TaintReason::Unknown, false)),
    };
    let stale = against.is_stale.then(|| taint(TaintReason::Stale, false));
    let drained = against.drain.map(|drain| taint(TaintReason::Drained, drain.evict));
    health.into_iter().chain(stale).chain(drained).chain(against.held.map(held)).collect()
}

/// Taint of a device that is held. A claim that has the device keeps it.
fn held(value: &str) -> DeviceTaint {
    DeviceTaint { key: HELD_TAINT.into(), value: Some(value.into()), effect: "NoSchedule".into(), time_added: None }
}

pub(super) fn is_list(value: &AttributeValue) -> bool {
    matches!(value, AttributeValue::Ints(_) | AttributeValue::Strings(_))
}

fn published_attributes<'a>(
    device: &'a Device,
    settings: &SliceSettings,
) -> impl Iterator<Item = (&'a str, DeviceAttribute)> {
    let lists = settings.list_attributes;
    let published = device.attributes.iter().filter(move |(_, value)| lists || !is_list(value));
    published.map(|(name, value)| (name, attribute(value)))
}

/// Attributes of a device that is held, as far as there is room. The owner of the hold comes last: its claim can be
/// given the device without the attribute.
fn held_words(
    device: &Device,
    held: Option<&str>,
    by_attribute: bool,
    settings: &SliceSettings,
) -> Vec<(&'static str, DeviceAttribute)> {
    let Some(value) = held else { return Vec::new() };
    let mut words = vec![(HELD_FOR_ATTRIBUTE, DeviceAttribute::String(value.into()))];
    if by_attribute {
        words.insert(0, (HELD_ATTRIBUTE, DeviceAttribute::Bool(true)));
    }
    let taken = published_attributes(device, settings).count() + device.capacity.len();
    words.truncate(MAX_ATTRIBUTES_AND_CAPACITIES.saturating_sub(taken));
    words
}

fn attribute(value: &AttributeValue) -> DeviceAttribute {
    match value {
        AttributeValue::Int(value) => DeviceAttribute::Int(*value),
        AttributeValue::Bool(value) => DeviceAttribute::Bool(*value),
        AttributeValue::String(value) => DeviceAttribute::String(value.as_str().into()),
        AttributeValue::Version(value) => DeviceAttribute::Version(value.as_str().into()),
        AttributeValue::Ints(values) => DeviceAttribute::Ints(values.as_slice().into()),
        AttributeValue::Strings(values) => DeviceAttribute::Strings(values.as_slice().into()),
    }
}

fn capacity(capacity: &Capacity, shared: bool) -> DeviceCapacity {
    let value = capacity.value;
    // Without a policy the scheduler takes any part of a shared device's capacity; the backend gives the whole only.
    let policy = shared.then(|| capacity.policy.map_or_else(|| only(value), |policy| parts(value, policy)));
    DeviceCapacity { value: value.into(), request_policy: policy.map(Box::new) }
}

fn only(value: Quantity) -> CapacityRequestPolicy {
    CapacityRequestPolicy { default: Some(value.into()), valid_values: vec![value.into()], valid_range: None }
}

fn parts(value: Quantity, RequestPolicy { default, min, step }: RequestPolicy) -> CapacityRequestPolicy {
    // A range must have room for one step.
    if min.plus(step) > value {
        return only(min);
    }
    let range = CapacityRequestPolicyRange { min: min.into(), max: Some(value.into()), step: Some(step.into()) };
    CapacityRequestPolicy { default: Some(default.into()), valid_values: Vec::new(), valid_range: Some(range) }
}

fn consumption(uses: &CounterUse) -> DeviceCounterConsumption {
    DeviceCounterConsumption { counter_set: uses.set.as_str().into(), counters: counters(&uses.counters) }
}

pub(super) fn counters(counters: &BTreeMap<DeviceName, Quantity>) -> SortedMap<Counter> {
    counters.iter().map(|(name, value)| (name.as_str(), Counter { value: (*value).into() })).collect()
}

/// 1.37 has other names for what 1.36 has, and a server drops the names that it does not know.
fn add_node_allocatable(published: &mut SliceDevice, device: &Device, names: NodeAllocatableNames) {
    match names {
        NodeAllocatableNames::Off => {}
        NodeAllocatableNames::V1_36 => {
            let mappings = device.node_allocatable.iter().map(|(resource, it)| (resource.as_str(), mapping_136(it)));
            published.node_allocatable_resource_mappings = mappings.collect();
        }
        NodeAllocatableNames::V1_37 => {
            let mappings = device.node_allocatable.iter().map(|(resource, it)| (resource.as_str(), mapping_137(it)));
            published.node_allocatable_resources = mappings.collect();
        }
    }
}

fn mapping_136(allocatable: &NodeAllocatable) -> NodeAllocatableMapping136 {
    let (capacity_key, multiplier) = match allocatable {
        NodeAllocatable::PerCapacity { capacity, factor } => (Some(capacity.as_str().into()), factor),
        NodeAllocatable::PerDevice(amount) => (None, amount),
    };
    NodeAllocatableMapping136 { capacity_key, allocation_multiplier: Some(SliceQuantity::from(*multiplier)) }
}

fn mapping_137(allocatable: &NodeAllocatable) -> NodeAllocatableResource137 {
    let mapping = match allocatable {
        NodeAllocatable::PerCapacity { capacity, factor } => NodeAllocatableMapping137 {
            capacity_key: Some(capacity.as_str().into()),
            capacity_multiplier: Some(SliceQuantity::from(*factor)),
            device_multiplier: None,
        },
        NodeAllocatable::PerDevice(amount) => NodeAllocatableMapping137 {
            capacity_key: None,
            capacity_multiplier: None,
            device_multiplier: Some(SliceQuantity::from(*amount)),
        },
    };
    NodeAllocatableResource137 { mapping: Some(Box::new(mapping)) }
}
