//! One node for people.

use std::{
    collections::BTreeMap,
    fmt::Write,
    time::{Duration, SystemTime},
};

use hostler_api::{few, hardware::DeviceState, listed, plain_line};
use hostler_cli::{
    output::TableWidth,
    table::{TextTable, or_dash},
};
use hostler_cluster::from_rfc3339;

use super::detail::{DaemonReport, NodeDetail};
use crate::{
    availability::NodeAvailability,
    serve::{DeviceAnswer, MachineAnswer},
};

/// Writes the node, its classes, holders and Reservations, and the devices that no claim can have; a wide answer has
/// every device.
pub(super) fn text(detail: &NodeDetail, width: TableWidth, now: SystemTime) -> String {
    let machine = &detail.machine;
    let status = NodeAvailability {
        is_there: machine.is_there,
        is_ready: machine.is_ready,
        is_schedulable: machine.is_schedulable,
        report: machine.report,
    };
    let mut text = format!("Node {}: {status}; {}\n", machine.name, states(machine));
    text += &daemon(detail.daemon.as_ref(), now);
    for trouble in &machine.troubles {
        // Writing to a text does not fail.
        let _ = writeln!(text, "Trouble: {}", plain_line(trouble));
    }
    for section in [classes(machine), holders(machine), reservations(machine), devices(machine, width)] {
        if !section.is_empty() {
            let _ = write!(text, "\n{section}");
        }
    }
    text
}

/// Counts the devices by state: `8 devices: 3 free, 5 allocated`.
fn states(machine: &MachineAnswer) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    machine.devices.iter().for_each(|device| *counts.entry(word(device.state)).or_default() += 1);
    let count = machine.devices.len();
    let counts = counts.into_iter().map(|(state, count)| format!("{count} {state}"));
    match count {
        0 => "no devices".to_owned(),
        _ => format!("{count} device{}: {}", if count == 1 { "" } else { "s" }, listed(usize::MAX, ", ", counts)),
    }
}

fn word(state: DeviceState) -> &'static str {
    match state {
        DeviceState::Free => "free",
        DeviceState::Allocated => "allocated",
        DeviceState::Held => "held",
        DeviceState::Unhealthy => "unhealthy",
        DeviceState::Drained => "drained",
        DeviceState::Unknown => "unknown",
        DeviceState::Blocked => "blocked",
    }
}

fn daemon(report: Option<&DaemonReport>, now: SystemTime) -> String {
    let Some(report) = report else {
        return "Daemon: no report; hostler does not run there, or has not reported yet\n".to_owned();
    };
    let written = report.last_report_time.as_deref().and_then(from_rfc3339);
    let age = written.and_then(|written| now.duration_since(written).ok());
    let age = age.map(|age| format!(", last report {} ago", short(age))).unwrap_or_default();
    let mut text = format!(
        "Daemon: hostler {}, driver {}, kernel {}{age}\n",
        report.hostler_version, report.driver, report.kernel_version
    );
    for condition in &report.conditions {
        let _ = writeln!(
            text,
            "Condition: {} is {}: {}",
            condition.kind,
            condition.status.as_str(),
            plain_line(&condition.message)
        );
    }
    text
}

/// Writes a duration as kubectl does: `45s`, `12m`, `3h`, `2d`.
fn short(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

fn classes(machine: &MachineAnswer) -> String {
    let mut classes: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for device in &machine.devices {
        for class in device.classes.iter() {
            *classes.entry(class).or_default().entry(word(device.state)).or_default() += 1;
        }
    }
    if classes.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&["CLASS", "DEVICES", "FREE", "STATES"]);
    for (class, states) in classes {
        let all: usize = states.values().sum();
        let free = states.get("free").copied().unwrap_or_default();
        let states = states.iter().map(|(state, count)| format!("{count} {state}"));
        table.row([class.to_owned(), all.to_string(), free.to_string(), listed(usize::MAX, ", ", states)]);
    }
    table.to_string()
}

fn holders(machine: &MachineAnswer) -> String {
    if machine.holders.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&["CLAIM", "DEVICES", "PODS"]);
    for (at, holder) in machine.holders.iter().enumerate() {
        let devices = machine.devices.iter().filter(|device| device.holds.iter().any(|hold| hold.holder == at)).count();
        let claim = format!("{}/{}", holder.namespace, holder.name);
        table.row([claim, devices.to_string(), or_dash(&few(&holder.pods))]);
    }
    table.to_string()
}

fn reservations(machine: &MachineAnswer) -> String {
    if machine.reservations.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&["RESERVATION", "PHASE", "DEVICES", "FOR", "LASTS"]);
    for it in &machine.reservations {
        let devices = machine.devices.iter().filter(|device| device.kept_for.as_ref() == Some(&it.name)).count();
        table.row([&it.name, &it.phase, &devices.to_string(), &or_dash(&it.owners.join(", ")), &it.lasts]);
    }
    table.to_string()
}

fn devices(machine: &MachineAnswer, width: TableWidth) -> String {
    let is_shown = |device: &&DeviceAnswer| {
        width == TableWidth::Wide
            || !matches!(device.state, DeviceState::Free | DeviceState::Allocated | DeviceState::Held)
    };
    let shown: Vec<&DeviceAnswer> = machine.devices.iter().filter(is_shown).collect();
    if shown.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&["DEVICE", "STATE", "NUMA", "CLASSES", "CLAIMS", "KEPT FOR"]);
    for device in shown {
        let claim = |at: usize| machine.holders.get(at).map(|it| format!("{}/{}", it.namespace, it.name));
        let claims: Vec<String> = device.holds.iter().filter_map(|hold| claim(hold.holder)).collect();
        table.row([
            format!("{}/{}/{}", device.driver, device.pool, device.name),
            word(device.state).to_owned(),
            device.numa_node.map_or_else(|| "-".to_owned(), |node| node.to_string()),
            or_dash(&few(device.classes.iter())),
            or_dash(&few(&claims)),
            device.kept_for.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_as_short_as_those_of_kubectl() {
        let of = |seconds| short(Duration::from_secs(seconds));
        assert_eq!([of(5), of(119), of(180), of(7300), of(200_000)], ["5s", "119s", "3m", "2h", "2d"]);
    }
}
