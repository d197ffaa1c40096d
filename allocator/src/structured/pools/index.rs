//! Slices by node and by pool, so that a node need not look at those of all others.

use std::sync::OnceLock;

use super::{Features, HashMap, PoolState, Quirks, ResourceSlice};

/// The slices of a cluster.
#[derive(Debug, Default)]
pub struct SliceIndex<'a> {
    slices: Vec<&'a ResourceSlice>,
    /// Those that only one node can use.
    on_node: HashMap<&'a str, Vec<u32>>,
    /// All others.
    shared: Vec<u32>,
    by_pool: HashMap<(&'a str, &'a str), Vec<u32>>,
    /// Pools that only one node can use, and that have counters.
    with_counters: Vec<Vec<u32>>,
    bad: OnceLock<BadPools<'a>>,
}

/// Pools of one node that cannot be used, as other nodes see them.
#[derive(Debug)]
pub(super) struct BadPools<'a> {
    /// For whom they are bad.
    key: (Features, Quirks),
    pools: Vec<BadPool<'a>>,
}

/// Such a pool.
#[derive(Clone, Debug)]
pub(super) struct BadPool<'a> {
    /// The node that could use it.
    pub(super) node: &'a str,
    pub(super) driver: &'a str,
    pub(super) name: &'a str,
    pub(super) state: PoolState,
}

impl<'a> SliceIndex<'a> {
    /// An index over slices; their order matters to allocators that do not sort them.
    pub fn new(slices: impl IntoIterator<Item = &'a ResourceSlice>) -> Self {
        let mut index = Self { slices: slices.into_iter().collect(), ..Self::default() };
        #[expect(clippy::cast_possible_truncation, reason = "a cluster has no four billion slices")]
        for at in 0..index.slices.len() as u32 {
            let spec = &index.slices[at as usize].spec;
            index.by_pool.entry((&spec.driver, &spec.pool.name)).or_default().push(at);
        }
        let pools: Vec<Vec<u32>> = index.by_pool.values().cloned().collect();
        pools.into_iter().for_each(|pool| index.add_pool(pool));
        // Pools came in any order, and slices are wanted as they were listed.
        index.shared.sort_unstable();
        index.on_node.values_mut().for_each(|slices| slices.sort_unstable());
        index.with_counters.sort_unstable();
        index
    }

    fn add_pool(&mut self, pool: Vec<u32>) {
        let node = |at: &u32| self.slices[*at as usize].spec.node_name.as_deref().filter(|name| !name.is_empty());
        let has_counters = |at: &u32| !self.slices[*at as usize].spec.shared_counters.is_empty();
        let owner = node(&pool[0]).filter(|owner| pool.iter().all(|at| node(at) == Some(owner)));
        for at in &pool {
            // Counters of a pool that several nodes use may be wanted by each of them.
            match node(at).filter(|_| owner.is_some() || !has_counters(at)) {
                Some(node) => self.on_node.entry(node).or_default().push(*at),
                None => self.shared.push(*at),
            }
        }
        if owner.is_some() && pool.iter().any(has_counters) {
            self.with_counters.push(pool);
        }
    }

    /// Those that can matter to the node: its own first, or in the order in which they are listed.
    pub(super) fn candidates(&self, node: &str, as_listed: bool) -> Vec<&'a ResourceSlice> {
        let own = self.on_node.get(node).map_or(&[][..], Vec::as_slice);
        let mut found: Vec<u32> = own.iter().chain(&self.shared).copied().collect();
        if as_listed {
            found.sort_unstable();
        }
        self.at(&found)
    }

    /// All slices of a pool, of every generation.
    pub(super) fn of_pool(&self, driver: &str, pool: &str) -> Vec<&'a ResourceSlice> {
        self.by_pool.get(&(driver, pool)).map(|found| self.at(found)).unwrap_or_default()
    }

    /// Pools of one node that have counters and cannot be used: for all nodes, they are judged once.
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
