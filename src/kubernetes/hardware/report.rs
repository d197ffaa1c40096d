//! The report of this node's hardware: a pure function of the inventory and the table of claims.
//!
//! A device is in the state that the rule of `hostler_api::hardware` gives it, from the taints that its slice says and
//! from what claims hold by their records. So a node counts as the cluster does.

use std::collections::BTreeMap;

use hostler_api::{
    Quantity,
    fabric::{SystemUuid, of_fabric_pool},
    hardware::{
        AmountCounts, BackendHardware, BackendKnowledge, ClassHardware, DeviceImpediments, DeviceState, MAX_ZONES,
        NodeHardwareStatus, Occupancy, PartsLeft, ZoneHardware,
    },
};
use hostler_backend::{AttributeValue, Device};

use super::conditions::{conditions, cut};
use crate::{
    claims::ClaimTable,
    inventory::Inventory,
    kubernetes::{
        holds::HoldsInForce,
        slices::{DeviceObjections, SliceSettings, taints},
    },
    usage::holders::{DeviceUsage, usage},
};

/// The part of a report about the daemon itself; the same as long as the daemon runs.
#[derive(Clone, Debug)]
pub struct ReportingDaemon {
    /// Settings of its slices.
    pub settings: SliceSettings,
    /// Version of the daemon.
    pub version: &'static str,
    /// Release of the kernel.
    pub kernel: String,
    /// The kernel's name for this boot.
    pub boot_id: String,
    /// UUID of the system board, where it has one of its own.
    pub system_uuid: Option<SystemUuid>,
}

/// Makes a report without times: the hardware, its claims, and the holds.
pub fn node_report(
    daemon: &ReportingDaemon,
    inventory: &Inventory,
    claims: &ClaimTable,
    holds: &HoldsInForce,
) -> NodeHardwareStatus {
    let (_, mut devices) = usage(inventory, claims);
    // Cards that a fabric manager attached are no hardware of the node.
    devices.retain(|device| of_fabric_pool(&device.pool).is_none());
    let mut counts = known_backends(inventory);
    for device in &devices {
        let counts = counts.entry(device.backend.clone()).or_insert_with(BackendCounts::switched_off);
        match find(inventory, device) {
            Some(known) => counts.add(
                device,
                known,
                impediments(device, known, inventory, holds, &daemon.settings),
                &daemon.settings,
            ),
            None => counts.missing += u32::from(device.is_held()),
        }
    }
    let backends: Vec<BackendHardware> = counts.into_iter().map(BackendCounts::named).collect();
    let status = NodeHardwareStatus {
        driver: daemon.settings.driver.clone(),
        hostler_version: daemon.version.to_owned(),
        kernel_version: daemon.kernel.clone(),
        boot_id: daemon.boot_id.clone(),
        system_uuid: daemon.system_uuid.clone(),
        conditions: conditions(inventory, claims, &devices, holds),
        backends,
        ..NodeHardwareStatus::default()
    };
    let mut totals = status.devices;
    status.zones().for_each(|zone| totals.add(&zone.devices));
    NodeHardwareStatus { devices: totals, ..status }
}

/// Of one backend, by class and zone.
#[derive(Default)]
struct BackendCounts {
    knowledge: BackendKnowledge,
    message: String,
    missing: u32,
    classes: BTreeMap<String, BTreeMap<ZoneKey, ZoneHardware>>,
}

/// Sorts what is on no NUMA node behind the others.
type ZoneKey = (bool, Option<u32>);

fn known_backends(inventory: &Inventory) -> BTreeMap<String, BackendCounts> {
    let known = inventory.pools.iter().map(|(name, pool)| {
        let knowledge = if pool.stale.is_some() { BackendKnowledge::Stale } else { BackendKnowledge::Known };
        (name, BackendCounts::new(knowledge, pool.stale.as_deref().unwrap_or_default()))
    });
    let unknown = inventory.unknown.iter();
    let unknown = unknown.map(|(name, pool)| (name, BackendCounts::new(BackendKnowledge::Unknown, &pool.reason)));
    known.chain(unknown).map(|(name, counts)| (name.to_string(), counts)).collect()
}

fn find<'a>(inventory: &'a Inventory, device: &DeviceUsage) -> Option<&'a Device> {
    inventory.pools.get(device.backend.as_str())?.devices.iter().find(|known| known.name.as_str() == device.name)
}

impl BackendCounts {
    fn new(knowledge: BackendKnowledge, message: &str) -> Self {
        Self { knowledge, message: cut(message), ..Self::default() }
    }

    /// Of a backend that is on record only.
    fn switched_off() -> Self {
        Self::new(BackendKnowledge::Unknown, "it is switched off, and claims have devices of it")
    }

    fn add(&mut self, device: &DeviceUsage, known: &Device, impediments: DeviceImpediments, settings: &SliceSettings) {
        let state = DeviceState::of(occupancy(device, known), impediments);
        let node = device.numa_node.filter(|node| (*node as usize) < MAX_ZONES - 1);
        let zones = self.classes.entry(class_of(device, known, &settings.driver)).or_default();
        let zone = zones.entry((node.is_none(), node)).or_default();
        zone.numa_node = node;
        zone.devices.add(state, impediments.is_allocatable());
        if device.shared == Some(true) {
            add_amounts(&mut zone.amounts, device, state, impediments);
        }
    }

    fn named((name, counts): (String, Self)) -> BackendHardware {
        let class = |(name, zones): (String, BTreeMap<ZoneKey, ZoneHardware>)| ClassHardware {
            name,
            zones: zones.into_values().collect(),
        };
        BackendHardware {
            name,
            knowledge: counts.knowledge,
            message: counts.message,
            missing: counts.missing,
            classes: counts.classes.into_iter().map(class).collect(),
        }
    }
}

/// The class of `deploy/cluster` that selects the device.
fn class_of(device: &DeviceUsage, known: &Device, driver: &str) -> String {
    let has_huge_pages = known.attributes.get("hugepages") == Some(&AttributeValue::Bool(true));
    let word = if device.backend == "memory" && has_huge_pages { "hugepages" } else { &device.backend };
    format!("{word}.{driver}")
}

/// Taints and other words of the device's slice against a new claim.
fn impediments(
    device: &DeviceUsage,
    known: &Device,
    inventory: &Inventory,
    holds: &HoldsInForce,
    settings: &SliceSettings,
) -> DeviceImpediments {
    let found = inventory.pools.get_key_value(device.backend.as_str());
    let against = DeviceObjections {
        is_stale: device.stale,
        drain: found.and_then(|(backend, _)| inventory.drain(backend, &known.name)),
        held: found.and_then(|(_, pool)| holds.value(&pool.name, known.name.as_str())),
    };
    let mut impediments = DeviceImpediments::default();
    for taint in taints(known, against, settings) {
        impediments.add_of_driver(&taint, &settings.driver);
    }
    impediments
}

/// Occupancy of the device by claims; one with administrative access occupies nothing.
fn occupancy(device: &DeviceUsage, known: &Device) -> Occupancy {
    let is_used = device.holds.iter().any(|hold| !hold.is_admin);
    match (is_used, device.shared) {
        (false, _) if device.blocked => Occupancy::Blocked,
        (false, _) => Occupancy::Empty,
        (true, Some(true)) => Occupancy::of_shared(parts_left(device, known)),
        (true, _) => Occupancy::Whole,
    }
}

fn parts_left<'a>(device: &'a DeviceUsage, known: &'a Device) -> impl Iterator<Item = PartsLeft<Quantity>> + 'a {
    known.capacity.iter().map(|(name, capacity)| PartsLeft {
        left: device.amounts.get(name).map(|amount| amount.free).unwrap_or_default(),
        smallest: capacity.policy.map_or(capacity.value, |policy| policy.min),
    })
}

fn add_amounts(
    amounts: &mut BTreeMap<String, AmountCounts>,
    device: &DeviceUsage,
    state: DeviceState,
    impediments: DeviceImpediments,
) {
    for (name, amount) in &device.amounts {
        let only_if = |is: bool, amount: Quantity| if is { amount } else { Quantity::default() };
        amounts.entry(name.clone()).or_default().add(&AmountCounts {
            capacity: amount.capacity,
            allocatable: only_if(impediments.is_allocatable(), amount.capacity),
            allocated: amount.held,
            free: only_if(state == DeviceState::Free, amount.free),
        });
    }
}

#[cfg(test)]
mod tests;
