//! Amount of each capacity, and what is held of it, by backend, NUMA node and namespace.
//!
//! As many series as a machine has backends, nodes and kinds of capacity, and that times as many namespaces as hold
//! something of it, of which [`MOST_NAMESPACES`] have series of their own: claims of others cannot make more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::AtomicU64,
};

use hostler_api::Quantity;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::{
    claims::ClaimTable,
    inventory::Inventory,
    usage::holders::{DeviceHealth, DeviceUsage, UsageHolder, usage},
};

/// Namespaces with series of their own, the first by name; the others are one together. A node has as many pods as fit
/// on it, rarely of so many owners.
const MOST_NAMESPACES: usize = 32;
/// Namespace label of the claims without series of their own: no name can be this.
const OTHERS: &str = "_others";
/// Node label of devices that are on none, or do not say on which.
const NO_NODE: &str = "none";
/// Capacity label of the devices themselves, for those that are given whole and have no capacity.
const DEVICES: &str = "devices";

type FloatGauge = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct CapacityLabels {
    backend: String,
    numa_node: String,
    capacity: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct AllocatedLabels {
    backend: String,
    numa_node: String,
    capacity: String,
    namespace: String,
}

/// Adds both figures.
pub(super) fn register(registry: &mut Registry, inventory: &Inventory, claims: &ClaimTable) {
    let (holders, devices) = usage(inventory, claims);
    let capacity = Family::<CapacityLabels, FloatGauge>::default();
    let allocated = Family::<AllocatedLabels, FloatGauge>::default();
    for (labels, amount) in capacities(&devices) {
        capacity.get_or_create(&labels).set(units(amount));
    }
    for (labels, amount) in allocations(&holders, &devices) {
        allocated.get_or_create(&labels).set(units(amount));
    }
    let help = "Capacity of devices, by its kind: CPUs, bytes, …; the kind devices counts them";
    registry.register("device_capacity", help, capacity);
    let help = "Capacity that claims of a namespace hold; a shared device counts for each of them";
    registry.register("device_allocated", help, allocated);
}

fn capacities(devices: &[DeviceUsage]) -> BTreeMap<CapacityLabels, Quantity> {
    let mut all = BTreeMap::new();
    for device in devices.iter().filter(|device| device.health != DeviceHealth::Absent) {
        let counted = [(DEVICES, Quantity::whole(1))].into_iter();
        let own = device.amounts.iter().map(|(name, amount)| (name.as_str(), amount.capacity));
        for (name, amount) in counted.chain(own) {
            add(&mut all, capacity_labels(device, name), amount);
        }
    }
    all
}

/// Sums up what is held. A capacity that is not held is a zero, so that a rule can tell it from a metric that is
/// missing.
fn allocations(holders: &[UsageHolder], devices: &[DeviceUsage]) -> BTreeMap<AllocatedLabels, Quantity> {
    let named = own_series(holders, devices);
    let mut all: BTreeMap<AllocatedLabels, Quantity> = capacities(devices)
        .into_keys()
        .map(|labels| (labels.of_namespace(String::new()), Quantity::default()))
        .collect();
    for device in devices {
        let mut counted = BTreeSet::new();
        for hold in device.holds.iter().filter(|hold| !hold.is_admin) {
            let namespace = holders.get(hold.holder).map_or("", |holder| &*holder.namespace);
            let namespace = if named.contains(namespace) { namespace } else { OTHERS };
            if counted.insert(namespace.to_owned()) {
                let labels = capacity_labels(device, DEVICES).of_namespace(namespace.to_owned());
                add(&mut all, labels, Quantity::whole(1));
            }
            for (name, amount) in &hold.amounts {
                add(&mut all, capacity_labels(device, name).of_namespace(namespace.to_owned()), *amount);
            }
        }
    }
    all
}

/// The namespaces that have series of their own.
fn own_series<'a>(holders: &'a [UsageHolder], devices: &[DeviceUsage]) -> BTreeSet<&'a str> {
    let holding: BTreeSet<usize> = devices.iter().flat_map(|device| &device.holds).map(|hold| hold.holder).collect();
    let namespaces: BTreeSet<&str> =
        holding.into_iter().filter_map(|place| holders.get(place)).map(|holder| &*holder.namespace).collect();
    namespaces.into_iter().take(MOST_NAMESPACES).collect()
}

fn capacity_labels(device: &DeviceUsage, capacity: &str) -> CapacityLabels {
    CapacityLabels {
        backend: device.backend.clone(),
        numa_node: device.numa_node.map_or_else(|| NO_NODE.to_owned(), |node| node.to_string()),
        capacity: capacity.to_owned(),
    }
}

impl CapacityLabels {
    fn of_namespace(self, namespace: String) -> AllocatedLabels {
        let Self { backend, numa_node, capacity } = self;
        AllocatedLabels { backend, numa_node, capacity, namespace }
    }
}

fn add<K: Ord>(all: &mut BTreeMap<K, Quantity>, key: K, amount: Quantity) {
    let sum = all.entry(key).or_default();
    *sum = sum.plus(amount);
}

/// Converts an amount to a float. Bytes of a large machine stay exact: 2^53 are eight pebibytes.
fn units(amount: Quantity) -> f64 {
    match amount.as_whole() {
        Some(whole) => whole as f64,
        // A part of a unit is written in thousandths.
        None => amount.to_string().trim_end_matches('m').parse::<f64>().unwrap_or_default() / 1000.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::{holders::HeldAmount, testing};

    fn series(usage: &crate::usage::holders::MachineUsage) -> Vec<String> {
        let series = |(labels, amount): (AllocatedLabels, Quantity)| {
            format!("{}/{}/{}/{} {amount}", labels.backend, labels.numa_node, labels.capacity, labels.namespace)
        };
        allocations(&usage.holders, &usage.devices).into_iter().map(series).collect()
    }

    #[test]
    fn amounts_are_added_up_by_backend_node_and_namespace() {
        let usage = testing::small();
        let found = series(&usage);
        for line in ["cpu/0/cpus/ml 2", "cpu/0/cpus/web 1", "cpu/1/cpus/ 0", "cpu/0/devices/ml 1"] {
            assert!(found.contains(&line.to_owned()), "{line} is not in {found:#?}");
        }
        let cpus = capacities(&usage.devices).into_iter().find(|(labels, _)| labels.capacity == "cpus");
        assert_eq!(cpus.map(|(_, amount)| amount), Some(Quantity::whole(4)));
    }

    #[test]
    fn claims_of_many_namespaces_make_no_more_series_than_agreed() {
        let mut usage = testing::small();
        let device = usage.devices.iter().position(|device| device.backend == "cpu").unwrap();
        for number in 0..1000 {
            let holder = UsageHolder { namespace: format!("team-{number:04}"), ..usage.holders[0].clone() };
            usage.holders.push(holder);
            let hold = crate::usage::holders::DeviceHold {
                holder: usage.holders.len() - 1,
                amounts: [("cpus".to_owned(), Quantity::whole(1))].into(),
                ..Default::default()
            };
            usage.devices[device].holds.push(hold);
        }
        usage.devices[device].amounts.insert("cpus".to_owned(), HeldAmount::default());
        let labels = allocations(&usage.holders, &usage.devices).into_keys();
        let namespaces: BTreeSet<String> = labels.map(|labels| labels.namespace).collect();
        assert_eq!(namespaces.len(), MOST_NAMESPACES + 2, "those, the zeros and the others: {namespaces:?}");
        assert!(namespaces.contains(OTHERS));
    }
}
