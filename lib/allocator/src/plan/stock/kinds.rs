//! Kinds of devices: all that counts of a device and does not depend on its holders. Devices that are equal in all that
//! classes ask for are looked at once.

use std::{collections::BTreeSet, sync::Arc};

use hostler_api::{
    ExactQuantity,
    hardware::DeviceImpediments,
    resource::{Counter, DeviceAttribute, DeviceCapacity, DeviceCounterConsumption, DeviceTaint, SliceDevice},
    well_known::{HELD_ATTRIBUTE, HELD_TAINT},
};

use crate::plan::{engine::Way, projection::References};

/// The attribute for a device's NUMA node, with every driver that follows the standard.
const NUMA_NODE: (&str, &str) = ("resource.kubernetes.io", "numaNode");

/// Attributes of drivers with other names for the NUMA node.
const OTHER_NUMA_NODES: [(&str, &str); 2] = [("dra.cpu", "numaNodeID"), ("dra.net", "numaNode")];

/// Names of the NUMA node's attribute in drivers' own domains.
const OWN_NUMA_NODES: [&str; 4] = ["numaNode", "numaNodeID", "numa", "numa_node"];

/// The kind of a device, as stock reports show it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DeviceKind {
    /// Driver of the device.
    pub driver: Arc<str>,
    /// The NUMA node that it is on.
    pub numa_node: Option<u32>,
    /// The classes that select it, by name.
    pub classes: Arc<[Arc<str>]>,
}

/// All that counts of a device and does not depend on its holders.
#[derive(Debug)]
pub(super) struct KindFacts {
    pub(super) kind: Arc<DeviceKind>,
    /// The node that alone can use it, where the device says that itself.
    pub(super) node: Option<Arc<str>>,
    pub(super) impediments: DeviceImpediments,
    /// Value of the taint with which the driver holds it for a Reservation.
    pub(super) held_for: Option<Arc<str>>,
    /// Capacities, where several claims can have it.
    pub(super) shared: Option<Box<[SharedCapacity]>>,
    /// Counters that it draws on.
    pub(super) consumes: Box<[ConsumedCounter]>,
}

/// A counter that a device draws on.
#[derive(Debug)]
pub(super) struct ConsumedCounter {
    /// Set and name.
    pub(super) key: CounterKey,
    pub(super) amount: ExactQuantity,
}

/// Set and name of a counter.
pub(super) type CounterKey = (Box<str>, Box<str>);

/// A capacity that several claims can share.
#[derive(Debug)]
pub(super) struct SharedCapacity {
    pub(super) name: Arc<str>,
    pub(super) all: ExactQuantity,
    /// The smallest part that a claim can have.
    pub(super) smallest: ExactQuantity,
}

/// Texts that many refer to.
#[derive(Debug, Default)]
pub(super) struct SharedTexts(BTreeSet<Arc<str>>);

impl SharedTexts {
    pub(super) fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.0.insert(text.clone());
        text
    }
}

/// Adds the attributes that must be known of devices beside those that classes ask for.
pub(super) fn add_references(references: &mut References) {
    let named = OTHER_NUMA_NODES.into_iter().chain([NUMA_NODE]);
    references.names.extend(named.map(|(domain, name)| (domain.to_owned(), name.to_owned())));
    references.names.extend(HELD_ATTRIBUTE.split_once('/').map(|(domain, name)| (domain.to_owned(), name.to_owned())));
    references.own_names.extend(OWN_NUMA_NODES);
}

impl KindFacts {
    pub(super) fn new(
        driver: &str,
        device: &SliceDevice,
        classes: &[(Arc<str>, Way)],
        texts: &mut SharedTexts,
    ) -> Self {
        let selecting = classes.iter().filter(|(_, way)| way.selects(driver, device));
        let mut impediments = DeviceImpediments::default();
        device.taints.iter().for_each(|taint| impediments.add_of_driver(taint, driver));
        let held_for = held_for(device);
        impediments.held |= held_for.is_some();
        let kind = DeviceKind {
            driver: texts.get(driver),
            numa_node: numa_node(driver, device),
            classes: selecting.map(|(name, _)| name.clone()).collect(),
        };
        Self {
            kind: Arc::new(kind),
            node: device.node_name.as_deref().filter(|name| !name.is_empty()).map(|name| texts.get(name)),
            impediments,
            held_for: held_for.map(|value| texts.get(value)),
            shared: device.allow_multiple_allocations.then(|| shared(device, texts)),
            consumes: consumes(device),
        }
    }
}

/// Returns the value of the taint that holds a device, which identifies the Reservation. Where taints are not served an
/// attribute marks the device as held, and not for whom: then this is empty.
fn held_for(device: &SliceDevice) -> Option<&str> {
    let of_taint = device.taints.iter().filter(|taint| taint.prevents_allocation()).find_map(value_of_hold);
    let is_held = || device.attributes.get(HELD_ATTRIBUTE) == Some(&DeviceAttribute::Bool(true));
    of_taint.or_else(|| is_held().then_some(""))
}

/// Returns the value of a taint, if it is one that holds devices for a Reservation.
pub(super) fn value_of_hold(taint: &DeviceTaint) -> Option<&str> {
    (*taint.key == *HELD_TAINT).then(|| taint.value.as_deref().unwrap_or_default())
}

/// Returns the NUMA node of a device, from its attributes. Of several nodes, the one that it is on physically comes
/// first.
fn numa_node(driver: &str, device: &SliceDevice) -> Option<u32> {
    let value = |(domain, name): (&str, &str)| {
        let full = device.attributes.get(&format!("{domain}/{name}"));
        full.or_else(|| if domain == driver { device.attributes.get(name) } else { None })
    };
    let own = OWN_NUMA_NODES.map(|name| (driver, name));
    let mut named = [NUMA_NODE].into_iter().chain(OTHER_NUMA_NODES).chain(own);
    match named.find_map(value)? {
        DeviceAttribute::Int(number) => u32::try_from(*number).ok(),
        DeviceAttribute::Ints(numbers) => u32::try_from(*numbers.first()?).ok(),
        _ => None,
    }
}

/// Returns the capacities of a shared device. Amounts that cannot be counted are left out.
fn shared(device: &SliceDevice, texts: &mut SharedTexts) -> Box<[SharedCapacity]> {
    let of = |(name, capacity): (&str, &DeviceCapacity)| {
        let all = capacity.value.get()?;
        Some(SharedCapacity { name: texts.get(name), all, smallest: smallest(capacity).min(all) })
    };
    device.capacity.iter().filter_map(of).collect()
}

/// Returns the smallest part of a capacity that a claim can have. Without a policy a claim can have any part.
fn smallest(capacity: &DeviceCapacity) -> ExactQuantity {
    let any = "1n".parse().unwrap_or_default();
    let Some(policy) = &capacity.request_policy else { return any };
    let valid = policy.valid_values.iter().filter_map(|value| value.get()).min();
    let range = policy.valid_range.as_ref().and_then(|range| range.min.get());
    valid.or(range).unwrap_or(any)
}

fn consumes(device: &SliceDevice) -> Box<[ConsumedCounter]> {
    let of_set = |set: &DeviceCounterConsumption| {
        let of_counter = |(name, counter): (&str, &Counter)| {
            let amount = counter.value.get()?;
            Some(ConsumedCounter { key: (set.counter_set.clone(), name.into()), amount })
        };
        set.counters.iter().filter_map(of_counter).collect::<Vec<_>>()
    };
    device.consumes_counters.iter().flat_map(of_set).collect()
}
