//! Choosing CPUs that lie apart: each on a core of its own, or evenly over caches or NUMA nodes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use hostler_api::opaque::CpuSpread;

use super::{CorePlace, FreeCore, LEVELS, count, places, take};

/// The place over which to spread evenly. Cores without a known cache count as behind one cache.
pub(crate) fn domain(place: &CorePlace, spread: CpuSpread) -> u32 {
    if spread == CpuSpread::Numa { place[1] } else { place[2] }
}

/// Picks one CPU of each core, as near to each other as there are enough cores; then, once all cores have been used, a
/// second one of each. Unused cores come first. `cores` have at least `wanted` CPUs.
pub(super) fn over_cores(cores: &[&FreeCore], wanted: usize) -> BTreeSet<u32> {
    let mut cores = near_enough(cores, wanted);
    // Stable: of cores that are equal, the lowest comes first.
    cores.sort_by_key(|core| (!core.whole, Reverse(core.free.len())));
    let most = cores.iter().map(|core| core.free.len()).max().unwrap_or(0);
    let rounds = (0..most).flat_map(|round| cores.iter().filter_map(move |core| core.free.get(round)));
    rounds.take(wanted).copied().collect()
}

/// The cores of the smallest place that has `wanted` of them; all where none has.
fn near_enough<'a>(cores: &[&'a FreeCore], wanted: usize) -> Vec<&'a FreeCore> {
    let fitting = LEVELS.iter().find_map(|level| {
        let fitting = places(cores, *level).into_values().filter(|cores| cores.len() >= wanted);
        let unused = |cores: &[&FreeCore]| cores.iter().filter(|core| core.whole).count().min(wanted);
        fitting.min_by_key(|cores| (wanted - unused(cores), cores.len()))
    });
    fitting.unwrap_or_else(|| cores.to_vec())
}

/// Picks `wanted` CPUs in units of `unit`, as evenly over all caches or nodes as the free CPUs allow; `None` if all
/// would lie in one although there are several units.
pub(super) fn over_domains(
    cores: &[&FreeCore],
    spread: CpuSpread,
    wanted: usize,
    unit: usize,
) -> Option<BTreeSet<u32>> {
    let mut domains: BTreeMap<u32, Vec<&FreeCore>> = BTreeMap::new();
    for core in cores {
        domains.entry(domain(&core.place, spread)).or_default().push(core);
    }
    let mut shares: BTreeMap<u32, usize> = BTreeMap::new();
    for _ in 0..wanted / unit {
        let share = |domain: &u32| shares.get(domain).copied().unwrap_or(0);
        let open = domains.iter().filter(|(domain, cores)| share(domain) + unit <= count(cores));
        let next = open.min_by_key(|(domain, cores)| (share(domain), Reverse(count(cores)), **domain));
        *shares.entry(*next?.0).or_default() += unit;
    }
    if shares.len() < 2 && wanted > unit {
        return None;
    }
    let mut picked = BTreeSet::new();
    for (domain, share) in shares {
        take(domains.get(&domain)?, share, &mut picked);
    }
    Some(picked)
}
