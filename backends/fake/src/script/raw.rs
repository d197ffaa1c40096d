//! The script as it is written: strict TOML, before devices are counted out and checked.

use std::{collections::BTreeMap, ops::Range, path::Path};

use hostler_api::{DeviceName, QualifiedName};
use hostler_backend::{AttributeValue, ContainerEdits, Device, Health, Sharing, Warning};
use serde::Deserialize;

use super::{
    Fault, ScriptedDevice,
    mistake::{Mistake, Place, ScriptError, line},
    shared::{self, BindingEntry, CounterSetEntry, CounterUseEntry, NodeAllocatableEntry},
    values::{Attribute, CapacityEntry},
};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Script {
    #[serde(default)]
    pub(super) seed: u64,
    #[serde(default)]
    pub(super) latency_ms: Latency,
    #[serde(default)]
    pub(super) counter_set: Vec<CounterSetEntry>,
    #[serde(default)]
    pub(super) device: Vec<DeviceEntry>,
    #[serde(default)]
    pub(super) fault: Vec<Fault>,
    #[serde(default)]
    pub(super) warning: Vec<Warning>,
}

/// How long each step takes, milliseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Latency {
    pub(super) enumerate: u64,
    pub(super) plan: u64,
    pub(super) prepare: u64,
    pub(super) verify: u64,
    pub(super) unprepare: u64,
}

/// One `[[device]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceEntry {
    name: String,
    count: Option<usize>,
    #[serde(default)]
    sharing: SharingWord,
    numa_node: Option<i64>,
    pci_root: Option<String>,
    pci_bus_id: Option<String>,
    #[serde(default)]
    attributes: BTreeMap<QualifiedName, Attribute>,
    #[serde(default)]
    capacity: BTreeMap<QualifiedName, CapacityEntry>,
    #[serde(default)]
    health: HealthWord,
    reason: Option<String>,
    #[serde(default)]
    health_change: Vec<HealthChange>,
    #[serde(default)]
    edits: ContainerEdits,
    #[serde(default)]
    consumes: Vec<CounterUseEntry>,
    binding: Option<BindingEntry>,
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

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HealthChange {
    /// How many enumerations go before the change.
    enumerations: u64,
    health: HealthWord,
    reason: Option<String>,
}

/// No test needs more devices; it bounds what a slip of the finger costs.
const MAX_COUNT: usize = 100_000;

/// Reads the file's text.
pub(super) fn parse(path: &Path, text: &str) -> Result<Script, ScriptError> {
    let mistake = |field: String, error: &toml::de::Error| ScriptError::Mistake {
        path: path.to_owned(),
        line: line(text, error.span().map_or(0, |span| span.start)),
        field,
        reason: error.message().replace('\n', ", "),
    };
    let deserializer = toml::Deserializer::parse(text).map_err(|error| mistake(String::new(), &error))?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| mistake(error.path().to_string(), error.inner()))
}

/// The numbers of what an entry with this `count` stands for.
pub(super) fn numbers(count: Option<usize>, place: &Place) -> Result<Range<usize>, Mistake> {
    match count.unwrap_or(1) {
        count @ 1..=MAX_COUNT => Ok(0..count),
        _ => Err(place.key("count").mistake(format!("write a number from 1 to {MAX_COUNT}"))),
    }
}

/// Puts `number` in the place of `{n}` and `{x}`.
fn fill(text: &mut String, number: usize) {
    *text = text.replace("{n}", &number.to_string()).replace("{x}", &format!("{number:02x}"));
}

/// As [`fill`]; of several things with one name, each gets its number.
pub(super) fn fill_name(name: &mut String, count: Option<usize>, number: usize) {
    if count.is_some() && !name.contains("{n}") && !name.contains("{x}") {
        name.push_str("-{n}");
    }
    fill(name, number);
}

impl DeviceEntry {
    /// The devices that the entry stands for.
    pub(super) fn expand(self, place: &Place) -> Result<Vec<ScriptedDevice>, Mistake> {
        numbers(self.count, place)?.map(|number| self.clone().numbered(number).device(place)).collect()
    }

    /// Puts `number` in the place of `{n}` and `{x}`.
    fn numbered(mut self, number: usize) -> Self {
        let fill = |text: &mut String| fill(text, number);
        fill_name(&mut self.name, self.count, number);
        self.pci_root.iter_mut().chain(&mut self.pci_bus_id).for_each(fill);
        for Attribute(value) in self.attributes.values_mut() {
            match value {
                AttributeValue::String(text) | AttributeValue::Version(text) => fill(text),
                AttributeValue::Strings(texts) => texts.iter_mut().for_each(fill),
                AttributeValue::Int(_) | AttributeValue::Bool(_) | AttributeValue::Ints(_) => {}
            }
        }
        self.consumes.iter_mut().for_each(|taken| fill(&mut taken.set));
        self.binding.iter_mut().flat_map(BindingEntry::texts).for_each(fill);
        fill_edits(&mut self.edits, fill);
        self
    }

    fn device(self, place: &Place) -> Result<ScriptedDevice, Mistake> {
        let name = DeviceName::new(&*self.name).map_err(|error| place.key("name").mistake(error.to_string()))?;
        let mut device = Device::new(name);
        device.sharing = match self.sharing {
            SharingWord::Exclusive => Sharing::Exclusive,
            SharingWord::Shared => Sharing::Shared,
        };
        device.health = health(self.health, self.reason, place)?;
        device.attributes = self.attributes.into_iter().map(|(name, Attribute(value))| (name, value)).collect();
        device.capacity = self.capacity.into_iter().map(|(name, CapacityEntry(capacity))| (name, capacity)).collect();
        device.edits = self.edits;
        device.consumes = shared::consumes(self.consumes, place)?;
        device.binding = self.binding.map(BindingEntry::binding);
        device.node_allocatable = shared::node_allocatable(self.node_allocatable, place)?;
        let standard = [
            ("numaNode", "numa_node", self.numa_node.map(AttributeValue::Int)),
            ("pcieRoot", "pci_root", self.pci_root.map(AttributeValue::String)),
            ("pciBusID", "pci_bus_id", self.pci_bus_id.map(AttributeValue::String)),
        ];
        for (name, key, value) in standard {
            let Some(value) = value else { continue };
            let name = QualifiedName::new(format!("resource.kubernetes.io/{name}"))
                .map_err(|error| place.key(key).mistake(error.to_string()))?;
            device.attributes.insert(name, value);
        }
        if let Some(problem) = device.problems().into_iter().next() {
            return Err(problem_place(place, &problem.field).mistake(problem.reason));
        }
        Ok(ScriptedDevice { device, changes: changes(self.health_change, place)? })
    }
}

/// The place in the script of what [`Device::problems`] calls `field`.
fn problem_place(place: &Place, field: &str) -> Place {
    match field {
        "attributes.resource.kubernetes.io/numaNode" => place.key("numa_node"),
        "attributes.resource.kubernetes.io/pcieRoot" => place.key("pci_root"),
        "attributes.resource.kubernetes.io/pciBusID" => place.key("pci_bus_id"),
        _ if field.starts_with("consumes") || field.starts_with("binding") => place.path(field),
        _ => match field.split_once('.') {
            Some(("edits", rest)) => place.key("edits").path(rest),
            // The names of attributes and capacities may have dots.
            Some((key, name)) => place.key(key).key(name),
            None => place.key(field),
        },
    }
}

fn changes(changes: Vec<HealthChange>, place: &Place) -> Result<Vec<(u64, Health)>, Mistake> {
    let mut last = 0;
    let changes = changes.into_iter().enumerate().map(|(index, change)| {
        let place = place.key("health_change").index(index);
        if change.enumerations <= last {
            let reason = format!("{} does not come after {last}; write ascending numbers from 1", change.enumerations);
            return Err(place.key("enumerations").mistake(reason));
        }
        last = change.enumerations;
        Ok((change.enumerations, health(change.health, change.reason, &place)?))
    });
    changes.collect()
}

fn health(word: HealthWord, reason: Option<String>, place: &Place) -> Result<Health, Mistake> {
    match (word, reason.filter(|reason| !reason.trim().is_empty())) {
        (HealthWord::Healthy, None) => Ok(Health::Healthy),
        (HealthWord::Healthy, Some(_)) => {
            Err(place.key("reason").mistake("a healthy device needs no reason; remove it or change health"))
        }
        (HealthWord::Unhealthy, Some(reason)) => Ok(Health::Unhealthy { reason }),
        (HealthWord::Unknown, Some(reason)) => Ok(Health::Unknown { reason }),
        (HealthWord::Unhealthy | HealthWord::Unknown, None) => {
            Err(place.key("health").mistake("say why: add reason = \"…\""))
        }
    }
}

/// Every text that may differ from device to device.
fn fill_edits(edits: &mut ContainerEdits, fill: impl Fn(&mut String)) {
    edits.env.iter_mut().for_each(&fill);
    for node in &mut edits.device_nodes {
        fill(&mut node.path);
        node.host_path.iter_mut().for_each(&fill);
    }
    for mount in &mut edits.mounts {
        fill(&mut mount.host_path);
        fill(&mut mount.container_path);
    }
    for hook in &mut edits.hooks {
        fill(&mut hook.path);
        hook.args.iter_mut().chain(&mut hook.env).for_each(&fill);
    }
    for net_device in &mut edits.net_devices {
        fill(&mut net_device.host_interface_name);
        fill(&mut net_device.name);
    }
}
