//! Cores in words: `8 cores × 2 threads`.

use std::collections::BTreeMap;

use hostler_linux::{
    IdSet,
    topology::{CoreType, Topology},
};

use crate::units::count;

/// One line for each kind of core among `cpus`: how many, of how many threads, and which CPUs.
pub(super) fn summaries(topology: &Topology, cpus: &IdSet) -> Vec<String> {
    let line = |(kind, cores): (CoreClass, CoresOfKind)| {
        format!("{} · CPUs {}", words(kind, cores.count), list(&cores.cpus.into_iter().collect()))
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
    kinds.into_iter().map(|(kind, cores)| words(kind, cores.count)).collect::<Vec<_>>().join(" and ")
}

/// A kind of cores: their type, and how many threads of each are online here.
type CoreClass = (CoreType, usize);

#[derive(Default)]
struct CoresOfKind {
    count: usize,
    cpus: Vec<u32>,
}

fn kinds(topology: &Topology, cpus: &IdSet) -> BTreeMap<CoreClass, CoresOfKind> {
    let mut threads: BTreeMap<usize, (CoreType, Vec<u32>)> = BTreeMap::new();
    for (number, cpu) in cpus.iter().filter_map(|number| Some((number, topology.cpus.get(&number)?))) {
        threads.entry(cpu.core).or_insert((cpu.core_type, Vec::new())).1.push(number);
    }
    let mut kinds: BTreeMap<CoreClass, CoresOfKind> = BTreeMap::new();
    for (core_type, threads) in threads.into_values() {
        let kind = kinds.entry((core_type, threads.len())).or_default();
        kind.count += 1;
        kind.cpus.extend(threads);
    }
    kinds
}

fn words((core_type, threads): CoreClass, cores: usize) -> String {
    let noun = match core_type {
        CoreType::Uniform => "core",
        CoreType::Performance => "performance core",
        CoreType::Balanced => "balanced core",
        CoreType::Efficiency => "efficiency core",
    };
    let cores = count(cores, noun);
    if threads == 1 { cores } else { format!("{cores} × {threads} threads") }
}
