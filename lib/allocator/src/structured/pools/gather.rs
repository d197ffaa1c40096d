//! Gathers the slices that make up the pools of a node: the newest generation, complete, and without contradictions.

use std::hash::BuildHasherDefault;

use super::{
    BTreeMap, Feature, Features, FoundPool, GatherError, NameSet, NodeFacts, PoolState, Quirk, Quirks, ResourceSlice,
    SliceIndex, allows,
    index::{BadPool, by_pool_name},
};

/// Slices for the node, by pool.
pub(super) struct PoolSlices<'n, 'a> {
    features: Features,
    quirks: Quirks,
    node: &'n NodeFacts<'a>,
    index: &'n SliceIndex<'a>,
}

impl<'n, 'a> PoolSlices<'n, 'a> {
    /// Finds all pools of the node, in the order of the search.
    pub(super) fn find(
        features: Features,
        quirks: Quirks,
        node: &'n NodeFacts<'a>,
        index: &'n SliceIndex<'a>,
    ) -> Result<Vec<FoundPool<'a>>, GatherError> {
        let this = Self { features, quirks, node, index };
        let groups = newest_by_pool(this.relevant()?);
        let mut pools: Vec<FoundPool<'a>> = groups.into_iter().filter_map(|slices| this.pool(slices)).collect();
        pools.extend(this.bad_pools_elsewhere());
        let binding_last = !quirks.has(Quirk::BindingPoolsAnywhere);
        let key = |pool: &FoundPool<'a>| (binding_last && pool.has_binding_conditions, pool.driver, pool.name);
        pools.sort_by(|one, other| key(one).cmp(&key(other)));
        Ok(pools)
    }

    /// Finds slices with devices that the node may use, or with their counters.
    fn relevant(&self) -> Result<Vec<&'a ResourceSlice>, GatherError> {
        let mut found = Vec::new();
        for slice in self.index.candidates(self.node.name, self.quirks.has(Quirk::SlicesAsListed)) {
            if self.is_known(slice) && self.is_relevant(slice)? {
                found.push(slice);
            }
        }
        if self.quirks.has(Quirk::BindingSlicesLast) {
            // A slice of counters has no devices, unless counters and devices go together.
            let together = self.quirks.has(Quirk::CountersPerSlice);
            let has_devices = |slice: &ResourceSlice| together || slice.spec.shared_counters.is_empty();
            found.sort_by_key(|slice| has_devices(slice) && has_binding_conditions(slice));
        }
        Ok(found)
    }

    /// Finds pools of other nodes whose counters count here, and that cannot be used: with one, all devices are not
    /// known.
    fn bad_pools_elsewhere(&self) -> impl Iterator<Item = FoundPool<'a>> {
        let counts =
            self.quirks.has(Quirk::CounterSlicesEverywhere) && self.features.has(Feature::PartitionableDevices);
        let judge = |pool: Vec<&'a ResourceSlice>| self.judge_elsewhere(pool);
        let bad = if counts { self.index.bad_pools(self.features, self.quirks, judge) } else { Vec::new() };
        let elsewhere = bad.into_iter().filter(|pool| pool.node != self.node.name);
        elsewhere.map(|BadPool { driver, name, state, .. }| FoundPool { driver, name, state, ..FoundPool::default() })
    }

    /// Judges a pool of one node as other nodes see it.
    fn judge_elsewhere(&self, pool: Vec<&'a ResourceSlice>) -> Vec<BadPool<'a>> {
        let counters = pool.into_iter().filter(|slice| !slice.spec.shared_counters.is_empty()).collect();
        let found = newest_by_pool(counters).into_iter().filter_map(|slices| {
            let node = slices[0].spec.node_name.as_deref()?;
            let FoundPool { driver, name, state, .. } = self.pool(slices)?;
            Some(BadPool { node, driver, name, state })
        });
        found.filter(|pool| !pool.state.is_usable()).collect()
    }

    /// Returns true if the slice is used: slices with fields of a feature that is off are not.
    fn is_known(&self, slice: &ResourceSlice) -> bool {
        let has_counters = !slice.spec.shared_counters.is_empty() && !self.quirks.has(Quirk::CountersPerSlice);
        self.features.has(Feature::PartitionableDevices)
            || (slice.spec.per_device_node_selection.is_none() && !has_counters)
    }

    fn is_relevant(&self, slice: &ResourceSlice) -> Result<bool, GatherError> {
        let spec = &slice.spec;
        if !spec.shared_counters.is_empty() && self.quirks.has(Quirk::CounterSlicesEverywhere) {
            return Ok(true);
        }
        let (name, selector) =
            (spec.node_name.as_deref().filter(|name| !name.is_empty()), spec.node_selector.as_deref());
        if name.is_some() || spec.all_nodes == Some(true) || selector.is_some() {
            let slice = &slice.metadata.name;
            let allowed = self.node.is_allowed(name, spec.all_nodes, selector);
            return allowed.map_err(|source| GatherError::Slice { slice: slice.clone(), source });
        }
        if spec.per_device_node_selection != Some(true) {
            return Ok(false);
        }
        for device in &spec.devices {
            let allowed = allows(self.node, device).map_err(|source| {
                let (slice, device) = (slice.metadata.name.clone(), device.name.to_string());
                GatherError::Device { slice, device, source }
            });
            if allowed? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes a pool of slices for the node, if it is not about to be replaced.
    fn pool(&self, slices: Vec<&'a ResourceSlice>) -> Option<FoundPool<'a>> {
        let first = slices[0];
        let (driver, name) = (first.spec.driver.as_str(), first.spec.pool.name.as_str());
        let is_all = |count: usize| i64::try_from(count) == Ok(first.spec.pool.resource_slice_count);
        let mut all = Vec::new();
        let mut is_complete = is_all(slices.len());
        if !is_complete && !self.quirks.has(Quirk::CompleteOnNode) {
            all = self.of_generation(driver, name, first.spec.pool.generation)?;
            is_complete = is_all(all.len());
        }
        let state = PoolState { is_incomplete: !is_complete, contradiction: None };
        let mut pool = FoundPool { driver, name, state, device_slices: slices, ..FoundPool::default() };
        self.sort_out(&mut pool, &all);
        self.judge(&mut pool);
        // Facts of a pool that cannot be used are dropped, except in the oldest allocators.
        if pool.state.is_usable() || self.quirks.has(Quirk::CountersPerSlice) {
            pool.has_binding_conditions = pool.device_slices.iter().any(|slice| has_binding_conditions(slice));
        }
        Some(pool)
    }

    /// Finds all slices of a generation; `None` where a newer one has been begun.
    fn of_generation(&self, driver: &str, pool: &str, generation: i64) -> Option<Vec<&'a ResourceSlice>> {
        let slices = self.index.of_pool(driver, pool);
        let is_newest = slices.iter().all(|slice| slice.spec.pool.generation <= generation);
        is_newest.then(|| slices.into_iter().filter(|slice| slice.spec.pool.generation == generation).collect())
    }

    /// Returns true if devices are taken from the slice: a slice with counters has none.
    fn has_devices(&self, slice: &ResourceSlice) -> bool {
        self.quirks.has(Quirk::CountersPerSlice)
            || !self.features.has(Feature::PartitionableDevices)
            || slice.spec.shared_counters.is_empty()
    }

    fn sort_out(&self, pool: &mut FoundPool<'a>, all: &[&'a ResourceSlice]) {
        if !self.quirks.has(Quirk::SlicesAsListed) {
            pool.device_slices.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        }
        if self.quirks.has(Quirk::CountersPerSlice) {
            return;
        }
        // Where all slices are for the node, there are no others to look for.
        let for_node = pool.device_slices.iter().filter(|_| !all.is_empty());
        let for_node: NameSet<'_> = for_node.map(|slice| &*slice.metadata.name).collect();
        pool.counter_slices = pool.device_slices.extract_if(.., |slice| !self.has_devices(slice)).collect();
        for slice in all.iter().filter(|slice| !for_node.contains(&*slice.metadata.name)) {
            let of = if self.has_devices(slice) { &mut pool.other_slices } else { &mut pool.counter_slices };
            of.push(slice);
        }
    }

    fn judge(&self, pool: &mut FoundPool<'a>) {
        // An incomplete pool may contradict itself until it is complete; the oldest allocators judge it all the same.
        if pool.state.is_incomplete && !self.quirks.has(Quirk::CountersPerSlice) {
            return;
        }
        pool.state.contradiction = duplicate_device(&pool.device_slices).or_else(|| self.counter_problem(pool));
    }

    fn counter_problem(&self, pool: &FoundPool<'_>) -> Option<String> {
        if self.quirks.has(Quirk::CountersPerSlice) || !self.features.has(Feature::PartitionableDevices) {
            return None;
        }
        let mut sets = BTreeMap::new();
        for set in pool.counter_slices.iter().flat_map(|slice| &slice.spec.shared_counters) {
            if sets.insert(&*set.name, set).is_some() {
                return Some(format!("it has two counter sets {}", set.name));
            }
        }
        // Devices beside counters do not count as devices, but some allocators check them.
        let beside = pool.counter_slices.iter().filter(|_| self.quirks.has(Quirk::CounterSlicesEverywhere));
        let slices = pool.device_slices.iter().chain(&pool.other_slices).chain(beside);
        for device in slices.flat_map(|slice| &slice.spec.devices) {
            for consumption in &device.consumes_counters {
                let Some(set) = sets.get(&*consumption.counter_set) else {
                    let missing = &consumption.counter_set;
                    return Some(format!("device {} consumes of counter set {missing}, which it lacks", device.name));
                };
                if let Some((missing, _)) =
                    consumption.counters.iter().find(|(name, _)| set.counters.get(name).is_none())
                {
                    let set = &consumption.counter_set;
                    return Some(format!(
                        "device {} consumes {missing} of counter set {set}, which it lacks",
                        device.name
                    ));
                }
            }
        }
        None
    }
}

/// Groups slices by pool: those of the highest generation, in their order.
fn newest_by_pool(mut slices: Vec<&ResourceSlice>) -> Vec<Vec<&ResourceSlice>> {
    let generation = |slice: &&ResourceSlice| slice.spec.pool.generation;
    slices.sort_by(|one, other| by_pool_name(one, other));
    let pools = slices.chunk_by(|one, other| by_pool_name(one, other).is_eq());
    let newest = pools.map(|pool| {
        let newest = pool.iter().map(generation).max();
        pool.iter().copied().filter(|slice| Some(generation(slice)) == newest).collect()
    });
    newest.collect()
}

fn has_binding_conditions(slice: &ResourceSlice) -> bool {
    slice.spec.devices.iter().any(|device| !device.binding_conditions.is_empty())
}

fn duplicate_device(slices: &[&ResourceSlice]) -> Option<String> {
    let names = || slices.iter().flat_map(|slice| &slice.spec.devices).map(|device| &*device.name);
    // Names in order are the rule, and need no set.
    if names().is_sorted_by(|one, next| one < next) {
        return None;
    }
    let mut seen = NameSet::with_capacity_and_hasher(names().count(), BuildHasherDefault::default());
    names().find(|name| !seen.insert(*name)).map(|name| format!("it has two devices {name}"))
}
