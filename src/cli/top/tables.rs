//! The table below the machine: claims, namespaces or NUMA nodes, with what each has.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{Quantity, cut_middle, plain_line};
use hostler_linux::IdSet;

use super::{
    line::{PageLine, PageSpan},
    view::{PageView, TopTable},
};
use crate::{
    cli::picture::{
        legend::{Legend, Tone},
        words,
    },
    units::{amount, count},
    usage::holders::{HeldAmount, MachineUsage},
};

/// The longest list of CPUs in a column.
const LONGEST_CPUS: usize = 14;
/// Names of holders have at least so many columns.
const SHORTEST_NAME: usize = 24;
/// Letters of one node; more are counted.
const MOST_LETTERS: usize = 16;

/// A row: what its letter is, and its cells.
type Row = (Option<(char, Tone)>, Vec<String>);

/// The lines of the table that is wanted.
pub(super) fn table(view: &PageView<'_>, legend: &Legend, width: usize) -> Vec<PageLine> {
    let usage = view.usage;
    // A long name leaves room for what its holder has.
    let longest = (width / 3).max(SHORTEST_NAME);
    match view.table {
        TopTable::Claim if usage.holders.is_empty() => vec![PageLine::of(vec![PageSpan::plain("no claims")])],
        TopTable::Claim => lines(&["CLAIM", "STATE", "CPUS", "HOLDS"], &claims(usage, legend, longest)),
        TopTable::Namespace => lines(&["NAMESPACE", "CLAIMS", "HOLDS"], &namespaces(usage, legend, longest)),
        TopTable::Node => lines(&["NUMA NODE", "HOLDERS", "FREE"], &nodes(usage, legend)),
    }
}

/// A claim by itself, or several with one name: one line each, under the letter of their group.
fn claims(usage: &MachineUsage, legend: &Legend, longest: usize) -> Vec<Row> {
    let groups = legend.groups().iter().enumerate();
    let row = |(place, group): (usize, &crate::cli::picture::legend::LegendEntry)| {
        let states: BTreeSet<&str> = usage
            .holders
            .iter()
            .enumerate()
            .filter(|(holder, _)| legend.group_of(*holder) == Some(place))
            .map(|(_, holder)| holder.state.as_str())
            .collect();
        let cpus = words::cut(&cpus_of(usage, legend, place).to_string(), LONGEST_CPUS);
        let states = states.into_iter().collect::<Vec<_>>().join(", ");
        let cells = vec![
            cut_middle(&plain_line(&group.name), longest).into_owned(),
            states,
            cpus,
            words::holdings(usage, legend, place),
        ];
        (Some((group.letter, Tone::Holder(group.colour))), cells)
    };
    groups.map(row).collect()
}

fn namespaces(usage: &MachineUsage, legend: &Legend, longest: usize) -> Vec<Row> {
    let groups = legend.groups().iter().enumerate();
    groups
        .map(|(place, group)| {
            let claims = (0..usage.holders.len()).filter(|holder| legend.group_of(*holder) == Some(place)).count();
            let cells = vec![
                cut_middle(&plain_line(&group.name), longest).into_owned(),
                claims.to_string(),
                words::holdings(usage, legend, place),
            ];
            (Some((group.letter, Tone::Holder(group.colour))), cells)
        })
        .collect()
}

/// Lists what is free on each node, over all its devices.
fn nodes(usage: &MachineUsage, legend: &Legend) -> Vec<Row> {
    let row = |(node, devices): (Option<u32>, Vec<&crate::usage::holders::DeviceUsage>)| {
        let mut amounts: BTreeMap<&str, HeldAmount> = BTreeMap::new();
        let (mut whole, mut free) = (0_usize, 0_usize);
        let mut groups = BTreeSet::new();
        for device in devices {
            let can_be_had = words::device_state(device).can_be_had;
            groups.extend(device.holds.iter().filter_map(|hold| legend.group_of(hold.holder)));
            for (name, known) in &device.amounts {
                let sum = amounts.entry(name).or_default();
                sum.capacity = sum.capacity.plus(known.capacity);
                sum.free = if can_be_had { sum.free.plus(known.free) } else { sum.free };
            }
            whole += usize::from(device.amounts.is_empty());
            free += usize::from(device.amounts.is_empty() && !device.is_held() && can_be_had);
        }
        let parts = amounts.iter().filter(|(_, it)| it.capacity > Quantity::default());
        let parts = parts.map(|(name, it)| format!("{} {}/{}", plain_line(name), amount(it.free), amount(it.capacity)));
        let devices = (whole > 0).then(|| format!("{free}/{} whole", count(whole, "device")));
        let name = node.map_or_else(|| "none".to_owned(), |node| node.to_string());
        let free = parts.chain(devices).collect::<Vec<_>>().join(", ");
        (None, vec![name, letters(legend, &groups), free])
    };
    words::devices_by_node(usage).into_iter().map(row).collect()
}

fn letters(legend: &Legend, groups: &BTreeSet<usize>) -> String {
    let all = groups.iter().filter_map(|group| legend.groups().get(*group)).map(|entry| entry.letter);
    let more = groups.len().saturating_sub(MOST_LETTERS);
    let shown: String = all.take(MOST_LETTERS).collect();
    if more > 0 { format!("{shown}+{more}") } else { shown }
}

/// The CPUs that a group is bound to.
fn cpus_of(usage: &MachineUsage, legend: &Legend, group: usize) -> IdSet {
    let holds = usage.devices.iter().flat_map(|device| &device.holds);
    let own = holds.filter(|hold| legend.group_of(hold.holder) == Some(group));
    own.fold(IdSet::new(), |all, hold| all.union(&hold.cpus))
}

/// Columns as wide as their widest cell; the last one as long as it is.
fn lines(headings: &[&str], rows: &[Row]) -> Vec<PageLine> {
    let headings: Vec<String> = headings.iter().map(ToString::to_string).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|(_, cells)| cells[column].chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let text = |cells: &[String]| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![PageLine::of(vec![PageSpan::bold(format!("  {}", text(&headings)))])];
    for (letter, cells) in rows {
        let (sign, tone) = letter.map_or((" ".to_owned(), Tone::Plain), |(letter, tone)| (letter.to_string(), tone));
        let sign = PageSpan { text: sign, tone, is_bold: true, is_dim: false };
        lines.push(PageLine::of(vec![sign, PageSpan::plain(format!(" {}", text(cells)))]));
    }
    lines
}
