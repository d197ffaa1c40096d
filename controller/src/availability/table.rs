//! The table of devices, for people.

use std::fmt::Write;

use hostler_api::{
    hardware::{AmountCounts, DeviceTotals},
    listed, plain_line,
};
use hostler_cli::{
    output::TableWidth,
    table::{TextTable, or_dash},
};

use super::{Availability, AvailabilityBy, AvailabilityCounts, AvailabilityRow};
use crate::held::KeptReservation;

/// A state that is shown only if a device is in it: the table is no wider than it must be.
type StateColumn = (&'static str, fn(&DeviceTotals) -> u32);
const STATES: [StateColumn; 7] = [
    ("FREE", |devices| devices.free),
    ("ALLOCATED", |devices| devices.allocated),
    ("HELD", |devices| devices.held),
    ("BLOCKED", |devices| devices.blocked),
    ("UNHEALTHY", |devices| devices.unhealthy),
    ("DRAINED", |devices| devices.drained),
    ("UNKNOWN", |devices| devices.unknown),
];
/// The first columns, which are always shown.
const ALWAYS: usize = 2;

/// Writes the rows, and their sum; a wide answer has every state, amounts and classes.
pub(super) fn text(answer: &Availability, width: TableWidth) -> String {
    let is_wide = width == TableWidth::Wide;
    let states: Vec<StateColumn> = STATES
        .into_iter()
        .enumerate()
        .filter(|(at, (_, of))| is_wide || *at < ALWAYS || of(&answer.total.devices) > 0)
        .map(|(_, state)| state)
        .collect();
    let has_status = matches!(answer.by, AvailabilityBy::Node | AvailabilityBy::Numa);
    let mut more = if is_wide { more_headings(answer.by) } else { Vec::new() };
    let tells_for_whom = is_wide && !answer.total.held_for.is_empty();
    more.extend(tells_for_whom.then_some("HELD FOR"));
    let mut headings = headings(answer.by);
    headings.push("DEVICES");
    headings.extend(states.iter().map(|(heading, _)| *heading));
    headings.extend(more.iter().copied());
    headings.extend(has_status.then_some("STATUS"));
    let mut table = TextTable::new(&headings);
    for row in &answer.rows {
        let mut cells = names(answer.by, row);
        cells.extend(counts(&row.counts, &states));
        cells.extend(if is_wide { more_cells(answer.by, row) } else { Vec::new() });
        cells.extend(tells_for_whom.then(|| held_for(&row.counts)));
        cells.extend(has_status.then(|| row.status.map_or_else(|| "-".to_owned(), |status| status.to_string())));
        table.row(&cells);
    }
    let mut total = vec!["TOTAL".to_owned()];
    total.resize(names(answer.by, &AvailabilityRow::default()).len(), String::new());
    total.extend(counts(&answer.total, &states));
    total.extend(if is_wide { vec![amounts(&answer.total)] } else { Vec::new() });
    total.resize(headings.len(), String::new());
    table.row(&total);
    table.to_string() + &reservations(answer) + &notes(answer)
}

fn held_for(counts: &AvailabilityCounts) -> String {
    or_dash(&listed(usize::MAX, ", ", counts.held_for.iter().map(|(name, count)| format!("{name} {count}"))))
}

/// Lists the Reservations for which devices are held.
fn reservations(answer: &Availability) -> String {
    if answer.reservations.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&["RESERVATION", "PHASE", "HELD", "FOR", "LASTS"]);
    for KeptReservation { name, phase, owners, lasts } in &answer.reservations {
        let held = answer.total.held_for.get(name).copied().unwrap_or_default().to_string();
        table.row([name, phase, &held, &or_dash(&owners.join(", ")), lasts]);
    }
    format!("\n{table}")
}

fn headings(by: AvailabilityBy) -> Vec<&'static str> {
    match by {
        AvailabilityBy::Class => vec!["CLASS"],
        AvailabilityBy::Node => vec!["NODE"],
        AvailabilityBy::Numa => vec!["NODE", "NUMA"],
        AvailabilityBy::Namespace => vec!["NAMESPACE"],
    }
}

fn more_headings(by: AvailabilityBy) -> Vec<&'static str> {
    match by {
        AvailabilityBy::Class => vec!["FREE AMOUNTS"],
        AvailabilityBy::Namespace => vec!["FREE AMOUNTS", "DEVICES BY CLASS"],
        AvailabilityBy::Node | AvailabilityBy::Numa => vec!["FREE AMOUNTS", "FREE BY CLASS"],
    }
}

fn names(by: AvailabilityBy, row: &AvailabilityRow) -> Vec<String> {
    let or_none = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    match by {
        AvailabilityBy::Class => vec![or_none(&row.class)],
        AvailabilityBy::Node => vec![or_none(&row.node)],
        AvailabilityBy::Numa => vec![or_none(&row.node), or_none(&row.numa_node.map(|number| number.to_string()))],
        AvailabilityBy::Namespace => vec![or_none(&row.namespace)],
    }
}

fn counts(counts: &AvailabilityCounts, states: &[StateColumn]) -> Vec<String> {
    let devices = &counts.devices;
    let all = Some(devices.capacity.to_string());
    all.into_iter().chain(states.iter().map(|(_, of)| of(devices).to_string())).collect()
}

fn more_cells(by: AvailabilityBy, row: &AvailabilityRow) -> Vec<String> {
    let mut cells = vec![amounts(&row.counts)];
    if by != AvailabilityBy::Class {
        let of_class = |(class, devices): (&String, &DeviceTotals)| match by {
            AvailabilityBy::Namespace => format!("{class} {}", devices.capacity),
            _ => format!("{class} {}/{}", devices.free, devices.capacity),
        };
        cells.push(or_dash(&listed(usize::MAX, ", ", row.classes.iter().map(of_class))));
    }
    cells
}

fn amounts(counts: &AvailabilityCounts) -> String {
    let of = |(name, amounts): (&String, &AmountCounts)| {
        format!("{name} {}/{}", amounts.free.human(), amounts.capacity.human())
    };
    or_dash(&listed(usize::MAX, ", ", counts.amounts.iter().map(of)))
}

fn notes(answer: &Availability) -> String {
    let mut text = String::new();
    for note in &answer.notes {
        // Writing to a text does not fail.
        let _ = write!(text, "\nNote: {}", plain_line(note));
    }
    if text.is_empty() { text } else { text + "\n" }
}
