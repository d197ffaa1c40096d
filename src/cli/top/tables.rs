//! The table below the machine: claims, namespaces or NUMA nodes, with what each has.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{Quantity, cut_middle, plain_line};
use hostler_linux::IdSet;

use super::{
    filter::{FilteredUsage, shown_devices},
    line::{PageLine, PageSpan},
    order::{RowOrder, SortKey},
    view::{PageView, TopTable},
};
use crate::{
    cli::picture::{
        legend::{Legend, LegendEntry, Tone},
        words,
    },
    units::{amount, count},
    usage::holders::{DeviceUsage, HeldAmount, MachineUsage},
};

/// The longest list of CPUs in a column.
const LONGEST_CPUS: usize = 14;
/// Names of holders have at least so many columns.
const SHORTEST_NAME: usize = 24;
/// Letters of one node; more are counted.
const MOST_LETTERS: usize = 16;

/// A row of the table.
struct TableRow {
    letter: Option<(char, Tone)>,
    cells: Vec<String>,
    /// The value of each cell, for the order.
    keys: Vec<SortKey>,
}

/// The lines of the table that is wanted.
pub(super) fn table(
    view: &PageView<'_>,
    legend: &Legend,
    filtered: Option<&FilteredUsage>,
    width: usize,
) -> Vec<PageLine> {
    // A long name leaves room for what its holder has.
    let longest = (width / 3).max(SHORTEST_NAME);
    let holders = TableHolders { usage: view.usage, legend, filtered, longest };
    let rows = match view.table {
        TopTable::Claim if view.usage.holders.is_empty() => {
            return vec![PageLine::of(vec![PageSpan::plain("no claims")])];
        }
        TopTable::Claim => holders.rows(TableHolders::claim),
        TopTable::Namespace => holders.rows(TableHolders::namespace),
        TopTable::Node => nodes(view.usage, legend, filtered),
    };
    lines(headings(view.table), rows, view.order)
}

/// The headings of a table.
pub(super) fn headings(table: TopTable) -> &'static [&'static str] {
    match table {
        TopTable::Claim => &["CLAIM", "STATE", "CPUS", "HOLDS"],
        TopTable::Namespace => &["NAMESPACE", "CLAIMS", "HOLDS"],
        TopTable::Node => &["NUMA NODE", "HOLDERS", "FREE"],
    }
}

/// Groups of holders, each with a row: a claim by itself, several with one name, or a namespace.
struct TableHolders<'a> {
    usage: &'a MachineUsage,
    legend: &'a Legend,
    filtered: Option<&'a FilteredUsage>,
    longest: usize,
}

impl TableHolders<'_> {
    fn rows(&self, row: fn(&Self, usize, &LegendEntry) -> TableRow) -> Vec<TableRow> {
        let is_shown = |place: usize| {
            self.filtered
                .is_none_or(|filtered| filtered.holders.iter().any(|it| self.legend.group_of(*it) == Some(place)))
        };
        let groups = self.legend.groups().iter().enumerate().filter(|(place, _)| is_shown(*place));
        groups.map(|(place, group)| row(self, place, group)).collect()
    }

    fn claim(&self, place: usize, group: &LegendEntry) -> TableRow {
        let states: BTreeSet<&str> =
            self.members(place).map(|holder| self.usage.holders[holder].state.as_str()).collect();
        let states = states.into_iter().collect::<Vec<_>>().join(", ");
        let cpus = self.cpus(place);
        let shown_cpus = words::cut(&cpus.to_string(), LONGEST_CPUS);
        let keys = vec![SortKey::Text(states.clone()), SortKey::amount(cpus.len() as u64)];
        self.row(place, group, vec![states, shown_cpus], keys)
    }

    fn namespace(&self, place: usize, group: &LegendEntry) -> TableRow {
        let claims = self.members(place).count();
        self.row(place, group, vec![claims.to_string()], vec![SortKey::amount(claims as u64)])
    }

    /// The row of a group: its name, these cells, and what it has.
    fn row(&self, place: usize, group: &LegendEntry, cells: Vec<String>, keys: Vec<SortKey>) -> TableRow {
        let name = cut_middle(&plain_line(&group.name), self.longest).into_owned();
        let has = words::holdings(self.usage, self.legend, place);
        let parts = self.usage.devices.iter().flat_map(|device| &device.holds);
        let parts = parts.filter(|hold| self.legend.group_of(hold.holder) == Some(place)).count();
        TableRow {
            letter: Some((group.letter, Tone::Holder(group.colour))),
            cells: [vec![name], cells, vec![has]].concat(),
            // Groups are in the order of their names.
            keys: [vec![SortKey::Number(place as u64)], keys, vec![SortKey::amount(parts as u64)]].concat(),
        }
    }

    fn members(&self, place: usize) -> impl Iterator<Item = usize> {
        (0..self.usage.holders.len()).filter(move |holder| self.legend.group_of(*holder) == Some(place))
    }

    /// The CPUs that a group is bound to.
    fn cpus(&self, place: usize) -> IdSet {
        let holds = self.usage.devices.iter().flat_map(|device| &device.holds);
        let own = holds.filter(|hold| self.legend.group_of(hold.holder) == Some(place));
        own.fold(IdSet::new(), |all, hold| all.union(&hold.cpus))
    }
}

/// Lists what is free on each node, over all its devices.
fn nodes(usage: &MachineUsage, legend: &Legend, filtered: Option<&FilteredUsage>) -> Vec<TableRow> {
    shown_devices(usage, filtered).into_iter().map(|(node, devices)| self::node(node, &devices, legend)).collect()
}

fn node(node: Option<u32>, devices: &[&DeviceUsage], legend: &Legend) -> TableRow {
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
    let free_cpus = amounts.get("cpus").and_then(|cpus| cpus.free.as_whole()).unwrap_or_default();
    let parts = amounts.iter().filter(|(_, it)| it.capacity > Quantity::default());
    let parts = parts.map(|(name, it)| format!("{} {}/{}", plain_line(name), amount(it.free), amount(it.capacity)));
    let devices = (whole > 0).then(|| format!("{free}/{} whole", count(whole, "device")));
    let name = node.map_or_else(|| "none".to_owned(), |node| node.to_string());
    let number = node.map_or(0, |node| u64::from(node) + 1);
    let keys = vec![SortKey::Number(number), SortKey::amount(groups.len() as u64), SortKey::amount(free_cpus)];
    let cells = vec![name, letters(legend, &groups), parts.chain(devices).collect::<Vec<_>>().join(", ")];
    TableRow { letter: None, cells, keys }
}

fn letters(legend: &Legend, groups: &BTreeSet<usize>) -> String {
    let all = groups.iter().filter_map(|group| legend.groups().get(*group)).map(|entry| entry.letter);
    let more = groups.len().saturating_sub(MOST_LETTERS);
    let shown: String = all.take(MOST_LETTERS).collect();
    if more > 0 { format!("{shown}+{more}") } else { shown }
}

/// Columns as wide as their widest cell; the last one as long as it is.
fn lines(headings: &[&str], mut rows: Vec<TableRow>, order: Option<RowOrder>) -> Vec<PageLine> {
    let mark = |(column, heading): (usize, &&str)| match order {
        Some(order) => order.marked(column, heading),
        None => (*heading).to_owned(),
    };
    let headings: Vec<String> = headings.iter().enumerate().map(mark).collect();
    if let Some(order) = order {
        rows.sort_by(|one, other| order.compare(&one.keys, &other.keys));
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row.cells[column].chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let text = |cells: &[String]| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![PageLine::of(vec![PageSpan::bold(format!("  {}", text(&headings)))])];
    for TableRow { letter, cells, .. } in &rows {
        let (sign, tone) = letter.map_or((" ".to_owned(), Tone::Plain), |(letter, tone)| (letter.to_string(), tone));
        let sign = PageSpan { text: sign, tone, is_bold: true, is_dim: false };
        lines.push(PageLine::of(vec![sign, PageSpan::plain(format!(" {}", text(cells)))]));
    }
    lines
}
