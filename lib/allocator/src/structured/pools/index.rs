//! An index of slices by node and by pool, so that a node need not look at those of all others.

use std::{cmp::Ordering, ops::Range, sync::OnceLock};

use super::{Features, PoolState, Quirks, ResourceSlice};

/// The slices of a cluster.
#[derive(Debug, Default)]
pub struct SliceIndex<'a> {
    slices: Vec<&'a ResourceSlice>,
    /// Slices that only one node can use, by node, and then as listed.
    on_node: Vec<u32>,
    /// All others, as listed.
    shared: Vec<u32>,
    /// All slices, by pool, and then as listed.
    by_pool: Vec<u32>,
    /// Ranges in `by_pool` of the pools that only one node can use, and that have counters.
    with_counters: Vec<Range<usize>>,
    bad: OnceLock<BadPools<'a>>,
}

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
        let slice = |at: &u32| slices[*at as usize];
        #[expect(clippy::cast_possible_truncation, reason = "a cluster has no four billion slices")]
        let mut by_pool: Vec<u32> = (0..slices.len() as u32).collect();
        by_pool.sort_by(|one, other| by_pool_name(slice(one), slice(other)));
        let (mut index, mut start) = (Self::default(), 0);
        for pool in by_pool.chunk_by(|one, other| by_pool_name(slice(one), slice(other)).is_eq()) {
            index.add_pool(pool, &slices, start);
            start += pool.len();
        }
        // Pools came by name, and slices go in the order in which they were listed.
        index.shared.sort_unstable();
        index.on_node.sort_unstable_by_key(|at| (node_name(slice(at)), *at));
        Self { slices, by_pool, ..index }
    }

    /// Adds a pool that begins at `start` in `by_pool`.
    fn add_pool(&mut self, pool: &[u32], slices: &[&ResourceSlice], start: usize) {
        let node = |at: &u32| node_name(slices[*at as usize]);
        let has_counters = |at: &u32| has_counters(slices[*at as usize]);
        let owner = node(&pool[0]).filter(|owner| pool.iter().all(|at| node(at) == Some(owner)));
        for at in pool {
            // Each of the nodes that use a pool may need its counters.
            let is_own = node(at).is_some() && (owner.is_some() || !has_counters(at));
            if is_own { self.on_node.push(*at) } else { self.shared.push(*at) }
        }
        if owner.is_some() && pool.iter().any(has_counters) {
            self.with_counters.push(start..start + pool.len());
        }
    }

    /// Returns the slices that can matter to the node: its own first, or all in the order in which they are listed.
    pub(super) fn candidates(&self, node: &str, as_listed: bool) -> Vec<&'a ResourceSlice> {
        let own = equal(&self.on_node, |at| node_name(self.slices[*at as usize]).cmp(&Some(node)));
        let mut found: Vec<u32> = [own, &self.shared].concat();
        let has_counters = |at: &u32| has_counters(self.slices[*at as usize]);
        if as_listed {
            found.sort_unstable();
        } else if own.iter().any(has_counters) {
            // Slices with counters are listed with those of all nodes, also the node's own. Sorted parts are sorted
            // fast.
            let is_own = |at: &u32| node_name(self.slices[*at as usize]).is_some() && !has_counters(at);
            found.sort_by_key(|at| (!is_own(at), *at));
        }
        self.at(&found)
    }

    /// Finds all slices of a pool, of every generation.
    pub(super) fn of_pool(&self, driver: &str, pool: &str) -> Vec<&'a ResourceSlice> {
        self.at(equal(&self.by_pool, |at| pool_name(self.slices[*at as usize]).cmp(&(driver, pool))))
    }

    /// Finds pools of one node that have counters and cannot be used. They are judged once for all nodes.
    pub(super) fn bad_pools(
        &self,
        features: Features,
        quirks: Quirks,
        judge: impl Fn(Vec<&'a ResourceSlice>) -> Vec<BadPool<'a>>,
    ) -> Vec<BadPool<'a>> {
        let judge = || self.with_counters.iter().flat_map(|pool| judge(self.at(&self.by_pool[pool.clone()]))).collect();
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

/// Returns the items of a sorted list for which `order` is equal.
fn equal<T>(sorted: &[T], order: impl Fn(&T) -> Ordering) -> &[T] {
    let start = sorted.partition_point(|item| order(item).is_lt());
    let length = sorted[start..].partition_point(|item| order(item).is_eq());
    &sorted[start..start + length]
}
