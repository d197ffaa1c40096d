//! The boxes of a machine: packages with their NUMA nodes, caches, cores and devices, distances, and what the
//! letters mean.

use std::collections::BTreeMap;

use hostler_api::{Quantity, cut_middle};
use hostler_linux::IdSet;

use super::{
    boxes::{BoxKind, PictureBox, PictureCell, TextLine},
    legend::{HolderGrouping, Legend, Tone},
    words,
};
use crate::{
    units::bytes,
    usage::{
        holders::{CpuState, DeviceUsage, MachineUsage},
        nesting::{MachinePart, parts},
    },
};

/// Caches that only threads of one core share say nothing new.
const SMALLEST_CACHE: u32 = 2;
/// A table of more columns is of no use.
const MOST_DISTANCES: usize = 32;
/// Letters of holders beside a device; more are counted.
const MOST_LETTERS: usize = 8;

/// The length at which the list of uncertain facts is cut: it would make a small machine's picture wide.
const LONGEST_DOUBT: usize = 100;

/// The whole picture.
pub(super) fn machine(usage: &MachineUsage) -> PictureBox {
    let scene = Scene::of(usage);
    let mut outer: Vec<PictureBox> =
        parts(&usage.machine, SMALLEST_CACHE).iter().map(|part| scene.outer(part)).collect();
    outer.extend(scene.nodes_without_cpus());
    outer.extend(scene.elsewhere());
    let mut lines: Vec<TextLine> = words::summary(usage).into_iter().map(TextLine::heading).collect();
    let doubts = usage.doubts.iter().map(|doubt| words::cut(&format!("! {doubt}"), LONGEST_DOUBT));
    lines.extend(doubts.map(TextLine::plain));
    let machine = PictureBox { lines, ..PictureBox::default() };
    let machine = machine.around(outer);
    let below: Vec<PictureBox> = scene.distances().into_iter().chain([scene.legend()]).collect();
    let below = PictureBox::default().around(below);
    stacked(machine, below)
}

/// The box that explains letters.
#[cfg(test)]
pub(super) fn legend_of(usage: &MachineUsage) -> PictureBox {
    Scene::of(usage).legend()
}

/// One box under the other, whatever shape that has.
fn stacked(above: PictureBox, below: PictureBox) -> PictureBox {
    use super::boxes::GAP;
    let (width, height) = (above.width.max(below.width), above.height + 2 * GAP + below.height);
    let y = above.height + 2 * GAP;
    PictureBox { width, height, children: vec![(0, 0, above), (0, y, below)], ..PictureBox::default() }
}

/// Values that are looked up again and again.
struct Scene<'a> {
    usage: &'a MachineUsage,
    legend: Legend,
    states: BTreeMap<u32, CpuState>,
    /// Devices by NUMA node; those without one that is there are under `None`.
    devices: BTreeMap<Option<u32>, Vec<&'a DeviceUsage>>,
}

impl<'a> Scene<'a> {
    fn of(usage: &'a MachineUsage) -> Self {
        let devices = words::devices_by_node(usage);
        Self { usage, legend: Legend::of(usage, HolderGrouping::Claim), states: usage.cpu_states(), devices }
    }

    fn outer(&self, part: &MachinePart) -> PictureBox {
        PictureBox { kind: BoxKind::Outer, ..self.part(part) }
    }

    fn part(&self, part: &MachinePart) -> PictureBox {
        let inner: IdSet = part.children.iter().flat_map(|child| child.cpus.iter()).collect();
        let mut lines = vec![TextLine::heading(&*part.label)];
        lines.extend(part.nodes.iter().filter_map(|node| self.memory(*node)).map(TextLine::plain));
        let devices: Vec<PictureBox> = part.nodes.iter().flat_map(|node| self.devices_of(Some(*node))).collect();
        let mut contents = Vec::new();
        if !devices.is_empty() {
            contents.push(PictureBox::default().around(devices));
        }
        let children: Vec<PictureBox> = part.children.iter().map(|child| self.part(child)).collect();
        let own = self.cores(&part.cpus.difference(&inner));
        let within: Vec<PictureBox> = children.into_iter().chain(own).collect();
        if !within.is_empty() {
            contents.push(PictureBox::default().around(within));
        }
        PictureBox {
            kind: BoxKind::Part,
            lines,
            hint: format!("{}: CPUs {}", part.label, part.cpus),
            ..PictureBox::default()
        }
        .around(contents)
    }

    fn memory(&self, node: u32) -> Option<String> {
        let node = self.usage.machine.nodes.get(&node)?;
        match (&node.gpu, node.memory_bytes) {
            (Some(gpu), _) => Some(format!("memory of GPU {gpu}")),
            (None, memory) => memory.map(|memory| format!("memory {}", bytes(memory))),
        }
    }

    fn cores(&self, cpus: &IdSet) -> Vec<PictureBox> {
        let cores = self.usage.machine.cores.iter().filter(|core| !core.cpus.is_disjoint(cpus));
        cores
            .map(|core| {
                let cells = core.cpus.iter().map(|cpu| self.cpu(cpu)).collect();
                PictureBox { kind: BoxKind::Core, cells, ..PictureBox::default() }.around(Vec::new())
            })
            .collect()
    }

    fn cpu(&self, cpu: u32) -> PictureCell {
        let state = self.states.get(&cpu).copied().unwrap_or(CpuState::Reserved);
        let mark = self.legend.cpu(state);
        PictureCell {
            number: cpu.to_string(),
            sign: mark.sign,
            tone: mark.tone,
            hint: format!("CPU {cpu}: {}", words::cpu_state(self.usage, state)),
        }
    }

    fn nodes_without_cpus(&self) -> Vec<PictureBox> {
        let nodes = self.usage.machine.nodes.iter().filter(|(_, node)| node.cpus.is_empty());
        nodes
            .map(|(id, _)| {
                let mut lines = vec![TextLine::heading(format!("NUMA node {id} · no CPUs"))];
                lines.extend(self.memory(*id).map(TextLine::plain));
                PictureBox { kind: BoxKind::Outer, lines, ..PictureBox::default() }.around(self.devices_of(Some(*id)))
            })
            .collect()
    }

    /// Devices that are on no node, and CPUs that do not run.
    fn elsewhere(&self) -> Vec<PictureBox> {
        let mut boxes = Vec::new();
        let devices = self.devices_of(None);
        if !devices.is_empty() {
            let lines = vec![TextLine::heading("on no NUMA node")];
            boxes.push(PictureBox { kind: BoxKind::Outer, lines, ..PictureBox::default() }.around(devices));
        }
        if !self.usage.machine.offline.is_empty() {
            let lines = vec![TextLine::heading("CPUs that do not run")];
            let cpu =
                |cpu: u32| PictureBox { kind: BoxKind::Core, cells: vec![self.cpu(cpu)], ..PictureBox::default() };
            let cpus = self.usage.machine.offline.iter().map(|number| cpu(number).around(Vec::new())).collect();
            boxes.push(PictureBox { kind: BoxKind::Outer, lines, ..PictureBox::default() }.around(cpus));
        }
        boxes
    }

    fn devices_of(&self, node: Option<u32>) -> Vec<PictureBox> {
        self.devices.get(&node).into_iter().flatten().map(|device| self.device(device)).collect()
    }

    fn device(&self, device: &DeviceUsage) -> PictureBox {
        let state = words::device_state(device);
        let letters = words::letters(&self.legend, device, MOST_LETTERS);
        let amounts = words::amounts(device, state.can_be_had);
        let facts: Vec<String> = [letters, amounts].into_iter().filter(|fact| !fact.is_empty()).collect();
        let mut lines = vec![TextLine::heading(cut_middle(&device.path(), LONGEST_NAME))];
        // A short reason stands beside its word, a long one below it.
        let is_short = state.whole.chars().count() <= REASON;
        let word = if is_short { &state.whole } else { &state.short };
        let second = if facts.is_empty() || state.is_trouble { [vec![word.clone()], facts].concat() } else { facts };
        lines.push(TextLine::plain(second.join(" · ")));
        if !is_short {
            let reason = state.whole.strip_prefix(&*state.short).unwrap_or_default().trim_start_matches(": ");
            lines.extend(wrapped(reason).into_iter().map(TextLine::plain));
        }
        let holders: Vec<String> = device.holder_names(&self.usage.holders).into_iter().collect();
        let held = if holders.is_empty() { String::new() } else { format!("; held by {}", holders.join(", ")) };
        let hint = format!("{}: {}{held}", device.path(), state.whole);
        let bar = Some(self.bar(device));
        PictureBox { kind: BoxKind::Device(state.tone), lines, hint, bar, ..PictureBox::default() }.around(Vec::new())
    }

    /// Returns the share of each holder: of the first capacity, or of the device as one.
    fn bar(&self, device: &DeviceUsage) -> Vec<(u32, Tone)> {
        let tone = |holder: usize| self.legend.entry(holder).map_or(Tone::Plain, |entry| Tone::Holder(entry.colour));
        let using = device.holds.iter().filter(|hold| !hold.is_admin);
        match device.amounts.iter().next() {
            Some((name, whole)) => using
                .map(|hold| {
                    (share(hold.amounts.get(name).copied().unwrap_or_default(), whole.capacity), tone(hold.holder))
                })
                .collect(),
            None => using.take(1).map(|hold| (1000, tone(hold.holder))).collect(),
        }
    }

    fn distances(&self) -> Option<PictureBox> {
        let nodes = &self.usage.machine.nodes;
        let is_known = nodes.len() > 1 && nodes.values().any(|node| !node.distances.is_empty());
        is_known.then(|| {
            let mut lines = vec![TextLine::heading("distances of NUMA nodes")];
            if nodes.len() > MOST_DISTANCES {
                lines.push(TextLine::plain(format!("{} nodes: see hostler inventory -o json", nodes.len())));
            } else {
                lines.extend(words::distances(&self.usage.machine).into_iter().map(TextLine::plain));
            }
            PictureBox { kind: BoxKind::Outer, lines, ..PictureBox::default() }.around(Vec::new())
        })
    }

    fn legend(&self) -> PictureBox {
        let line = |sign: char, tone: Tone, text: String| {
            let mark = PictureCell { number: String::new(), sign, tone, hint: String::new() };
            TextLine { mark: Some(mark), text, is_heading: false }
        };
        let groups = self.legend.groups().iter().enumerate();
        let groups = groups.map(|(place, group)| {
            let has = words::holdings(self.usage, &self.legend, place);
            line(group.letter, Tone::Holder(group.colour), format!("{}  {has}", cut_middle(&group.name, LONGEST_NAME)))
        });
        let signs: Vec<TextLine> =
            words::signs(self.usage).map(|(sign, tone, text)| line(sign, tone, text.to_owned())).collect();
        let holders: Vec<TextLine> = groups.collect();
        let rows = holders.len().div_ceil(MOST_COLUMNS).max(ROWS);
        let column =
            |lines: &[TextLine]| PictureBox { lines: lines.to_vec(), ..PictureBox::default() }.around(Vec::new());
        let mut parts = vec![column(&signs)];
        if !holders.is_empty() {
            parts.push(beside(holders.chunks(rows).map(column).collect()));
        }
        let heading = vec![TextLine::heading("what the letters mean")];
        PictureBox { kind: BoxKind::Outer, lines: heading, ..PictureBox::default() }.around(parts)
    }
}

/// Holders in one column of the legend, until there are as many columns as have room; then each has more.
const ROWS: usize = 16;
const MOST_COLUMNS: usize = 4;

/// The longest name of a holder or a device.
const LONGEST_NAME: usize = 48;

/// Columns of a reason below a device, and the most lines of it; all of it is in the hint.
const REASON: usize = 40;
const MOST_REASON_LINES: usize = 4;

/// Boxes in one row, from the top.
fn beside(boxes: Vec<PictureBox>) -> PictureBox {
    use super::boxes::GAP;
    let mut row = PictureBox::default();
    for it in boxes {
        let x = if row.children.is_empty() { 0 } else { row.width + GAP };
        (row.width, row.height) = (x + it.width, row.height.max(it.height));
        row.children.push((x, 0, it));
    }
    row
}

/// A reason in lines of whole words, as far as they fit.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= REASON => line.extend([" ", word]),
            _ => lines.push(words::cut(word, REASON)),
        }
    }
    if lines.len() > MOST_REASON_LINES {
        lines.truncate(MOST_REASON_LINES);
        if let Some(last) = lines.last_mut() {
            *last = words::cut(&format!("{last} …"), REASON);
        }
    }
    lines
}

/// A part of a whole in thousandths; what is there at all is seen.
fn share(part: Quantity, whole: Quantity) -> u32 {
    let [part, whole] = [part, whole].map(|amount| amount.as_whole().unwrap_or_default());
    if whole == 0 || part == 0 {
        return 0;
    }
    u32::try_from(u128::from(part) * 1000 / u128::from(whole)).unwrap_or(1000).clamp(10, 1000)
}
