//! Cores in words: `8 cores × 2 threads`.

use std::collections::{BTreeMap, BTreeSet};

use hostler_linux::{
    IdSet,
    topology::{CoreType, Topology},
};

use crate::units::count;

/// One line for each kind of core among `cpus`: how many, of how many threads, and which CPUs.
pub(super) fn summaries(topology: &Topology, cpus: &IdSet) -> Vec<String> {
    let line = |(kind, cores): (CoreKind, BTreeSet<usize>)| {
        format!("{} · CPUs {}", words(kind, cores.len()), list(&of_cores(topology, &cores, cpus)))
    };
    kinds(topology, cpus).into_iter().map(line).collect()
}

/// A list that stays readable where CPU numbers alternate between packages: long ones are cut in the middle.
pub(super) fn list(cpus: &IdSet) -> String {
    const SHOWN_RANGES: usize = 12;
    let text = cpus.to_string();
    let ranges: Vec<&str> = text.split(',').collect();
    match ranges[..] {
        [one, two, three, .., last] if ranges.len() > SHOWN_RANGES => {
            format!("{one},{two},{three},…,{last} ({} in all)", cpus.len())
        }
        _ => text,
    }
}

/// The kinds of core among `cpus` in words, without the CPUs.
pub(super) fn shape(topology: &Topology, cpus: &IdSet) -> String {
    let kinds = kinds(topology, cpus);
    kinds.into_iter().map(|(kind, cores)| words(kind, cores.len())).collect::<Vec<_>>().join(" and ")
}

/// What makes cores alike: their type, and how many threads of each are online here.
type CoreKind = (CoreType, usize);

fn kinds(topology: &Topology, cpus: &IdSet) -> BTreeMap<CoreKind, BTreeSet<usize>> {
    let mut threads: BTreeMap<usize, (CoreType, usize)> = BTreeMap::new();
    for cpu in cpus.iter().filter_map(|cpu| topology.cpus.get(&cpu)) {
        threads.entry(cpu.core).or_insert((cpu.core_type, 0)).1 += 1;
    }
    let mut kinds: BTreeMap<CoreKind, BTreeSet<usize>> = BTreeMap::new();
    for (core, kind) in threads {
        kinds.entry(kind).or_default().insert(core);
    }
    kinds
}

fn words((core_type, threads): CoreKind, cores: usize) -> String {
    let noun = match core_type {
        CoreType::Uniform => "core",
        CoreType::Performance => "performance core",
        CoreType::Balanced => "balanced core",
        CoreType::Efficiency => "efficiency core",
    };
    let cores = count(cores, noun);
    if threads == 1 { cores } else { format!("{cores} × {threads} threads") }
}

fn of_cores(topology: &Topology, cores: &BTreeSet<usize>, within: &IdSet) -> IdSet {
    let of_core = |cpu: &u32| topology.cpus.get(cpu).is_some_and(|cpu| cores.contains(&cpu.core));
    within.iter().filter(of_core).collect()
}
