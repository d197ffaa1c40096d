//! Slices by node and by pool, so that a node need not look at those of all others.

use super::{HashMap, ResourceSlice};

/// The slices of a cluster.
#[derive(Debug, Default)]
pub struct SliceIndex<'a> {
    pub(super) slices: Vec<&'a ResourceSlice>,
    /// Those that name a node.
    on_node: HashMap<&'a str, Vec<u32>>,
    /// All others.
    shared: Vec<u32>,
    by_pool: HashMap<(&'a str, &'a str), Vec<u32>>,
}

impl<'a> SliceIndex<'a> {
    /// An index over slices; their order matters to allocators that do not sort them.
    pub fn new(slices: impl IntoIterator<Item = &'a ResourceSlice>) -> Self {
        slices.into_iter().fold(Self::default(), |mut index, slice| {
            index.add(slice);
            index
        })
    }

    fn add(&mut self, slice: &'a ResourceSlice) {
        #[expect(clippy::cast_possible_truncation, reason = "a cluster has no four billion slices")]
        let at = self.slices.len() as u32;
        self.slices.push(slice);
        match slice.spec.node_name.as_deref() {
            // Slices with counters may be wanted by every node.
            Some(node) if !node.is_empty() && slice.spec.shared_counters.is_empty() => {
                self.on_node.entry(node).or_default().push(at);
            }
            _ => self.shared.push(at),
        }
        self.by_pool.entry((&slice.spec.driver, &slice.spec.pool.name)).or_default().push(at);
    }

    /// Those that can matter to the node: its own first, or in the order in which they are listed.
    pub(super) fn candidates(&self, node: &str, as_listed: bool) -> Vec<&'a ResourceSlice> {
        let own = self.on_node.get(node).map_or(&[][..], Vec::as_slice);
        let mut found: Vec<u32> = own.iter().chain(&self.shared).copied().collect();
        if as_listed {
            found.sort_unstable();
        }
        found.into_iter().map(|at| self.slices[at as usize]).collect()
    }

    /// All slices of a pool, of every generation.
    pub(super) fn of_pool(&self, driver: &str, pool: &str) -> Vec<&'a ResourceSlice> {
        let found = self.by_pool.get(&(driver, pool)).map_or(&[][..], Vec::as_slice);
        found.iter().map(|at| self.slices[*at as usize]).collect()
    }
}
