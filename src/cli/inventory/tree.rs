//! The machine as a tree: package, die, NUMA node, cache, cluster, cores, and each device where it belongs.
//!
//! The levels nest differently from machine to machine (a NUMA node may hold packages or be a part of one), so nothing
//! is assumed: whatever has the CPUs of another within its own stands above it.

mod cores;
mod devices;
mod nesting;

use hostler_linux::{
    IdSet,
    topology::{NumaNode, Topology},
};

use super::{
    scan::ScannedMachine,
    table::{numa_node, summary},
    text_tree::TextTree,
};
use crate::{
    cli::table::TextTable,
    units::{bytes, page},
};
use devices::DevicesByNode;
use nesting::nest;

/// Equal neighbours beyond this number are drawn as one line.
const MOST_EQUAL: usize = 4;

/// Nobody reads a table of more columns, and it has as many cells as that number squared.
const MOST_DISTANCES: usize = 256;

/// The tree, and the distances of the nodes below it.
pub(super) fn tree(machine: &ScannedMachine) -> String {
    let topology = &machine.topology;
    let mut tree = TextTree { text: summary(machine), children: restrictions(topology) };
    let machine = DrawnMachine { topology, devices: DevicesByNode::of(machine, numa_node) };
    tree.children.extend(nest(objects(topology)).iter().map(|object| object.draw(&machine)));
    for (id, node) in topology.nodes.iter().filter(|(_, node)| node.cpus.is_empty()) {
        let text = format!("NUMA node {id} · no CPUs · {}", memory(node));
        tree.children.push(TextTree { text, children: machine.devices.of_node(*id) });
    }
    tree.children.extend(machine.devices.elsewhere());
    format!("{tree}{}", distances(topology))
}

/// What is drawn: the machine, and where its devices are.
struct DrawnMachine<'a> {
    topology: &'a Topology,
    devices: DevicesByNode<'a>,
}

/// CPUs that are there and are not like the others.
fn restrictions(topology: &Topology) -> Vec<TextTree> {
    let offline = topology.present.difference(&topology.online);
    let foreign = topology.online.difference(&topology.allowed_cpus);
    let sets = [
        ("offline CPUs", &offline),
        ("isolated CPUs", &topology.isolated),
        ("CPUs without tick", &topology.nohz_full),
        ("CPUs that the host's cpuset withholds", &foreign),
    ];
    let shown = sets.into_iter().filter(|(_, cpus)| !cpus.is_empty());
    shown.map(|(what, cpus)| TextTree::leaf(format!("{what}: {}", cores::list(cpus)))).collect()
}

/// A part of the machine that has CPUs.
#[derive(Debug)]
struct TopologyObject {
    label: String,
    cpus: IdSet,
    /// The NUMA nodes that are drawn here, with their memory and devices.
    nodes: Vec<u32>,
    children: Vec<TopologyObject>,
}

/// Every part, the outermost first where several have the same CPUs.
fn objects(topology: &Topology) -> Vec<TopologyObject> {
    let object = |label: String, cpus: &IdSet| TopologyObject {
        label,
        cpus: cpus.clone(),
        nodes: Vec::new(),
        children: Vec::new(),
    };
    let group = |kind: &str, index: usize, id: Option<u32>| match id {
        Some(id) => format!("{kind} {id}"),
        None => format!("{kind} #{index}"),
    };
    let mut objects = Vec::new();
    for (kind, groups) in [("drawer", &topology.drawers), ("book", &topology.books), ("package", &topology.packages)] {
        let parts = groups.iter().enumerate();
        objects.extend(parts.map(|(index, part)| object(group(kind, index, part.id), &part.cpus)));
    }
    for (id, node) in &topology.nodes {
        objects.push(TopologyObject { nodes: vec![*id], ..object(format!("NUMA node {id}"), &node.cpus) });
    }
    objects.extend(topology.dies.iter().map(|die| object("die".to_owned(), &die.cpus)));
    for cache in topology.caches.iter().filter(|cache| cache.level >= 3 && cache.cache_type != "Instruction") {
        let size = cache.size_bytes.map(bytes).unwrap_or_default();
        objects.push(object(format!("L{} {size}", cache.level).trim_end().to_owned(), &cache.cpus));
    }
    objects.extend(topology.clusters.iter().map(|cluster| object("cluster".to_owned(), &cluster.cpus)));
    objects.retain(|object| !object.cpus.is_empty());
    objects
}

impl TopologyObject {
    fn draw(&self, machine: &DrawnMachine<'_>) -> TextTree {
        let inner: IdSet = self.children.iter().flat_map(|child| child.cpus.iter()).collect();
        let own = cores::summaries(machine.topology, &self.cpus.difference(&inner));
        let mut tree = TextTree::leaf(self.label.clone());
        tree.children = self.nodes.iter().flat_map(|id| node_lines(machine, *id)).collect();
        match &own[..] {
            [only] if self.children.is_empty() => tree.text = format!("{} · {only}", self.label),
            _ => tree.children.extend(own.into_iter().map(TextTree::leaf)),
        }
        tree.children.extend(self.draw_children(machine));
        tree
    }

    /// The children, with runs of equal ones drawn once.
    fn draw_children(&self, machine: &DrawnMachine<'_>) -> Vec<TextTree> {
        let shape = |object: &TopologyObject| {
            let plain = object.children.is_empty() && object.nodes.is_empty();
            plain.then(|| (object.label.clone(), cores::shape(machine.topology, &object.cpus)))
        };
        let mut lines = Vec::new();
        for run in self.children.chunk_by(|one, next| shape(one).is_some_and(|one| Some(one) == shape(next))) {
            match shape(&run[0]) {
                Some((label, cores)) if run.len() > MOST_EQUAL => {
                    let cpus: IdSet = run.iter().flat_map(|object| object.cpus.iter()).collect();
                    lines.push(TextTree::leaf(format!(
                        "{} × {label}, each {cores} · CPUs {}",
                        run.len(),
                        cores::list(&cpus)
                    )));
                }
                _ => lines.extend(run.iter().map(|object| object.draw(machine))),
            }
        }
        lines
    }
}

/// A node's memory in one line, and its devices.
fn node_lines(machine: &DrawnMachine<'_>, id: u32) -> Vec<TextTree> {
    let memory = machine.topology.nodes.get(&id).map(|node| TextTree::leaf(memory(node)));
    memory.into_iter().chain(machine.devices.of_node(id)).collect()
}

fn memory(node: &NumaNode) -> String {
    let mut facts = vec![match (node.memory_bytes, node.free_bytes) {
        (None, _) => "memory of unknown size".to_owned(),
        (Some(0), _) => "no memory".to_owned(),
        (Some(total), None) => format!("memory {}", bytes(total)),
        (Some(total), Some(free)) => format!("memory {} ({} free)", bytes(total), bytes(free)),
    }];
    for (size, pages) in node.huge_pages.iter().filter(|(_, pages)| pages.total > 0) {
        facts.push(format!("hugepages-{} {} ({} free)", page(*size), pages.total, pages.free));
    }
    facts.extend(node.memory_side_caches.iter().map(|cache| format!("memory-side cache {}", bytes(cache.size_bytes))));
    facts.extend(node.tier.map(|tier| format!("tier {tier}")));
    facts.extend(node.access.as_ref().and_then(|access| access.read_bandwidth).map(|mib| format!("reads {mib} MiB/s")));
    facts.extend(node.gpu.as_ref().map(|gpu| format!("memory of GPU {gpu}")));
    facts.join(" · ")
}

fn distances(topology: &Topology) -> String {
    if topology.nodes.len() < 2 || topology.nodes.values().all(|node| node.distances.is_empty()) {
        return String::new();
    }
    if topology.nodes.len() > MOST_DISTANCES {
        return format!("\ndistances of {} NUMA nodes: see -o json\n", topology.nodes.len());
    }
    let headings: Vec<String> =
        std::iter::once("distance".to_owned()).chain(topology.nodes.keys().map(ToString::to_string)).collect();
    let mut table = TextTable::new(&headings);
    for (id, node) in &topology.nodes {
        let distance = |to: &u32| node.distances.get(to).map_or_else(|| "-".to_owned(), ToString::to_string);
        table.row(std::iter::once(id.to_string()).chain(topology.nodes.keys().map(distance)));
    }
    format!("\n{table}")
}

#[cfg(test)]
mod tests;
