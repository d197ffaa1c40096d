//! The machine as a tree: package, die, NUMA node, cache, cluster, cores, and each device where it belongs.

mod cores;
mod devices;

use hostler_linux::{
    IdSet,
    topology::{NumaNode, Topology},
};

use super::{scan::ScannedMachine, table::summary, text_tree::TextTree};
use crate::{
    cli::table::TextTable,
    units::{bytes, page},
    usage::{
        holders::numa_node,
        layout::MachineLayout,
        nesting::{MachinePart, parts},
    },
};
use devices::DevicesByNode;

/// Equal neighbours beyond this number are drawn as one line.
const MOST_EQUAL: usize = 4;

/// Smaller caches belong to a core or a cluster of cores, and say nothing new.
const SMALLEST_CACHE: u32 = 3;

/// A table of more columns is of no use, and it has as many cells as that number squared.
const MOST_DISTANCES: usize = 256;

/// The tree, and the distances of the nodes below it.
pub(super) fn tree(machine: &ScannedMachine) -> String {
    let topology = &machine.topology;
    let mut tree = TextTree { text: summary(machine), children: restrictions(topology) };
    let machine = DrawnMachine { topology, devices: DevicesByNode::of(machine, numa_node) };
    tree.children.extend(parts(&MachineLayout::of(topology), SMALLEST_CACHE).iter().map(|part| draw(part, &machine)));
    for (id, node) in topology.nodes.iter().filter(|(_, node)| node.cpus.is_empty()) {
        let text = format!("NUMA node {id} · no CPUs · {}", memory(node));
        tree.children.push(TextTree { text, children: machine.devices.of_node(*id) });
    }
    tree.children.extend(machine.devices.elsewhere());
    format!("{tree}{}", distances(topology))
}

/// The subject of the drawing: the machine, and the places of its devices.
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

fn draw(part: &MachinePart, machine: &DrawnMachine<'_>) -> TextTree {
    let inner: IdSet = part.children.iter().flat_map(|child| child.cpus.iter()).collect();
    let own = cores::summaries(machine.topology, &part.cpus.difference(&inner));
    let mut tree = TextTree::leaf(part.label.clone());
    tree.children = part.nodes.iter().flat_map(|id| node_lines(machine, *id)).collect();
    match &own[..] {
        [only] if part.children.is_empty() => tree.text = format!("{} · {only}", part.label),
        _ => tree.children.extend(own.into_iter().map(TextTree::leaf)),
    }
    tree.children.extend(draw_children(part, machine));
    tree
}

/// The children, with runs of equal ones drawn once.
fn draw_children(part: &MachinePart, machine: &DrawnMachine<'_>) -> Vec<TextTree> {
    let shape = |part: &MachinePart| {
        let plain = part.children.is_empty() && part.nodes.is_empty();
        plain.then(|| (part.label.clone(), cores::shape(machine.topology, &part.cpus)))
    };
    let mut lines = Vec::new();
    for run in part.children.chunk_by(|one, next| shape(one).is_some_and(|one| Some(one) == shape(next))) {
        match shape(&run[0]) {
            Some((label, cores)) if run.len() > MOST_EQUAL => {
                let cpus: IdSet = run.iter().flat_map(|part| part.cpus.iter()).collect();
                lines.push(TextTree::leaf(format!(
                    "{} × {label}, each {cores} · CPUs {}",
                    run.len(),
                    cores::list(&cpus)
                )));
            }
            _ => lines.extend(run.iter().map(|part| draw(part, machine))),
        }
    }
    lines
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
