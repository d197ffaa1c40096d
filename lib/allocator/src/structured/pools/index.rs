//! An index of slices by node and by pool, so that a node need not look at those of all others.
//!
//! Names are put in order by their hashes: a pod that is tried on one node alone pays for the index, too.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, BuildHasherDefault, Hash},
    sync::OnceLock,
};

use super::{Features, PoolState, Quirks, ResourceSlice};
use crate::structured::names::NameHasher;

/// The slices of a cluster.
#[derive(Debug, Default)]
pub struct SliceIndex<'a> {
    slices: Vec<&'a ResourceSlice>,
    /// Slices that only one node can use, by node, and then as listed.
    on_node: Vec<Hashed>,
    /// All others, as listed.
    shared: Vec<u32>,
    /// All slices, by pool, and then as listed; most pools are complete on their node, and need no look at the others.
    by_pool: OnceLock<Vec<Hashed>>,
    /// The pools that only one node can use, and that have counters.
    with_counters: Vec<Vec<u32>>,
    bad: OnceLock<BadPools<'a>>,
}

/// The hash of a slice's key, and the slice.
type Hashed = (u64, u32);

/// Pools of one node that cannot be used, as other nodes see them.
#[derive(Debug)]
pub(super) struct BadPools<'a> {
    /// Features and quirks under which they are bad.
    key: (Features, Quirks),
    pools: Vec<BadPool<'a>>,
}

/// A pool of one node that cannot be used.
#[derive(Clone, Debug)]
pub(super) struct BadPool<'a> {
    /// The node that could use it.
    pub(super) node: &'a str,
    pub(super) driver: &'a str,
    pub(super) name: &'a str,
    pub(super) state: PoolState,
}

impl<'a> SliceIndex<'a> {
    /// Makes an index of slices; their order matters to allocators that do not sort them.
    pub fn new(slices: impl IntoIterator<Item = &'a ResourceSlice>) -> Self {
        let slices: Vec<&ResourceSlice> = slices.into_iter().collect();
        let mut index = Self { with_counters: pools_with_counters(&slices), ..Self::default() };
        let own_counters: BTreeSet<u32> = index.with_counters.iter().flatten().copied().collect();
        for (at, slice) in (0..).zip(&slices) {
            match node_name(slice) {
                Some(node) if !has_counters(slice) || own_counters.contains(&at) => {
                    index.on_node.push((hash(&node), at));
                }
                // Each of the nodes that use a pool may need its counters.
                _ => index.shared.push(at),
            }
        }
        index.on_node.sort_unstable();
        Self { slices, ..index }
    }

    /// Returns the slices that can matter to the node: its own first, or all in the order in which they are listed.
    pub(super) fn candidates(&self, node: &str, as_listed: bool) -> Vec<&'a ResourceSlice> {
        let own = with_hash(&self.on_node, hash(&node)).filter(|at| node_name(self.slices[*at as usize]) == Some(node));
        let mut found: Vec<u32> = own.collect();
        let own = found.len();
        found.extend(&self.shared);
        let has_counters = |at: &u32| has_counters(self.slices[*at as usize]);
        if as_listed {
            found.sort_unstable();
        } else if found[..own].iter().any(has_counters) {
            // Slices with counters are listed with those of all nodes, also the node's own. Sorted parts are sorted
            // fast.
            let is_own = |at: &u32| node_name(self.slices[*at as usize]).is_some() && !has_counters(at);
            found.sort_by_key(|at| (!is_own(at), *at));
        }
        self.at(&found)
    }

    /// Finds all slices of a pool, of every generation.
    pub(super) fn of_pool(&self, driver: &str, pool: &str) -> Vec<&'a ResourceSlice> {
        let by_pool = self.by_pool.get_or_init(|| {
            let mut by_pool: Vec<Hashed> =
                (0..).zip(&self.slices).map(|(at, slice)| (hash(&pool_name(slice)), at)).collect();
            by_pool.sort_unstable();
            by_pool
        });
        let slices = with_hash(by_pool, hash(&(driver, pool))).map(|at| self.slices[at as usize]);
        slices.filter(|slice| pool_name(slice) == (driver, pool)).collect()
    }

    /// Finds pools of one node that have counters and cannot be used. They are judged once for all nodes.
    pub(super) fn bad_pools(
        &self,
        features: Features,
        quirks: Quirks,
        judge: impl Fn(Vec<&'a ResourceSlice>) -> Vec<BadPool<'a>>,
    ) -> Vec<BadPool<'a>> {
        let judge = || self.with_counters.iter().flat_map(|pool| judge(self.at(pool))).collect();
        let key = (features, quirks);
        let known = self.bad.get_or_init(|| BadPools { key, pools: judge() });
        if known.key == key { known.pools.clone() } else { judge() }
    }

    fn at(&self, slices: &[u32]) -> Vec<&'a ResourceSlice> {
        slices.iter().map(|at| self.slices[*at as usize]).collect()
    }
}

fn has_counters(slice: &ResourceSlice) -> bool {
    !slice.spec.shared_counters.is_empty()
}

fn node_name(slice: &ResourceSlice) -> Option<&str> {
    slice.spec.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns driver and name of a slice's pool.
fn pool_name(slice: &ResourceSlice) -> (&str, &str) {
    (&slice.spec.driver, &slice.spec.pool.name)
}

/// Compares slices by their pools.
pub(super) fn by_pool_name(one: &ResourceSlice, other: &ResourceSlice) -> Ordering {
    pool_name(one).cmp(&pool_name(other))
}

/// Finds the pools that only one node can use, and that have counters: their slices, as listed.
fn pools_with_counters(slices: &[&ResourceSlice]) -> Vec<Vec<u32>> {
    let with_counters = slices.iter().filter(|slice| has_counters(slice));
    let names: BTreeSet<(&str, &str)> = with_counters.map(|slice| pool_name(slice)).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let mut pools: BTreeMap<(&str, &str), Vec<u32>> = BTreeMap::new();
    for (at, slice) in (0..).zip(slices).filter(|(_, slice)| names.contains(&pool_name(slice))) {
        pools.entry(pool_name(slice)).or_default().push(at);
    }
    let is_owned = |pool: &Vec<u32>| {
        let owner = node_name(slices[pool[0] as usize]);
        owner.is_some() && pool.iter().all(|at| node_name(slices[*at as usize]) == owner)
    };
    pools.into_values().filter(is_owned).collect()
}

fn hash(key: &impl Hash) -> u64 {
    BuildHasherDefault::<NameHasher>::default().hash_one(key)
}

/// Returns the slices whose keys have the hash.
fn with_hash(sorted: &[Hashed], hash: u64) -> impl Iterator<Item = u32> + '_ {
    let start = sorted.partition_point(|(other, _)| *other < hash);
    sorted[start..].iter().take_while(move |(other, _)| *other == hash).map(|(_, at)| *at)
}
