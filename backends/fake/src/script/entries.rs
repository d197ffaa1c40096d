//! `[[device]]` and `[[counter_set]]` as they are written, and what they mean.

use std::{collections::BTreeMap, fmt::Display};

use hostler_api::{ConfigProblem, DeviceName, QualifiedName, Quantity};
use hostler_backend::{
    AttributeValue, BindingConditions, ContainerEdits, CounterSet, CounterUse, Device, DeviceProblem, Health, Sharing,
};
use serde::{Deserialize, Deserializer};
use toml::Value;

use super::{
    ScriptedDevice,
    problem::within,
    values::{NodeAllocatableEntry, ScriptedAmount, attribute, capacity, node_allocatable},
};

/// The standard attributes, with the keys that stand for them.
const STANDARD_KEYS: [(&str, &str); 3] = [
    ("resource.kubernetes.io/numaNode", "numa_node"),
    ("resource.kubernetes.io/pcieRoot", "pci_root"),
    ("resource.kubernetes.io/pciBusID", "pci_bus_id"),
];

/// One `[[device]]`, or one of those that its `count` makes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceEntry {
    name: DeviceName,
    /// Counted out already.
    #[serde(rename = "count")]
    _count: Option<usize>,
    #[serde(default)]
    sharing: SharingWord,
    numa_node: Option<i64>,
    pci_root: Option<String>,
    pci_bus_id: Option<String>,
    #[serde(default)]
    attributes: BTreeMap<QualifiedName, Value>,
    #[serde(default)]
    capacity: BTreeMap<QualifiedName, Value>,
    #[serde(default)]
    health: HealthWord,
    reason: Option<String>,
    #[serde(default)]
    health_change: Vec<HealthChange>,
    #[serde(default)]
    edits: ContainerEdits,
    #[serde(default)]
    consumes: Vec<CounterUseEntry>,
    binding: Option<BindingConditions>,
    #[serde(default)]
    node_allocatable: BTreeMap<String, NodeAllocatableEntry>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SharingWord {
    #[default]
    Exclusive,
    Shared,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HealthWord {
    #[default]
    Healthy,
    Unhealthy,
    Unknown,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HealthChange {
    /// How many enumerations go before the change.
    enumerations: u64,
    health: HealthWord,
    reason: Option<String>,
}

/// One of a device's `consumes`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CounterUseEntry {
    set: DeviceName,
    #[serde(deserialize_with = "amounts")]
    counters: BTreeMap<DeviceName, Quantity>,
}

/// One `[[counter_set]]`, or one of those that its `count` makes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CounterSetEntry {
    name: DeviceName,
    /// Counted out already.
    #[serde(rename = "count")]
    _count: Option<usize>,
    #[serde(deserialize_with = "amounts")]
    counters: BTreeMap<DeviceName, Quantity>,
}

impl CounterSetEntry {
    pub(super) fn counter_set(self) -> Result<CounterSet, ConfigProblem> {
        let set = CounterSet { name: self.name, counters: self.counters };
        first(set.problems()).map(|()| set)
    }
}

impl DeviceEntry {
    /// The device, which may draw on these counters.
    pub(super) fn device(self, counter_sets: &[CounterSet]) -> Result<ScriptedDevice, ConfigProblem> {
        let mut device = Device::new(self.name);
        device.sharing = match self.sharing {
            SharingWord::Exclusive => Sharing::Exclusive,
            SharingWord::Shared => Sharing::Shared,
        };
        device.health = health(self.health, self.reason)?;
        device.attributes = each("attributes", self.attributes, attribute)?;
        device.capacity = each("capacity", self.capacity, capacity)?;
        device.edits = self.edits;
        let counter_use = |CounterUseEntry { set, counters }| CounterUse { set, counters };
        device.consumes = self.consumes.into_iter().map(counter_use).collect();
        device.binding = self.binding;
        device.node_allocatable = each("node_allocatable", self.node_allocatable, node_allocatable)?;
        let text = |value: Option<String>| value.map(|text| AttributeValue::String(text.into()));
        let standard = [self.numa_node.map(AttributeValue::Int), text(self.pci_root), text(self.pci_bus_id)];
        for ((name, key), value) in STANDARD_KEYS.into_iter().zip(standard) {
            let Some(value) = value else { continue };
            let name = QualifiedName::new(name).map_err(|error| ConfigProblem::new(key, error.to_string()))?;
            device.attributes.insert(name, value);
        }
        first(device.problems())?;
        first(device.counter_problems(counter_sets))?;
        Ok(ScriptedDevice { device, changes: changes(self.health_change)? })
    }
}

/// Reads every value of the table `key`.
fn each<K: Display, V, T, M: FromIterator<(K, T)>>(
    key: &str,
    table: BTreeMap<K, V>,
    read: impl Fn(V) -> Result<T, ConfigProblem>,
) -> Result<M, ConfigProblem> {
    let read = |(name, value)| match read(value) {
        Ok(value) => Ok((name, value)),
        Err(problem) => Err(within(&format!("{key}.{name}"), problem)),
    };
    table.into_iter().map(read).collect()
}

fn amounts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<DeviceName, Quantity>, D::Error> {
    let amounts: BTreeMap<DeviceName, ScriptedAmount> = BTreeMap::deserialize(deserializer)?;
    Ok(amounts.into_iter().map(|(name, ScriptedAmount(amount))| (name, amount)).collect())
}

/// The first limit that is broken, at the key where the script breaks it.
fn first(problems: Vec<DeviceProblem>) -> Result<(), ConfigProblem> {
    let Some(DeviceProblem { field, reason }) = problems.into_iter().next() else { return Ok(()) };
    let standard = STANDARD_KEYS.iter().find(|(name, _)| field.strip_prefix("attributes.") == Some(name));
    Err(ConfigProblem::new(standard.map_or(&*field, |(_, key)| key), reason))
}

fn changes(changes: Vec<HealthChange>) -> Result<Vec<(u64, Health)>, ConfigProblem> {
    let mut last = 0;
    let changes = changes.into_iter().enumerate().map(|(index, change)| {
        let located = |problem| within(&format!("health_change[{index}]"), problem);
        if change.enumerations <= last {
            let reason = format!("{} does not come after {last}; write ascending numbers from 1", change.enumerations);
            return Err(located(ConfigProblem::new("enumerations", reason)));
        }
        last = change.enumerations;
        Ok((change.enumerations, health(change.health, change.reason).map_err(located)?))
    });
    changes.collect()
}

fn health(word: HealthWord, reason: Option<String>) -> Result<Health, ConfigProblem> {
    match (word, reason.filter(|reason| !reason.trim().is_empty())) {
        (HealthWord::Healthy, None) => Ok(Health::Healthy),
        (HealthWord::Healthy, Some(_)) => {
            Err(ConfigProblem::new("reason", "a healthy device needs no reason; remove it or change health"))
        }
        (HealthWord::Unhealthy, Some(reason)) => Ok(Health::Unhealthy { reason }),
        (HealthWord::Unknown, Some(reason)) => Ok(Health::Unknown { reason }),
        (HealthWord::Unhealthy | HealthWord::Unknown, None) => {
            Err(ConfigProblem::new("health", "say why: add reason = \"…\""))
        }
    }
}
