//! Chooses the CPUs of a claim. Pure arithmetic on what a device offers and what is held.
//!
//! Order of the wishes: inside one L3 cache if any has room, else inside one NUMA node, else inside one package; whole
//! cores before single threads; then the place where the least is left over. A wish that fits into no single place
//! takes the largest places whole and looks again for the rest. Equal choices fall to the lowest number, so that the
//! same work always has the same answer. [`spread`] has the other orders that a claim may wish for.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use hostler_api::opaque::{CpuIsolation, CpuSpread};
use hostler_linux::IdSet;
use serde::{Deserialize, Serialize};

mod spread;

pub(crate) use spread::domain;

/// CPUs that a device offers; travels in [`hostler_backend::Device::data`].
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct OfferedCpus {
    /// True if a core is given whole or not at all.
    pub(crate) whole_cores: bool,
    /// The cores, by lowest CPU.
    pub(crate) cores: Vec<OfferedCore>,
    /// The CPUs of cores of which some running thread is not offered.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub(crate) partial: IdSet,
    /// All running CPUs behind each L3 cache, offered or not, by the number that stands in [`CorePlace`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) caches: BTreeMap<u32, IdSet>,
}

/// The CPUs of a core that may be handed out, ascending, and where the core is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct OfferedCore(pub(crate) Vec<u32>, pub(crate) CorePlace);

/// Package, NUMA node and L3 cache of a core. A prefix of it is the place one or two levels up.
pub(crate) type CorePlace = [u32; 3];

/// The L3 cache of a core whose cache is not known.
pub(crate) const NO_CACHE: u32 = u32::MAX;

/// Numbers of the parts of a [`CorePlace`] that are compared: finest first.
const LEVELS: [usize; 3] = [3, 2, 1];

impl OfferedCpus {
    /// The number of CPUs that can be handed out.
    pub(crate) fn cpus(&self) -> usize {
        self.cores.iter().map(|core| core.0.len()).sum()
    }

    /// The number of CPUs in which the offer can be split: the threads of a core, or one.
    pub(crate) fn step(&self) -> usize {
        if self.whole_cores { self.cores.first().map_or(1, |core| core.0.len()) } else { 1 }
    }

    /// The number of CPUs that can still be handed out.
    pub(crate) fn free(&self, held: &BTreeSet<u32>) -> usize {
        self.free_cores(held).iter().map(|core| core.free.len()).sum()
    }

    /// Picks `wanted` CPUs that no claim holds; `None` if there are not so many, or not in whole cores.
    pub(crate) fn pick(&self, wanted: usize, held: &BTreeSet<u32>) -> Option<BTreeSet<u32>> {
        let cores = self.free_cores(held);
        let cores: Vec<&FreeCore> = cores.iter().collect();
        if count(&cores) < wanted || !wanted.is_multiple_of(self.step()) {
            return None;
        }
        let mut picked = BTreeSet::new();
        take(&cores, wanted, &mut picked);
        Some(picked)
    }

    /// Picks as [`pick`](Self::pick) does, after another wish.
    pub(crate) fn pick_spread(&self, spread: CpuSpread, wanted: usize, held: &BTreeSet<u32>) -> Option<BTreeSet<u32>> {
        let cores = self.free_cores(held);
        let cores: Vec<&FreeCore> = cores.iter().collect();
        if count(&cores) < wanted || !wanted.is_multiple_of(self.step()) {
            return None;
        }
        match spread {
            CpuSpread::Packed => self.pick(wanted, held),
            CpuSpread::Cores => Some(spread::over_cores(&cores, wanted)),
            CpuSpread::L3 | CpuSpread::Numa => spread::over_domains(&cores, spread, wanted, self.step()),
        }
    }

    /// The cores or caches, each with its CPUs, that can be kept apart.
    pub(crate) fn domains(&self, isolation: CpuIsolation) -> impl Iterator<Item = IdSet> + '_ {
        let cores = self.cores.iter().filter(move |_| isolation == CpuIsolation::Smt);
        let caches = self.caches.values().filter(move |_| isolation == CpuIsolation::L3);
        cores.map(|core| core.0.iter().copied().collect()).chain(caches.cloned())
    }

    fn free_cores(&self, held: &BTreeSet<u32>) -> Vec<FreeCore> {
        let free = |OfferedCore(cpus, place): &OfferedCore| {
            let free: Vec<u32> = cpus.iter().copied().filter(|cpu| !held.contains(cpu)).collect();
            let whole = free.len() == cpus.len();
            (!free.is_empty() && (whole || !self.whole_cores)).then_some(FreeCore { free, whole, place: *place })
        };
        self.cores.iter().filter_map(free).collect()
    }
}

/// A core with CPUs that no claim holds.
#[derive(Debug)]
struct FreeCore {
    free: Vec<u32>,
    /// True if no claim holds any of the core's CPUs.
    whole: bool,
    place: CorePlace,
}

fn count(cores: &[&FreeCore]) -> usize {
    cores.iter().map(|core| core.free.len()).sum()
}

/// The cores, by the place they are in at a level.
fn places<'a>(cores: &[&'a FreeCore], level: usize) -> BTreeMap<&'a [u32], Vec<&'a FreeCore>> {
    let mut places: BTreeMap<&[u32], Vec<&FreeCore>> = BTreeMap::new();
    for core in cores {
        places.entry(&core.place[..level]).or_default().push(core);
    }
    places
}

/// Takes `wanted` CPUs of `cores`, which have at least so many.
fn take(cores: &[&FreeCore], wanted: usize, picked: &mut BTreeSet<u32>) {
    for level in LEVELS {
        let fitting = places(cores, level).into_values().filter(|cores| count(cores) >= wanted);
        let best = fitting.min_by_key(|cores| (wanted - in_whole_cores(cores, wanted), count(cores)));
        match best {
            Some(cores) if level == LEVELS[0] => return take_in_one_cache(cores, wanted, picked),
            Some(cores) => return take_largest(&cores, level + 1, wanted, picked),
            None => {}
        }
    }
    take_largest(cores, 1, wanted, picked);
}

/// Takes the largest place of a level whole, which is less than `wanted`, and looks again for the rest.
fn take_largest(cores: &[&FreeCore], level: usize, wanted: usize, picked: &mut BTreeSet<u32>) {
    let places = places(cores, level);
    let largest = places.into_iter().max_by_key(|(place, cores)| (count(cores), Reverse(*place)));
    let Some((place, all)) = largest else { return };
    picked.extend(all.iter().flat_map(|core| &core.free));
    let rest: Vec<&FreeCore> = cores.iter().copied().filter(|core| core.place[..level] != *place).collect();
    take(&rest, wanted.saturating_sub(count(&all)), picked);
}

/// Counts how many of `wanted` CPUs whole cores can serve.
fn in_whole_cores(cores: &[&FreeCore], wanted: usize) -> usize {
    let mut sizes: Vec<usize> = cores.iter().filter(|core| core.whole).map(|core| core.free.len()).collect();
    sizes.sort_unstable_by_key(|size| Reverse(*size));
    sizes.into_iter().fold(0, |sum, size| if sum + size <= wanted { sum + size } else { sum })
}

/// Takes whole cores as long as one fits, then threads: of cores that are split already where possible.
fn take_in_one_cache(mut cores: Vec<&FreeCore>, mut wanted: usize, picked: &mut BTreeSet<u32>) {
    cores.sort_by_key(|core| Reverse(core.free.len()));
    cores.retain(|core| {
        let taken = core.whole && core.free.len() <= wanted;
        if taken {
            wanted -= core.free.len();
            picked.extend(&core.free);
        }
        !taken
    });
    // The core with just enough threads, else the one with most: the fewest cores are left split.
    while wanted > 0 {
        let key = |core: &FreeCore| (core.whole, core.free.len() < wanted, core.free.len().abs_diff(wanted));
        let Some(best) = (0..cores.len()).min_by_key(|index| key(cores[*index])) else { return };
        let core = cores.remove(best);
        let part = core.free.len().min(wanted);
        picked.extend(&core.free[..part]);
        wanted -= part;
    }
}
