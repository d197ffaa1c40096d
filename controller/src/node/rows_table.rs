//! The nodes for people: a bar for each, and the holders beside it.

use hostler_api::{few, hardware::DeviceTotals, listed};
use hostler_cli::{
    output::TableWidth,
    table::{TextTable, or_dash},
};

use super::rows::NodeRows;

/// Cells of a bar: sixteen show an eighth of a node's devices, and leave room for names.
const BAR: u32 = 16;

/// Signs of a bar, with their meaning: allocated, held, out of service, free.
const LEGEND: &str = "Bars: # allocated, : held, x out of service or not known, . free\n";

/// Writes a row for each node, and their sum.
pub(super) fn text(rows: &NodeRows, width: TableWidth) -> String {
    let headings = ["NODE", "DEVICES", "USE", "FREE", "ALLOCATED", "HELD", "OTHER", "STATUS", "HOLDERS"];
    let mut table = TextTable::new(&headings);
    let cells = |name: &str, devices: &DeviceTotals, status: String, holders: String| {
        let counts = [devices.free, devices.allocated, devices.held, other(devices)].map(|count| count.to_string());
        let first = [name.to_owned(), devices.capacity.to_string(), bar(devices)];
        first.into_iter().chain(counts).chain([status, holders]).collect::<Vec<String>>()
    };
    for row in &rows.items {
        let of_namespaces = row.holders.iter().map(|(namespace, count)| format!("{namespace} {count}"));
        let of_reservations = row.held_for.iter().map(|(name, count)| format!("kept for {name} {count}"));
        let all = of_namespaces.chain(of_reservations);
        let holders = if width == TableWidth::Wide { listed(usize::MAX, ", ", all) } else { few(all) };
        table.row(cells(&row.name, &row.devices, row.status.to_string(), or_dash(&holders)));
    }
    table.row(cells("TOTAL", &rows.total, String::new(), String::new()));
    format!("{table}\n{LEGEND}")
}

/// Counts the devices that no claim can have, and those of which nothing is known.
fn other(devices: &DeviceTotals) -> u32 {
    devices.capacity.saturating_sub(devices.free + devices.allocated + devices.held)
}

/// Draws the devices. What is there has a cell at least, as long as there is room: one device of a hundred is seen.
fn bar(devices: &DeviceTotals) -> String {
    if devices.capacity == 0 {
        return String::new();
    }
    let size = |count: u32| if count == 0 { 0 } else { (count * BAR / devices.capacity).max(1) };
    let mut bar = String::new();
    for (sign, count) in [('#', devices.allocated), (':', devices.held), ('x', other(devices))] {
        bar.extend(std::iter::repeat_n(sign, size(count) as usize));
    }
    let most = if devices.free == 0 { BAR } else { BAR - 1 } as usize;
    bar.truncate(most);
    let rest = if devices.free == 0 { bar.chars().last().unwrap_or('.') } else { '.' };
    bar.extend(std::iter::repeat_n(rest, BAR as usize - bar.len()));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_and_shows_the_smallest_part() {
        let of = |free, allocated, held, drained| {
            let capacity = free + allocated + held + drained;
            bar(&DeviceTotals { capacity, free, allocated, held, drained, ..DeviceTotals::default() })
        };
        assert_eq!(of(4, 4, 0, 0), "########........");
        assert_eq!(of(0, 100, 0, 1), "###############x");
        assert_eq!(of(1, 100, 0, 0), "###############.");
        assert_eq!(of(99, 0, 1, 0), ":...............");
        assert_eq!(of(0, 0, 0, 0), "");
        assert_eq!(of(0, 1, 1, 1), "#####:::::xxxxxx");
    }
}
