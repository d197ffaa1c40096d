//! NUMA nodes: their numbers, CPUs, distances and kind of memory.

use std::collections::BTreeMap;

use super::{
    NumaNode, memory, node_memory,
    reader::{CPU, NODE, TreeReader, numbers},
};
use crate::IdSet;

/// The online nodes, and other facts from their folders.
#[derive(Default)]
pub(super) struct OnlineNodes {
    pub(super) nodes: BTreeMap<u32, NumaNode>,
    pub(super) possible: IdSet,
    /// The node of each online CPU.
    pub(super) of_cpu: BTreeMap<u32, u32>,
    pub(super) blocks_by_node: BTreeMap<u32, usize>,
    /// Bytes, ascending.
    pub(super) huge_page_sizes: Vec<u64>,
}

/// Reads all online nodes.
pub(super) fn read(reader: &mut TreeReader<'_>, online_cpus: &IdSet) -> OnlineNodes {
    let folders: IdSet = reader.numbered(NODE, "node").into_iter().collect();
    let online = reader.list(&path!("{NODE}/online")).unwrap_or_else(|| folders.clone());
    let mut nodes = if online.is_empty() {
        single_node(reader, online_cpus)
    } else {
        online_nodes(reader, &online, &folders, online_cpus)
    };
    let pools = nodes.nodes.values().flat_map(|node| node.huge_pages.keys());
    let mut sizes: Vec<u64> = pools.copied().chain(memory::huge_page_sizes(reader)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    nodes.huge_page_sizes = sizes;
    nodes
}

/// Makes the one node of a machine whose kernel has no NUMA, and no node folder. A tree without CPUs and memory has
/// none.
fn single_node(reader: &mut TreeReader<'_>, cpus: &IdSet) -> OnlineNodes {
    let meminfo = reader.tree().text(MEMINFO);
    if cpus.is_empty() && meminfo.is_none() {
        return OnlineNodes::default();
    }
    let bytes = memory::meminfo(reader, MEMINFO, &meminfo.unwrap_or_default());
    let node = NumaNode {
        cpus: cpus.clone(),
        memory_bytes: bytes.total,
        free_bytes: bytes.free,
        distances: BTreeMap::from([(0, LOCAL_DISTANCE)]),
        huge_pages: memory::huge_pages(reader, memory::HUGE_PAGES),
        ..NumaNode::default()
    };
    OnlineNodes {
        nodes: BTreeMap::from([(0, node)]),
        possible: IdSet::from_iter([0]),
        of_cpu: cpus.iter().map(|cpu| (cpu, 0)).collect(),
        ..OnlineNodes::default()
    }
}

/// The machine's memory.
const MEMINFO: &str = "proc/meminfo";

/// Distance of a node to itself, by ACPI and the kernel.
const LOCAL_DISTANCE: u32 = 10;

fn online_nodes(reader: &mut TreeReader<'_>, online: &IdSet, folders: &IdSet, online_cpus: &IdSet) -> OnlineNodes {
    let possible = reader.list(&path!("{NODE}/possible")).unwrap_or_else(|| folders.union(online));
    let mut nodes = OnlineNodes { possible, ..OnlineNodes::default() };
    let mut placed = IdSet::new();
    for id in online.iter() {
        let folder = path!("{NODE}/node{id}");
        let names = reader.names(&folder);
        if names.is_empty() {
            reader.warn(&folder, "is online and has no attributes; taken as a node without CPUs of unknown memory");
        }
        let cpus = node_cpus(reader, &folder, online_cpus, &placed);
        placed.extend(cpus.iter());
        nodes.of_cpu.extend(cpus.iter().map(|cpu| (cpu, id)));
        let blocks = numbers(&names, "memory").len();
        if blocks > 0 {
            nodes.blocks_by_node.insert(id, blocks);
        }
        let mut node = read_node(reader, &folder, &names);
        node.distances = distances(reader, &folder, id, online, &nodes.possible);
        nodes.nodes.insert(id, NumaNode { cpus, ..node });
    }
    place_strays(reader, online_cpus, &mut nodes);
    if nodes.possible.len() == 1 {
        nodes.nodes.values_mut().for_each(|node| whole_memory(reader, node));
    }
    node_memory::tiers(reader, &mut nodes.nodes);
    node_memory::gpus(reader, &mut nodes.nodes);
    let generic = reader.list(&path!("{NODE}/has_generic_initiator")).unwrap_or_default();
    nodes.nodes.iter_mut().for_each(|(id, node)| node.generic_initiator = generic.contains(*id));
    nodes
}

/// Takes the machine's memory for that of the only node there can be. Kernels that initialise memory as it is first
/// needed count it in the node from then on, but in the machine from the start. Others count a few pages more in the
/// machine, which is no reason to look away from the node; and a container's `/proc` may show less.
fn whole_memory(reader: &mut TreeReader<'_>, node: &mut NumaNode) {
    let Some(meminfo) = reader.tree().text(MEMINFO) else { return };
    let whole = memory::meminfo(reader, MEMINFO, &meminfo);
    if node.memory_bytes.is_some_and(|bytes| whole.total > Some(bytes.saturating_add(bytes / 128))) {
        (node.memory_bytes, node.free_bytes) = (whole.total, whole.free);
    }
}

fn read_node(reader: &mut TreeReader<'_>, folder: &str, names: &[String]) -> NumaNode {
    let has = |name: &str| names.iter().any(|entry| entry == name);
    let meminfo = path!("{folder}/meminfo");
    let text = reader.text(&meminfo).unwrap_or_default();
    let bytes = memory::meminfo(reader, &meminfo, &text);
    NumaNode {
        memory_bytes: bytes.total,
        free_bytes: bytes.free,
        huge_pages: if has("hugepages") {
            memory::huge_pages(reader, &path!("{folder}/hugepages"))
        } else {
            BTreeMap::new()
        },
        access: node_memory::access(reader, folder, names),
        memory_side_caches: if has("memory_side_cache") {
            node_memory::side_caches(reader, folder)
        } else {
            Vec::new()
        },
        ..NumaNode::default()
    }
}

/// The online CPUs of a node that no other node has: many kernels list the offline ones too.
fn node_cpus(reader: &mut TreeReader<'_>, folder: &str, online: &IdSet, placed: &IdSet) -> IdSet {
    let set = ["cpulist", "cpumap"].iter().find_map(|name| reader.set(&path!("{folder}/{name}")));
    let cpus = set.unwrap_or_default().intersection(online);
    let taken = cpus.intersection(placed);
    if !taken.is_empty() {
        reader.warn(
            &path!("{folder}/cpulist"),
            format!("names CPUs {taken}, which are in another node; they stay there"),
        );
    }
    cpus.difference(&taken)
}

/// Reads a row of one number per *online* node in ascending order, whatever the ids are. A node that just went offline
/// may leave its column behind: a row for all possible nodes is believed if it has 10 where the node itself is.
fn distances(
    reader: &mut TreeReader<'_>,
    folder: &str,
    id: u32,
    online: &IdSet,
    possible: &IdSet,
) -> BTreeMap<u32, u32> {
    let path = path!("{folder}/distance");
    let Some(text) = reader.text(&path) else { return BTreeMap::new() };
    let row: Option<Vec<u32>> = text.split_whitespace().map(|number| number.parse().ok()).collect();
    let row = row.unwrap_or_default();
    if row.len() == online.len() {
        return online.iter().zip(row).collect();
    }
    let mut distances = BTreeMap::new();
    if row.len() == possible.len() {
        distances.extend(possible.iter().zip(row).filter(|(other, _)| online.contains(*other)));
    }
    let (outcome, distances) = match distances.get(&id) {
        Some(&LOCAL_DISTANCE) => ("read as one for each possible node", distances),
        _ => ("distances are unknown", BTreeMap::new()),
    };
    reader.warn(&path, format!("{text:?} is not one number for each of the online nodes {online}; {outcome}"));
    distances
}

/// Places online CPUs that no online node lists: their own folder may link to an offline node.
fn place_strays(reader: &mut TreeReader<'_>, online_cpus: &IdSet, nodes: &mut OnlineNodes) {
    let mut strays: BTreeMap<Option<u32>, IdSet> = BTreeMap::new();
    for cpu in online_cpus.iter().filter(|cpu| !nodes.of_cpu.contains_key(cpu)) {
        let linked = reader.numbered(&path!("{CPU}/cpu{cpu}"), "node").first().copied();
        strays.entry(linked).or_default().insert(cpu);
    }
    for (linked, cpus) in strays {
        let id = linked.or_else(|| nodes.nodes.keys().next().copied()).unwrap_or_default();
        let reason = match (linked, nodes.nodes.get_mut(&id)) {
            (Some(_), Some(node)) => {
                node.cpus.extend(cpus.iter());
                format!("does not list CPUs {cpus}, whose folders say they are in it; added")
            }
            (Some(_), None) => format!("is not online, and has CPUs {cpus}, which are"),
            (None, Some(node)) => {
                node.cpus.extend(cpus.iter());
                format!("takes in CPUs {cpus}, which are online and in no node")
            }
            (None, None) => format!("is not there, and CPUs {cpus} are in no other"),
        };
        nodes.of_cpu.extend(cpus.iter().map(|cpu| (cpu, id)));
        reader.warn(&path!("{NODE}/node{id}"), reason);
    }
}
