//! Limits of the Kubernetes API server and the container runtimes for devices, beyond what the types can say. One
//! device that breaks a limit costs the whole slice or CDI file that it is published in, so limits are checked early.

mod scheduling;
mod shared;

use std::fmt;

use hostler_api::{
    Quantity,
    limits::{MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTE_VALUES, MAX_ATTRIBUTES_AND_CAPACITIES},
    well_known::STANDARD_ATTRIBUTES,
};
use hostler_cdi::ContainerEdits;

use crate::{AttributeValue, Attributes, Capacity, Device, Health, RequestPolicy, Sharing};

/// The highest NUMA node that the standard attribute can hold.
const MAX_NUMA_NODE: i64 = 1023;

/// A limit that a device breaks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceProblem {
    /// Place of the fault: `attributes`, `attributes.<name>`, `capacity.<name>`, `consumes[<n>].<field>`,
    /// `binding.<field>`, `node_allocatable.<name>`, `health` or `edits.<field>`; of a counter set, `counters` or
    /// `counters.<name>`.
    pub field: String,
    /// The fault and how to mend it, for people.
    pub reason: String,
}

impl fmt::Display for DeviceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl Device {
    /// Every limit that the device breaks by itself; empty for a device that can be published.
    /// [`Device::counter_problems`] tells if the counters exist that the device draws on.
    pub fn problems(&self) -> Vec<DeviceProblem> {
        let mut problems = Vec::new();
        let mut add = |field: String, reason: Option<String>| {
            problems.extend(reason.map(|reason| DeviceProblem { field, reason }));
        };
        let count = self.attributes.len() + self.capacity.len();
        add("attributes".to_owned(), count_problem(count).or_else(|| values_problem(&self.attributes)));
        for (name, value) in self.attributes.iter() {
            add(format!("attributes.{name}"), value_problem(value).or_else(|| standard_problem(name, value)));
        }
        for (name, capacity) in self.capacity.iter() {
            add(format!("capacity.{name}"), capacity_problem(capacity, self.sharing));
        }
        add("health".to_owned(), health_problem(&self.health));
        problems.extend(shared::consumes_problems(&self.consumes));
        problems.extend(self.binding.iter().flat_map(scheduling::binding_problems));
        problems.extend(scheduling::node_allocatable_problems(&self.node_allocatable, &self.capacity));
        problems.extend(edits_problems(&self.edits));
        problems
    }
}

/// Faults of `edits` that container runtimes would refuse or get wrong. Edits that change nothing are fine: the daemon
/// adds its own.
pub fn edits_problems(edits: &ContainerEdits) -> Vec<DeviceProblem> {
    // A spec of one device, as in a claim's CDI file; only its edits can be wrong.
    let mut spec = hostler_cdi::CdiSpec {
        kind: "hostler.dev/device".to_owned(),
        devices: vec![hostler_cdi::CdiDevice {
            name: "device".to_owned(),
            container_edits: edits.clone(),
            ..hostler_cdi::CdiDevice::default()
        }],
        ..hostler_cdi::CdiSpec::default()
    };
    spec.cdi_version = hostler_cdi::minimum_version(&spec).to_string();
    let problems = if edits.is_empty() { Vec::new() } else { spec.validate().err().unwrap_or_default() };
    problems
        .into_iter()
        .map(|problem| DeviceProblem {
            field: problem.field.replacen("devices[0].containerEdits", "edits", 1),
            reason: format!("{}; {}", problem.message, problem.fix),
        })
        .collect()
}

fn health_problem(health: &Health) -> Option<String> {
    health.reason()?.trim().is_empty().then(|| "say why the device is not healthy".to_owned())
}

fn count_problem(count: usize) -> Option<String> {
    let most = MAX_ATTRIBUTES_AND_CAPACITIES;
    (count > most).then(|| format!("{count} attributes and capacities; a device has {most} at most"))
}

fn values_problem(attributes: &Attributes) -> Option<String> {
    let values = |value: &AttributeValue| match value {
        AttributeValue::Ints(values) => values.len(),
        AttributeValue::Strings(values) => values.len(),
        _ => 1,
    };
    let (count, most) = (attributes.values().map(values).sum::<usize>(), MAX_ATTRIBUTE_VALUES);
    (count > most).then(|| format!("{count} values, those of lists included; a device has {most} at most"))
}

fn value_problem(value: &AttributeValue) -> Option<String> {
    let text = match value {
        AttributeValue::Int(_) | AttributeValue::Bool(_) => return None,
        AttributeValue::Ints(values) => return values.is_empty().then(empty_list),
        AttributeValue::Strings(texts) if texts.is_empty() => return Some(empty_list()),
        AttributeValue::Strings(texts) => {
            return texts.iter().find_map(|text| text_problem(text));
        }
        AttributeValue::String(text) | AttributeValue::Version(text) => text,
    };
    let is_malformed = || matches!(value, AttributeValue::Version(_)) && !is_semver(text);
    let malformed = || format!("{text:?} is no semantic version; write it as 1.2.3 or make it a string");
    text_problem(text).or_else(|| is_malformed().then(malformed))
}

fn text_problem(text: &str) -> Option<String> {
    (text.len() > MAX_ATTRIBUTE_BYTES)
        .then(|| format!("{text:?} has {} bytes; {MAX_ATTRIBUTE_BYTES} are the most", text.len()))
}

fn empty_list() -> String {
    "an empty list is no value; leave the attribute out".to_owned()
}

/// The standard attributes mean the same with every driver, so schedulers compare them: a near miss never matches.
fn standard_problem(name: &str, value: &AttributeValue) -> Option<String> {
    let standard = name.strip_prefix(STANDARD_ATTRIBUTES)?;
    let (ok, rule) = match (standard, value) {
        ("numaNode", AttributeValue::Int(node)) => {
            ((0..=MAX_NUMA_NODE).contains(node), "a node from 0 to 1023; leave it out where the node is not known")
        }
        ("numaNode", AttributeValue::Ints(nodes)) => {
            (nodes.iter().all(|node| (0..=MAX_NUMA_NODE).contains(node)), "a list of nodes from 0 to 1023")
        }
        ("numaNode", _) => (false, "a whole number, or a list of them"),
        ("pciBusID", AttributeValue::String(text)) => {
            (is_pci_bus_id(text), "lower-case dddd:bb:dd.f; leave it out for five-digit domains")
        }
        ("pcieRoot", AttributeValue::String(text)) => (is_pcie_root(text), "such as pci0000:16"),
        ("pciBusID" | "pcieRoot", _) => (false, "a string"),
        _ => (false, "one of numaNode, pciBusID and pcieRoot: other names under this domain belong to Kubernetes"),
    };
    (!ok).then(|| format!("{value} does not fit: the standard attribute is {rule}"))
}

fn capacity_problem(capacity: &Capacity, sharing: Sharing) -> Option<String> {
    let policy = capacity.policy.as_ref()?;
    if sharing == Sharing::Exclusive {
        return Some("only a shared device can have a request policy".to_owned());
    }
    policy_problem(capacity.value, policy)
}

fn policy_problem(value: Quantity, policy: &RequestPolicy) -> Option<String> {
    let RequestPolicy { default, min, step } = *policy;
    // The API server does this arithmetic in whole units, rounding up what is finer.
    let amounts = [("value", value), ("default", default), ("min", min), ("step", step)];
    if let Some((name, amount)) = amounts.iter().find(|(_, amount)| amount.as_whole().is_none()) {
        return Some(format!("{name} is {amount}; with a request policy it must be a whole number"));
    }
    // A claim cannot be given a zero amount.
    if let Some((name, _)) = [("min", min), ("step", step)].iter().find(|(_, amount)| amount.is_zero()) {
        return Some(format!("{name} is 0; it must be 1 or more"));
    }
    if default < min || default > value {
        return Some(format!("default is {default}; it must lie between min ({min}) and the value ({value})"));
    }
    [("default", default), ("the value", value)].iter().find(|(_, amount)| policy.round_up(*amount) != *amount).map(
        |(name, amount)| format!("{name} ({amount}) cannot be requested: it is not min ({min}) plus steps of {step}"),
    )
}

fn is_pci_bus_id(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 12
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b':',
            10 => *byte == b'.',
            _ => is_lower_hex(*byte),
        })
}

fn is_pcie_root(text: &str) -> bool {
    let Some((domain, bus)) = text.strip_prefix("pci").and_then(|rest| rest.split_once(':')) else { return false };
    (4..=8).contains(&domain.len()) && bus.len() == 2 && domain.bytes().chain(bus.bytes()).all(is_lower_hex)
}

fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Semantic Versioning 2.0.0: `MAJOR.MINOR.PATCH[-pre.release][+build]`.
fn is_semver(text: &str) -> bool {
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
    let numeric = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let no_leading_zero = |part: &str| part == "0" || !part.starts_with('0');
    let identifier =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    core.split('.').count() == 3
        && core.split('.').all(|part| numeric(part) && no_leading_zero(part))
        && pre
            .is_none_or(|pre| pre.split('.').all(|part| identifier(part) && (!numeric(part) || no_leading_zero(part))))
        && build.is_none_or(|build| build.split('.').all(identifier))
}

#[cfg(test)]
mod tests;
