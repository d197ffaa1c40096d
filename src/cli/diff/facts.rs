//! A machine as a flat list of facts, in which two can be compared whatever they are about. Pure.

use std::collections::BTreeMap;

use hostler_backend::{BackendWarning, CounterUse, Device};
use hostler_linux::{IdSet, topology::NumaNode};
use serde::Serialize;
use serde_json::Value;

use crate::{cli::inventory::scan, units};

/// A machine as it was seen.
#[derive(Debug)]
pub(super) struct ComparedMachine {
    /// Release of the kernel.
    pub(super) kernel: Option<String>,
    /// All else.
    pub(super) seen: scan::ScannedMachine,
}

/// The subject of facts, in the order in which they are told.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(super) struct FactSubject {
    /// The sort of the subject.
    pub(super) kind: SubjectKind,
    #[serde(skip)]
    number: u32,
    /// Name of the subject; empty where there is one only.
    pub(super) name: String,
}

/// A sort of subject.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SubjectKind {
    /// The machine as a whole.
    Machine,
    /// The CPUs of the machine.
    Cpus,
    /// A NUMA node.
    Node,
    /// A device, as `backend/name`.
    Device,
    /// Something that could not be understood.
    Warning,
}

/// A value, for programs and for people.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MachineFact {
    /// For programs.
    pub(super) json: Value,
    /// For people.
    pub(super) text: String,
    /// The same as a set, where it is one.
    pub(super) set: Option<IdSet>,
    /// True if the fact is worth telling of something that came or went.
    pub(super) tells: bool,
}

/// The facts about one subject, by name.
pub(super) type NamedFacts = BTreeMap<String, MachineFact>;

/// By subject and name.
pub(super) type MachineFacts = BTreeMap<FactSubject, NamedFacts>;

impl MachineFact {
    fn new(value: &impl Serialize, text: impl Into<String>) -> Self {
        // What has no JSON is compared by its text.
        let text = text.into();
        let json = serde_json::to_value(value).unwrap_or_else(|_| Value::from(text.clone()));
        Self { json, text, set: None, tells: false }
    }

    fn told(self) -> Self {
        Self { tells: true, ..self }
    }

    fn of_set(set: &IdSet) -> Self {
        let text = if set.is_empty() { "none".to_owned() } else { set.to_string() };
        Self { set: Some(set.clone()), ..Self::new(set, text) }
    }
}

/// The facts about a machine that is compared with `other`. Free memory and free huge pages are none: they change all
/// the time.
pub(super) fn of(machine: &ComparedMachine, other: &ComparedMachine) -> MachineFacts {
    let topology = &machine.seen.topology;
    let subject = |kind, number, name: String| FactSubject { kind, number, name };
    let mut facts = MachineFacts::new();
    facts.insert(subject(SubjectKind::Machine, 0, String::new()), of_machine(machine));
    facts.insert(subject(SubjectKind::Cpus, 0, String::new()), of_cpus(machine));
    for (id, node) in &topology.nodes {
        let others = |node: &u32| other.seen.topology.nodes.contains_key(node);
        facts.insert(subject(SubjectKind::Node, *id, id.to_string()), of_node(node, others));
    }
    for (pool, device) in machine.seen.devices() {
        facts.insert(subject(SubjectKind::Device, 0, format!("{}/{}", pool.backend, device.name)), of_device(device));
    }
    for BackendWarning { path, reason } in &machine.seen.warnings {
        facts.insert(subject(SubjectKind::Warning, 0, format!("{path}: {reason}")), BTreeMap::new());
    }
    facts
}

fn insert(facts: &mut NamedFacts, name: &str, fact: MachineFact) {
    facts.insert(name.to_owned(), fact);
}

/// Enters a fact where there is one.
fn known<T: Serialize + ToString>(facts: &mut NamedFacts, name: &str, value: Option<&T>) {
    if let Some(value) = value {
        insert(facts, name, MachineFact::new(value, value.to_string()));
    }
}

fn of_machine(machine: &ComparedMachine) -> NamedFacts {
    let topology = &machine.seen.topology;
    let mut facts = NamedFacts::new();
    known(&mut facts, "kernel", machine.kernel.as_ref());
    known(&mut facts, "architecture", topology.arch.as_ref());
    known(&mut facts, "CPU model", topology.cpu_model.as_ref());
    let sizes = topology.huge_page_sizes.iter().map(|size| units::page(*size));
    insert(
        &mut facts,
        "huge page sizes",
        MachineFact::new(&topology.huge_page_sizes, sizes.collect::<Vec<_>>().join(", ")),
    );
    facts
}

fn of_cpus(machine: &ComparedMachine) -> NamedFacts {
    let topology = &machine.seen.topology;
    let mut facts = NamedFacts::new();
    for (name, set) in [
        ("present", &topology.present),
        ("online", &topology.online),
        ("isolated", &topology.isolated),
        ("without tick", &topology.nohz_full),
        ("allowed", &topology.allowed_cpus),
    ] {
        insert(&mut facts, name, MachineFact::of_set(set));
    }
    known(&mut facts, "packages", Some(&topology.packages.len()));
    known(&mut facts, "cores", Some(&topology.cores.len()));
    known(&mut facts, "multithreading", topology.smt_active.as_ref());
    facts
}

fn of_node(node: &NumaNode, is_in_both: impl Fn(&u32) -> bool) -> NamedFacts {
    let mut facts = NamedFacts::new();
    insert(&mut facts, "CPUs", MachineFact::of_set(&node.cpus).told());
    if let Some(memory) = node.memory_bytes {
        insert(&mut facts, "memory", MachineFact::new(&memory, units::bytes(memory)).told());
    }
    known(&mut facts, "tier", node.tier.as_ref());
    known(&mut facts, "GPU", node.gpu.as_ref());
    for (size, pages) in &node.huge_pages {
        insert(
            &mut facts,
            &format!("huge pages of {}", units::page(*size)),
            MachineFact::new(&pages.total, pages.total.to_string()),
        );
    }
    for (to, distance) in node.distances.iter().filter(|(to, _)| is_in_both(to)) {
        insert(&mut facts, &format!("distance to node {to}"), MachineFact::new(distance, distance.to_string()));
    }
    for cache in &node.memory_side_caches {
        let size = MachineFact::new(&cache.size_bytes, units::bytes(cache.size_bytes));
        insert(&mut facts, &format!("memory-side cache of level {}", cache.level), size);
    }
    let Some(access) = &node.access else { return facts };
    known(&mut facts, "read bandwidth in MiB/s", access.read_bandwidth.as_ref());
    known(&mut facts, "write bandwidth in MiB/s", access.write_bandwidth.as_ref());
    known(&mut facts, "read latency", access.read_latency.as_ref());
    known(&mut facts, "write latency", access.write_latency.as_ref());
    facts
}

fn of_device(device: &Device) -> NamedFacts {
    let mut facts = NamedFacts::new();
    for (name, value) in device.attributes.iter() {
        let fact = MachineFact::new(value, value.to_string());
        let fact = if matches!(name, "kind" | "use") { fact.told() } else { fact };
        insert(&mut facts, name, fact);
    }
    for (name, capacity) in device.capacity.iter() {
        let value = MachineFact::new(&capacity.value, capacity.value.human()).told();
        insert(&mut facts, &format!("capacity {name}"), value);
        if let Some(policy) = capacity.policy {
            insert(&mut facts, &format!("parts of {name}"), as_json(&policy));
        }
    }
    let health = device.health.reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let health = MachineFact::new(&device.health, format!("{}{health}", device.health.as_str()));
    let is_healthy = device.health == hostler_backend::Health::Healthy;
    insert(&mut facts, "health", if is_healthy { health } else { health.told() });
    insert(&mut facts, "sharing", MachineFact::new(&device.sharing, format!("{:?}", device.sharing)));
    if device.edits != hostler_backend::ContainerEdits::default() {
        insert(&mut facts, "container edits", as_json(&device.edits));
    }
    if !device.consumes.is_empty() {
        insert(&mut facts, "counters", of_counters(&device.consumes));
    }
    if !device.node_allocatable.is_empty() {
        insert(&mut facts, "share of the node's resources", as_json(&device.node_allocatable));
    }
    facts
}

/// `memory-1001 1 of cards-0`.
fn of_counters(uses: &[CounterUse]) -> MachineFact {
    let amounts = |of: &CounterUse| {
        let set = of.set.clone();
        of.counters
            .iter()
            .map(move |(counter, amount)| format!("{counter} {} of {set}", amount.human()))
            .collect::<Vec<_>>()
    };
    MachineFact::new(&uses, uses.iter().flat_map(amounts).collect::<Vec<_>>().join(", "))
}

/// Makes the fact of a value that has no words of its own.
fn as_json(value: &impl Serialize) -> MachineFact {
    MachineFact::new(value, serde_json::to_string(value).unwrap_or_default())
}
