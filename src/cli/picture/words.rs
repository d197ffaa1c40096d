//! Words that pictures and the live view share.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{Quantity, plain_line};

use super::legend::{BLOCKED, Legend, SIGNS, Tone};
use crate::{
    units::{amount, bytes, count},
    usage::{
        holders::{CpuState, DeviceHealth, DeviceUsage, MachineUsage},
        layout::MachineLayout,
    },
};

/// Devices that are named of one holder; more are counted.
const MOST_DEVICES: usize = 4;

/// The machine, and its CPUs, in a line each.
pub(in crate::cli) fn summary(usage: &MachineUsage) -> Vec<String> {
    let machine = &usage.machine;
    // A capture may have been taken without its CPUs: then none of this is known.
    let counts = [
        (machine.packages.len(), "package"),
        (machine.cores.len(), "core"),
        (machine.online().len(), "CPU"),
        (machine.nodes.len(), "NUMA node"),
    ];
    let mut parts: Vec<String> =
        counts.into_iter().filter(|(number, _)| *number > 0).map(|(number, noun)| count(number, noun)).collect();
    parts.extend(machine.memory_bytes().filter(|known| *known > 0).map(bytes));
    if parts.is_empty() {
        parts.push("nothing is known of its CPUs and memory".to_owned());
    }
    let mut lines = vec![format!("{}: {}", plain_line(&usage.node), parts.join(", "))];
    let cpus = cpu_counts(usage);
    lines.extend((!cpus.is_empty()).then(|| format!("CPUs: {}", cpus.join(", "))));
    lines
}

/// `3 held, 4 free, …`: of every state that there is.
fn cpu_counts(usage: &MachineUsage) -> Vec<String> {
    let mut counts = [
        ("held", 0_usize),
        ("kept idle", 0),
        ("free", 0),
        ("drained", 0),
        ("unhealthy", 0),
        ("system", 0),
        ("offline", 0),
    ];
    for state in usage.cpu_states().into_values() {
        let place = match state {
            CpuState::Held(_) => 0,
            CpuState::Kept(_) => 1,
            CpuState::Free => 2,
            CpuState::Drained => 3,
            CpuState::Unhealthy => 4,
            CpuState::Reserved => 5,
            CpuState::Offline => 6,
        };
        counts[place].1 += 1;
    }
    counts.iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}")).collect()
}

/// The devices of each NUMA node, in the order of their backends; those that are on none that is there under `None`.
pub(in crate::cli) fn devices_by_node(usage: &MachineUsage) -> BTreeMap<Option<u32>, Vec<&DeviceUsage>> {
    let mut all: BTreeMap<Option<u32>, Vec<&DeviceUsage>> = BTreeMap::new();
    for device in &usage.devices {
        let node = device.numa_node.filter(|node| usage.machine.nodes.contains_key(node));
        all.entry(node).or_default().push(device);
    }
    all
}

/// How a CPU is, and by whom.
pub(in crate::cli) fn cpu_state(usage: &MachineUsage, state: CpuState) -> String {
    let name = |holder: usize| usage.holders.get(holder).map(|holder| plain_line(&holder.full_name()).into_owned());
    match state {
        CpuState::Held(holder) => format!("held by {}", name(holder).unwrap_or_default()),
        CpuState::Kept(holder) => format!("kept idle for {}", name(holder).unwrap_or_default()),
        CpuState::Free => "free".to_owned(),
        CpuState::Drained => "its device is drained".to_owned(),
        CpuState::Unhealthy => "its device is not healthy".to_owned(),
        CpuState::Reserved => "stays with the system".to_owned(),
        CpuState::Offline => "does not run".to_owned(),
    }
}

/// How a device is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::cli) struct DeviceWords {
    /// In a word or two.
    pub(in crate::cli) short: String,
    /// With the reason.
    pub(in crate::cli) whole: String,
    /// True if the rest of it can be had.
    pub(in crate::cli) can_be_had: bool,
    /// The colour.
    pub(in crate::cli) tone: Tone,
    /// True if that has to be said, held or not.
    pub(in crate::cli) is_trouble: bool,
}

/// The signs that a picture of the machine explains.
pub(in crate::cli) fn signs(usage: &MachineUsage) -> impl Iterator<Item = (char, Tone, &'static str)> {
    let is_blocked = usage.devices.iter().any(|device| device_state(device).tone == Tone::Blocked);
    SIGNS.into_iter().chain(is_blocked.then_some(BLOCKED))
}

/// How a device is: in service or not, working or not, held or not.
pub(in crate::cli) fn device_state(device: &DeviceUsage) -> DeviceWords {
    let reason = device.health_reason.as_deref();
    let drained = device.drained.as_ref();
    let (word, reason, tone) = match (drained, device.health) {
        (_, DeviceHealth::Absent) => ("absent", reason, Tone::Offline),
        (_, DeviceHealth::Unhealthy) => ("unhealthy", reason, Tone::Unhealthy),
        (Some(drain), _) => ("drained", drain.reason.as_deref(), Tone::Drained),
        (None, DeviceHealth::Unknown) => ("unknown", reason, Tone::Unhealthy),
        (None, DeviceHealth::Healthy) if device.is_held() && device.shared == Some(true) => {
            ("in use", None, Tone::Plain)
        }
        (None, DeviceHealth::Healthy) if device.is_held() => ("held", None, Tone::Plain),
        (None, DeviceHealth::Healthy) if device.blocked => ("blocked", None, Tone::Blocked),
        (None, DeviceHealth::Healthy) => ("free", None, Tone::Free),
    };
    let reason = reason.map(|reason| format!(": {}", plain_line(reason))).unwrap_or_default();
    let stale = if device.stale { ", stale" } else { "" };
    let can_be_had = matches!(word, "in use" | "held" | "free");
    DeviceWords {
        short: format!("{word}{stale}"),
        whole: format!("{word}{stale}{reason}"),
        can_be_had,
        tone,
        is_trouble: !can_be_had || device.stale,
    }
}

/// The beginning of a text that is too long.
pub(in crate::cli) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept = text.chars().take(most.saturating_sub(1));
    kept.chain((most > 0).then_some('…')).collect()
}

/// The letters of those who hold a device, each once.
pub(in crate::cli) fn letters(legend: &Legend, device: &DeviceUsage, most: usize) -> String {
    let groups: BTreeSet<usize> = device.holds.iter().filter_map(|hold| legend.group_of(hold.holder)).collect();
    let letters: String =
        groups.iter().take(most).filter_map(|group| legend.groups().get(*group)).map(|entry| entry.letter).collect();
    if groups.len() > most { format!("{letters}+{}", groups.len() - most) } else { letters }
}

/// Tells of every capacity what can still be had: `cpus 3/4 free`. Of a device of which nothing can be had, what there
/// is: `cpus 4`, `cpus 1/4 held`.
pub(in crate::cli) fn amounts(device: &DeviceUsage, can_be_had: bool) -> String {
    let known = device.amounts.iter().filter(|(_, it)| !it.capacity.is_zero());
    let parts = known.map(|(name, it)| {
        let (name, all) = (plain_line(name), amount(it.capacity));
        match can_be_had {
            true => format!("{name} {}/{all} free", amount(it.free)),
            false if it.held.is_zero() => format!("{name} {all}"),
            false => format!("{name} {}/{all} held", amount(it.held)),
        }
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Lists what a group of holders has: CPUs, amounts, and devices by name.
pub(in crate::cli) fn holdings(usage: &MachineUsage, legend: &Legend, group: usize) -> String {
    let mut amounts: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut whole = Vec::new();
    for device in &usage.devices {
        let own = device.holds.iter().filter(|hold| legend.group_of(hold.holder) == Some(group));
        let mut has = false;
        for (name, taken) in own.inspect(|_| has = true).flat_map(|hold| &hold.amounts) {
            let sum = amounts.entry(name).or_default();
            *sum = sum.plus(*taken);
        }
        if has && device.amounts.is_empty() {
            whole.push(plain_line(&device.path()).into_owned());
        }
    }
    let amounts = amounts.iter().map(|(name, taken)| format!("{} {}", plain_line(name), amount(*taken)));
    let more = whole.len().saturating_sub(MOST_DEVICES);
    whole.truncate(MOST_DEVICES);
    let counted = (more > 0).then(|| format!("and {more} more"));
    let parts: Vec<String> = amounts.chain(whole).chain(counted).collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// A line of headings and one for each node.
pub(in crate::cli) fn distances(machine: &MachineLayout) -> Vec<String> {
    let line = |first: String, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>4}")).collect();
        format!("{first:>4}{cells}")
    };
    let nodes = &machine.nodes;
    let mut lines = vec![line(String::new(), nodes.keys().map(ToString::to_string).collect())];
    for (id, node) in nodes {
        let distance = |to: &u32| node.distances.get(to).map_or_else(|| "-".to_owned(), ToString::to_string);
        lines.push(line(id.to_string(), nodes.keys().map(distance).collect()));
    }
    lines
}
