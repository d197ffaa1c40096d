//! The whole page: the machine from the outside in, with its devices, and a table of those who hold them. Pure:
//! from the view of the daemon and a width to lines.

use std::{borrow::Cow, collections::BTreeMap};

use hostler_api::{cut_middle, plain_line};
use hostler_linux::IdSet;

use super::{
    cpus::{self, CpuMarks},
    filter::{FilteredUsage, shown_devices},
    head::{HELP, head, signs},
    line::{PageLine, PageSpan},
    tables,
    view::PageView,
};
use crate::{
    cli::picture::{
        legend::{Legend, Tone},
        words,
    },
    units::bytes,
    usage::{
        holders::{CpuState, DeviceUsage},
        layout::LayoutCore,
        nesting::{MachinePart, parts},
    },
};

/// Caches that only threads of one core share say nothing new.
const SMALLEST_CACHE: u32 = 2;
/// The number of columns by which a line under another is further right.
const INDENT: usize = 2;
/// Equal neighbours beyond this number are one line.
const MOST_EQUAL: usize = 4;
/// The longest name of a device.
const LONGEST_PATH: usize = 40;
/// Letters beside a device; more are counted.
const MOST_LETTERS: usize = 6;

/// A page: what stays on top, what can be moved, and what stays below.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopPage {
    pub(super) head: Vec<PageLine>,
    pub(super) body: Vec<PageLine>,
    pub(super) signs: PageLine,
}

impl TopPage {
    /// All of it.
    pub(super) fn lines(&self) -> impl Iterator<Item = &PageLine> {
        static BLANK: PageLine = PageLine { spans: Vec::new() };
        let blank = || std::iter::once(&BLANK);
        self.head.iter().chain(blank()).chain(&self.body).chain(blank()).chain([&self.signs])
    }
}

/// Makes a page of `width` columns.
pub(super) fn page(view: &PageView<'_>, width: usize) -> TopPage {
    let legend = Legend::of(view.usage, view.table.grouping());
    let states = view.usage.cpu_states();
    let filtered = view.filter.filter(|filter| !filter.is_empty()).map(|filter| filter.of(view.usage));
    let holders = filtered.as_ref().map(|filtered| &filtered.holders);
    let marks = CpuMarks { legend: &legend, states: &states, loads: view.loads, holders };
    let devices = shown_devices(view.usage, filtered.as_ref());
    let scene = PageScene { view, marks, devices, filtered: filtered.as_ref(), width };
    let body = if view.help {
        HELP.iter().map(|line| PageLine::of(vec![PageSpan::plain(*line)])).collect()
    } else {
        let mut body = scene.machine();
        body.push(PageLine::default());
        body.extend(tables::table(view, &legend, filtered.as_ref(), width));
        body.extend(changes(view.changes));
        body
    };
    let cut = |lines: Vec<PageLine>| lines.into_iter().map(|line| line.cut(width)).collect();
    TopPage { head: cut(head(view, &states, filtered.as_ref())), body: cut(body), signs: signs(view.usage).cut(width) }
}

/// Lines about the latest changes, if there are any.
fn changes(lines: &[String]) -> Vec<PageLine> {
    let heading = [PageLine::default(), PageLine::of(vec![PageSpan::bold("  CHANGES")])];
    let lines: Vec<PageLine> = lines.iter().map(|line| PageLine::of(vec![PageSpan::plain(line)])).collect();
    if lines.is_empty() { lines } else { heading.into_iter().chain(lines).collect() }
}

/// Values that are looked up for every part.
struct PageScene<'a> {
    view: &'a PageView<'a>,
    marks: CpuMarks<'a>,
    devices: BTreeMap<Option<u32>, Vec<&'a DeviceUsage>>,
    filtered: Option<&'a FilteredUsage>,
    width: usize,
}

impl PageScene<'_> {
    fn machine(&self) -> Vec<PageLine> {
        let machine = &self.view.usage.machine;
        let parts = parts(machine, SMALLEST_CACHE);
        let mut lines: Vec<PageLine> =
            parts.iter().filter(|part| self.is_shown(part)).flat_map(|part| self.part(part, 0)).collect();
        let without_cpus = machine.nodes.iter().filter(|(_, node)| node.cpus.is_empty());
        for (id, _) in without_cpus.filter(|(id, _)| self.filtered.is_none() || self.has_devices(**id)) {
            let title = self.with_memory(format!("NUMA node {id} · no CPUs"), &[*id]);
            lines.push(PageLine::of(vec![PageSpan::bold(title)]));
            lines.extend(self.devices_of(Some(*id), INDENT));
        }
        let elsewhere = self.devices_of(None, INDENT);
        if !elsewhere.is_empty() {
            lines.push(PageLine::of(vec![PageSpan::bold("on no NUMA node")]));
            lines.extend(elsewhere);
        }
        if !machine.offline.is_empty() && self.filtered.is_none() {
            let offline = LayoutCore { cpus: machine.offline.clone(), kind: None };
            let each: Vec<LayoutCore> =
                offline.cpus.iter().map(|cpu| LayoutCore { cpus: [cpu].into_iter().collect(), kind: None }).collect();
            lines.push(PageLine::of(vec![PageSpan::bold("CPUs that do not run")]));
            lines.extend(cpus::rows(&[each.iter().collect()], self.marks, INDENT, self.width));
        }
        lines
    }

    fn part(&self, part: &MachinePart, indent: usize) -> Vec<PageLine> {
        let title = self.with_memory(part.label.clone(), &part.nodes);
        let mut lines = vec![PageLine::of(vec![PageSpan::bold(format!("{:indent$}{title}", ""))])];
        let below = indent + INDENT;
        let is_plain = |child: &MachinePart| child.children.is_empty() && child.nodes.is_empty();
        if part.children.iter().all(is_plain) {
            // Caches and clusters without more in them are groups of one row.
            if let Some(label) = self.label_of(&part.children) {
                lines.push(PageLine::of(vec![PageSpan::dim(format!("{:below$}{label}", ""))]));
            }
            lines.extend(cpus::rows(&self.groups(part), self.marks, below, self.width));
        } else {
            let inner: IdSet = part.children.iter().flat_map(|child| child.cpus.iter()).collect();
            let own = self.cores(&part.cpus.difference(&inner));
            lines.extend(cpus::rows(&[own], self.marks, below, self.width));
            let children = part.children.iter().filter(|child| self.is_shown(child));
            lines.extend(children.flat_map(|child| self.part(child, below)));
        }
        for node in &part.nodes {
            lines.extend(self.devices_of(Some(*node), below));
        }
        lines
    }

    fn has_devices(&self, node: u32) -> bool {
        self.devices.get(&Some(node)).is_some_and(|devices| !devices.is_empty())
    }

    /// True if the filter lets a device or a holder of CPUs in it through.
    fn is_shown(&self, part: &MachinePart) -> bool {
        let Some(filtered) = self.filtered else { return true };
        let is_held = |cpu: u32| match self.marks.states.get(&cpu) {
            Some(CpuState::Held(holder) | CpuState::Kept(holder)) => filtered.holders.contains(holder),
            _ => false,
        };
        part.nodes.iter().any(|node| self.has_devices(*node))
            || part.cpus.iter().any(is_held)
            || part.children.iter().any(|child| self.is_shown(child))
    }

    /// `8 × L3 32 MiB`, one for each kind of group.
    fn label_of(&self, groups: &[MachinePart]) -> Option<String> {
        let runs = groups.chunk_by(|one, next| one.label == next.label);
        let labels: Vec<String> = runs
            .map(|run| if run.len() == 1 { run[0].label.clone() } else { format!("{} × {}", run.len(), run[0].label) })
            .collect();
        (!labels.is_empty()).then(|| labels.join(", "))
    }

    fn groups(&self, part: &MachinePart) -> Vec<Vec<&LayoutCore>> {
        let inner: IdSet = part.children.iter().flat_map(|child| child.cpus.iter()).collect();
        let own = self.cores(&part.cpus.difference(&inner));
        let children = part.children.iter().map(|child| self.cores(&child.cpus));
        children.chain([own]).filter(|group| !group.is_empty()).collect()
    }

    fn cores(&self, cpus: &IdSet) -> Vec<&LayoutCore> {
        self.view.usage.machine.cores.iter().filter(|core| !core.cpus.is_disjoint(cpus)).collect()
    }

    fn with_memory(&self, title: String, nodes: &[u32]) -> String {
        let known = nodes.iter().filter_map(|node| self.view.usage.machine.nodes.get(node));
        let memory: Vec<String> = known
            .filter_map(|node| match &node.gpu {
                Some(gpu) => Some(format!("memory of GPU {gpu}")),
                None => node.memory_bytes.map(|memory| format!("memory {}", bytes(memory))),
            })
            .collect();
        [vec![title], memory].concat().join(" · ")
    }

    fn devices_of(&self, node: Option<u32>, indent: usize) -> Vec<PageLine> {
        let devices: &[&DeviceUsage] = self.devices.get(&node).map_or(&[], Vec::as_slice);
        let facts = |device: &DeviceUsage| {
            let state = words::device_state(device);
            (device.backend.clone(), words::amounts(device, state.can_be_had), state.whole, device.is_held())
        };
        let alike = |one: &&DeviceUsage, next: &&DeviceUsage| !one.is_held() && facts(one) == facts(next);
        let mut named: Vec<(String, &DeviceUsage)> = Vec::new();
        for run in devices.chunk_by(alike) {
            match run {
                [first, .., last] if run.len() > MOST_EQUAL => {
                    named.push((format!("{} … {} ({})", first.path(), last.name, run.len()), first));
                }
                _ => named.extend(run.iter().map(|device| (device.path(), *device))),
            }
        }
        let named: Vec<(Cow<'_, str>, &DeviceUsage)> =
            named.iter().map(|(path, device)| (cut_middle(path, LONGEST_PATH), *device)).collect();
        let widest = named.iter().map(|(path, _)| path.chars().count()).max().unwrap_or(0);
        named.into_iter().map(|(path, device)| self.device(&path, device, indent, widest)).collect()
    }

    fn device(&self, path: &str, device: &DeviceUsage, indent: usize, widest: usize) -> PageLine {
        let state = words::device_state(device);
        let letters = words::letters(self.marks.legend, device, MOST_LETTERS);
        let sign = match state.tone {
            Tone::Plain if device.is_held() => letters,
            Tone::Blocked => format!("|{letters}"),
            Tone::Drained => format!("~{letters}"),
            Tone::Unhealthy => format!("!{letters}"),
            Tone::Offline => format!("-{letters}"),
            _ => ".".to_owned(),
        };
        let tone = match state.tone {
            Tone::Plain => self.tone_of(device),
            tone => tone,
        };
        let amounts = words::amounts(device, state.can_be_had);
        let facts = match (amounts.is_empty(), state.is_trouble) {
            (true, _) => state.whole,
            (false, true) => format!("{} · {amounts}", state.whole),
            (false, false) => amounts,
        };
        PageLine::of(vec![
            PageSpan::plain(format!("{:indent$}{:<widest$}  ", "", plain_line(path))),
            PageSpan { text: format!("{sign:<6} "), tone, is_bold: true, is_dim: false },
            PageSpan {
                text: facts,
                tone: if state.is_trouble { state.tone } else { Tone::Plain },
                ..PageSpan::default()
            },
        ])
    }

    /// The colour of the only holder; several have none together.
    fn tone_of(&self, device: &DeviceUsage) -> Tone {
        let groups: Vec<usize> =
            device.holds.iter().filter_map(|hold| self.marks.legend.group_of(hold.holder)).collect();
        match (groups.first(), groups.iter().all(|group| Some(group) == groups.first())) {
            (Some(group), true) => {
                self.marks.legend.groups().get(*group).map_or(Tone::Plain, |entry| Tone::Holder(entry.colour))
            }
            _ => Tone::Plain,
        }
    }
}

#[cfg(test)]
mod tests;
