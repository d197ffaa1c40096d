//! Reads a whole machine, again if it changed meanwhile.

use super::{
    Topology, allowed, caches, core_types, cpus,
    cpus::CpuLists,
    identity::{self, CpuIdentity},
    memory, nodes,
    reader::{CPU, NODE, TreeReader},
};
use crate::{IdSet, ReadFailure, SysRoot, TreeReading, TreeWarning};

/// Most readings: hot-plug settles within so many, or something is flapping; then an old view is better than none.
const ATTEMPTS: usize = 4;

/// CPUs and nodes that were online, as text.
type Moment = [Option<String>; 2];

/// Part of a machine to read. Most of the work is in the folders of single CPUs and memory blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TopologyPart {
    Whole,
    /// Neither memory blocks nor the kind of machine.
    Processors,
    /// Not the folders of CPUs either.
    Nodes,
}

/// Reads the machine until nothing came or went meanwhile.
pub(super) fn stable(root: &SysRoot, part: TopologyPart) -> Result<Topology, ReadFailure> {
    let moment = || -> Result<Moment, ReadFailure> {
        Ok([root.attribute(path!("{CPU}/online"))?, root.attribute(path!("{NODE}/online"))?])
    };
    settle(moment, || {
        let (mut topology, warnings) = root.look_warned(|tree| once(tree, part))?;
        topology.warnings = warnings;
        Ok(topology)
    })
}

/// Reads until the view is stable. Masks are read at different instants: a view counts if the same was online before
/// and after.
fn settle<E>(
    moment: impl Fn() -> Result<Moment, E>,
    mut read: impl FnMut() -> Result<Topology, E>,
) -> Result<Topology, E> {
    let mut before = moment()?;
    let mut topology = read()?;
    for _ in 1..ATTEMPTS {
        let after = moment()?;
        if after == before {
            return Ok(topology);
        }
        (before, topology) = (after, read()?);
    }
    if moment()? != before {
        let reason = "CPUs or NUMA nodes came or went during each reading; parts of this view may be out of date";
        topology.warnings.push(TreeWarning { path: format!("/{CPU}/online"), reason: reason.to_owned() });
    }
    Ok(topology)
}

fn once(tree: &TreeReading<'_>, part: TopologyPart) -> Topology {
    let mut reader = TreeReader::new(tree);
    let CpuLists { possible, present, online, isolated, nohz_full, smt_active } = CpuLists::read(&mut reader);
    let described = if part == TopologyPart::Nodes { IdSet::default() } else { online.clone() };
    let grouping = cpus::CpuGrouping::read(&mut reader, &described);
    let caches = caches::read(&mut reader, &described);
    let nodes = nodes::read(&mut reader, &online);
    let mut cpus = cpus::read(&mut reader, &described, &grouping, &caches, &nodes.of_cpu);
    core_types::assign(&mut reader, &grouping.cores, &mut cpus);
    let online_nodes: IdSet = nodes.nodes.keys().copied().collect();
    let allowed = allowed::read(&mut reader, &online, &online_nodes, &isolated);
    let whole = part == TopologyPart::Whole;
    let identity = if whole { identity::read(&reader) } else { CpuIdentity::default() };
    let with_blocks = whole.then_some(nodes.blocks_by_node);
    let memory_blocks = with_blocks.and_then(|by_node| memory::blocks(&mut reader, by_node));
    Topology {
        arch: identity.arch,
        cpu_model: identity.model,
        possible,
        present,
        online,
        isolated: isolated.union(&allowed.isolated),
        nohz_full,
        smt_active,
        cpus,
        cores: grouping.cores,
        packages: grouping.packages,
        dies: grouping.dies,
        clusters: grouping.clusters,
        books: grouping.books,
        drawers: grouping.drawers,
        caches,
        nodes: nodes.nodes,
        possible_nodes: nodes.possible,
        huge_page_sizes: nodes.huge_page_sizes,
        memory_blocks,
        allowed_cpus: allowed.cpus,
        allowed_nodes: allowed.nodes,
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, convert::Infallible};

    use super::{ATTEMPTS, Moment, settle};
    use crate::topology::Topology;

    /// A machine whose moments are `moments`, the last for ever; gives the warnings and the number of readings.
    fn readings(moments: &[u32]) -> (usize, usize) {
        let next = Cell::new(0);
        let moment = || -> Result<Moment, Infallible> {
            let at = next.replace(next.get() + 1).min(moments.len() - 1);
            Ok([Some(moments[at].to_string()), None])
        };
        let mut reads = 0;
        let topology = settle(moment, || {
            reads += 1;
            Ok(Topology::default())
        });
        let Ok(topology) = topology;
        (topology.warnings.len(), reads)
    }

    #[test]
    fn a_machine_at_rest_is_read_once() {
        assert_eq!(readings(&[1]), (0, 1));
    }

    #[test]
    fn a_cpu_that_comes_during_the_reading_has_it_read_again() {
        assert_eq!(readings(&[1, 2]), (0, 2));
    }

    #[test]
    fn a_machine_that_settles_at_the_last_attempt_needs_no_warning() {
        assert_eq!(readings(&[1, 2, 3, 4, 4]), (0, ATTEMPTS));
    }

    #[test]
    fn a_machine_that_never_settles_gives_a_view_and_a_warning() {
        assert_eq!(readings(&[1, 2, 3, 4, 5, 6, 7, 8]), (1, ATTEMPTS));
    }
}
