//! What holds for every machine and every order of claims.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::machines::MachineShape;
use crate::{
    CpuBackendConfig, CpuGrouping, enumeration,
    pick::{CorePlace, OfferedCore, OfferedCpus},
};

/// Cores in random places, with one to `threads` CPUs each; with whole cores all alike.
fn offers() -> impl Strategy<Value = OfferedCpus> {
    let places = prop::collection::vec((0..2_u32, 0..3_u32, 0..3_u32, 1..5_usize), 1..24);
    (any::<bool>(), 1..4_usize, places).prop_map(|(whole_cores, threads, places)| {
        let mut next = 0;
        let mut core = |(package, node, l3, own): (u32, u32, u32, usize)| {
            let count = if whole_cores { threads } else { own };
            let cpus: Vec<u32> = (next..).take(count).collect();
            next += u32::try_from(count).unwrap();
            // Nodes and caches are numbered over the whole machine.
            OfferedCore(cpus, [package, package * 3 + node, (package * 3 + node) * 3 + l3])
        };
        let cores = places.into_iter().map(&mut core).collect();
        OfferedCpus { whole_cores, cores, ..OfferedCpus::default() }
    })
}

fn free(offer: &OfferedCpus, held: &BTreeSet<u32>, level: usize) -> BTreeMap<Vec<u32>, usize> {
    let mut free: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
    for OfferedCore(cpus, place) in &offer.cores {
        let count = cpus.iter().filter(|cpu| !held.contains(cpu)).count();
        let counts = count == cpus.len() || !offer.whole_cores;
        *free.entry(place[..level].to_vec()).or_default() += if counts { count } else { 0 };
    }
    free
}

fn touched(offer: &OfferedCpus, picked: &BTreeSet<u32>, level: usize) -> BTreeSet<Vec<u32>> {
    let cores = offer.cores.iter().filter(|core| core.0.iter().any(|cpu| picked.contains(cpu)));
    cores
        .map(|OfferedCore(_, place): &OfferedCore| -> &CorePlace { place })
        .map(|place| place[..level].to_vec())
        .collect()
}

/// Checks one answer against what was free.
fn check(
    offer: &OfferedCpus,
    wanted: usize,
    held: &BTreeSet<u32>,
    picked: &BTreeSet<u32>,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(picked.len(), wanted);
    prop_assert!(picked.is_disjoint(held));
    let all: BTreeSet<u32> = offer.cores.iter().flat_map(|core| &core.0).copied().collect();
    prop_assert!(picked.is_subset(&all));
    if offer.whole_cores {
        for core in &offer.cores {
            let count = core.0.iter().filter(|cpu| picked.contains(cpu)).count();
            prop_assert!(count == 0 || count == core.0.len(), "core {core:?} is split");
        }
    }
    // One cache, node or package is enough wherever one has room; the finest level that has room decides.
    if let Some(level) = [3, 2, 1].into_iter().find(|level| free(offer, held, *level).values().any(|n| *n >= wanted)) {
        let places = touched(offer, picked, level);
        prop_assert_eq!(places.len(), 1, "level {}", level);
        match level {
            3 => check_in_one_cache(offer, wanted, held, picked)?,
            2 => prop_assert_eq!(touched(offer, picked, 3).len(), fewest_caches(offer, wanted, held, &places)),
            _ => {}
        }
    }
    Ok(())
}

/// As many whole cores as can be, and one is split only when the cores that are split already do not suffice.
fn check_in_one_cache(
    offer: &OfferedCpus,
    wanted: usize,
    held: &BTreeSet<u32>,
    picked: &BTreeSet<u32>,
) -> Result<(), TestCaseError> {
    let place = touched(offer, picked, 3);
    let cores = offer.cores.iter().filter(|core| place.contains(core.1.as_slice()));
    let count = |core: &OfferedCore, set: &BTreeSet<u32>| core.0.iter().filter(|cpu| set.contains(cpu)).count();
    let (whole, part): (Vec<_>, Vec<_>) = cores.partition(|core| count(core, held) == 0);
    let mut sizes: Vec<usize> = whole.iter().map(|core| core.0.len()).collect();
    sizes.sort_by_key(|size| std::cmp::Reverse(*size));
    let expected = sizes.iter().fold(0, |sum, size| if sum + size <= wanted { sum + size } else { sum });
    let given: usize = whole
        .iter()
        .map(|core| core.0.len())
        .zip(whole.iter().map(|core| count(core, picked)))
        .filter(|(size, picked)| size == picked)
        .map(|(size, _)| size)
        .sum();
    prop_assert_eq!(given, expected, "CPUs in whole cores");
    let newly_split = whole.iter().any(|core| (1..core.0.len()).contains(&count(core, picked)));
    let left = part.iter().any(|core| count(core, held) + count(core, picked) < core.0.len());
    prop_assert!(!(newly_split && left), "a core is split, and a split one has room");
    Ok(())
}

/// The least number of caches of a node that have room for `wanted` together.
fn fewest_caches(offer: &OfferedCpus, wanted: usize, held: &BTreeSet<u32>, node: &BTreeSet<Vec<u32>>) -> usize {
    let caches = free(offer, held, 3).into_iter().filter(|(place, _)| node.contains(&place[..2]));
    let mut sizes: Vec<usize> = caches.map(|(_, free)| free).collect();
    sizes.sort_by_key(|size| std::cmp::Reverse(*size));
    let sums = sizes.iter().scan(0, |sum, size| {
        *sum += size;
        Some(*sum)
    });
    1 + sums.take_while(|sum| *sum < wanted).count()
}

proptest! {
    #[test]
    fn any_sequence_of_claims_is_served_whenever_there_is_room(
        offer in offers(),
        steps in prop::collection::vec((1..12_usize, any::<prop::sample::Index>(), any::<bool>()), 1..40),
    ) {
        let mut claims: Vec<BTreeSet<u32>> = Vec::new();
        for (steps, index, release) in steps {
            if release && !claims.is_empty() {
                claims.swap_remove(index.index(claims.len()));
            }
            let held: BTreeSet<u32> = claims.iter().flatten().copied().collect();
            let wanted = steps * offer.step();
            let room = offer.free(&held) >= wanted;
            let picked = offer.pick(wanted, &held);
            prop_assert_eq!(picked.is_some(), room);
            prop_assert_eq!(&picked, &offer.pick(wanted, &held));
            if let Some(picked) = picked {
                check(&offer, wanted, &held, &picked)?;
                claims.push(picked);
            }
        }
    }

    #[test]
    fn foreign_holds_split_cores_and_still_nothing_is_given_twice(
        offer in offers(),
        foreign in prop::collection::btree_set(0..60_u32, 0..30),
        steps in 1..12_usize,
    ) {
        let wanted = steps * offer.step();
        let picked = offer.pick(wanted, &foreign);
        prop_assert_eq!(picked.is_some(), offer.free(&foreign) >= wanted);
        if let Some(picked) = picked {
            check(&offer, wanted, &foreign, &picked)?;
        }
    }

    #[test]
    fn what_is_no_multiple_of_a_core_is_never_given_in_whole_cores(offer in offers(), wanted in 1..40_usize) {
        let picked = offer.pick(wanted, &BTreeSet::new());
        prop_assert_eq!(picked.is_some(), wanted <= offer.cpus() && wanted % offer.step() == 0);
    }

    #[test]
    fn every_request_that_the_policy_allows_can_be_met(
        packages in 1..3_u32, nodes in 1..3_u32, caches in 1..3_u32, cores in 1..4_u32, threads in 1..3_u32,
        reserved in prop::collection::btree_set(0..96_u32, 0..8),
        full_cores: bool, mode in 0..4_usize,
    ) {
        let shape = MachineShape { packages, nodes, caches, cores, threads };
        let reserved: BTreeSet<u32> = reserved.into_iter().filter(|cpu| *cpu < shape.cpus()).collect();
        let config = CpuBackendConfig {
            mode: [CpuGrouping::Numa, CpuGrouping::L3, CpuGrouping::Socket, CpuGrouping::Machine][mode],
            reserved: hostler_linux::IdSet::from(reserved.clone()).to_string(),
            full_cores,
            ..CpuBackendConfig::default()
        };
        let found = enumeration(&shape.machine(), &config).unwrap();
        for device in &found.devices {
            let offer: OfferedCpus = serde_json::from_value(device.data.clone()).unwrap();
            let capacity = device.capacity["cpus"];
            let (value, policy) = (capacity.value.as_whole().unwrap(), capacity.policy.unwrap());
            let step = policy.step.as_whole().unwrap();
            prop_assert_eq!(value % step, 0);
            for wanted in (step..=value).step_by(usize::try_from(step).unwrap()) {
                let wanted = usize::try_from(wanted).unwrap();
                let picked = offer.pick(wanted, &BTreeSet::new());
                prop_assert!(picked.is_some_and(|picked| picked.len() == wanted && picked.is_disjoint(&reserved)));
            }
        }
    }
}

fn one_cache(cores: &[&[u32]]) -> OfferedCpus {
    let cores = cores.iter().map(|cpus| OfferedCore(cpus.to_vec(), [0, 0, 0])).collect();
    OfferedCpus { cores, ..OfferedCpus::default() }
}

#[test]
fn single_threads_come_from_cores_that_are_split_already() {
    let offer = one_cache(&[&[0, 4], &[1, 5], &[2, 6], &[3, 7]]);
    let picked = offer.pick(3, &BTreeSet::from([5])).unwrap();
    assert_eq!(picked, BTreeSet::from([0, 4, 1]));
}

#[test]
fn whole_cores_come_before_the_tightest_cache() {
    let offer = OfferedCpus {
        whole_cores: false,
        cores: vec![
            OfferedCore(vec![0, 4], [0, 0, 0]),
            OfferedCore(vec![1, 5], [0, 0, 0]),
            OfferedCore(vec![2, 6], [0, 0, 1]),
            OfferedCore(vec![3, 7], [0, 0, 1]),
        ],
        ..OfferedCpus::default()
    };
    // The first cache has exactly two threads left, of two cores; the second has a whole core.
    assert_eq!(offer.pick(2, &BTreeSet::from([0, 1])), Some(BTreeSet::from([2, 6])));
}

#[test]
fn a_request_that_fits_one_cache_does_not_cross_into_another() {
    let cores = (0..8).map(|core| OfferedCore(vec![core], [0, 0, core / 4])).collect();
    let offer = OfferedCpus { whole_cores: true, cores, ..OfferedCpus::default() };
    // One CPU of the first cache is taken: three stay there, four in the second.
    assert_eq!(offer.pick(4, &BTreeSet::from([0])), Some(BTreeSet::from([4, 5, 6, 7])));
    assert_eq!(offer.pick(3, &BTreeSet::from([0])), Some(BTreeSet::from([1, 2, 3])));
}

#[test]
fn of_split_cores_the_one_with_enough_threads_is_taken() {
    let offer = one_cache(&[&[0, 1, 2, 3, 4, 5, 6, 7], &[8, 9, 10, 11, 12, 13, 14, 15]]);
    // One thread is left of the first core, which is nearer to two than the four of the second.
    assert_eq!(offer.pick(2, &(1..12).collect()), Some(BTreeSet::from([12, 13])));
}

#[test]
fn large_cores_count_before_small_ones() {
    let offer = OfferedCpus {
        whole_cores: false,
        cores: vec![
            OfferedCore(vec![0], [0, 0, 0]),
            OfferedCore(vec![1, 2], [0, 0, 0]),
            OfferedCore(vec![3, 4], [0, 0, 1]),
            OfferedCore(vec![5, 6], [0, 0, 1]),
        ],
        ..OfferedCpus::default()
    };
    // Both caches have a core of two threads; the first has less left over.
    assert_eq!(offer.pick(2, &BTreeSet::new()), Some(BTreeSet::from([1, 2])));
}
