//! Counters that devices share: numbered once per node, so that the search only adds and compares.

use hostler_api::resource::{DeviceCounterConsumption, SliceCounterSet, policy::Amount};

use super::{
    found_pool::FoundPool,
    names::NameTable,
    node::NodeDevice,
    quirks::{Quirk, Quirks},
    state::PoolAllocations,
};

/// All counters of a node's pools.
#[derive(Debug, Default)]
pub(super) struct CounterLayout<'a> {
    /// Number of counters.
    slots: usize,
    /// Number of groups of counters that are judged together: those of a pool.
    groups: usize,
    /// Amounts of the counters, by source.
    sources: Vec<CounterSource<'a>>,
    /// Counters that each device takes; empty where devices take nothing.
    takes: Vec<Taking>,
}

/// A pool or slice that publishes the amounts of some counters.
#[derive(Debug)]
struct CounterSource<'a> {
    group: usize,
    driver: &'a str,
    pool: &'a str,
    totals: Vec<(usize, Amount)>,
    /// Devices that take of these counters, also devices for other nodes.
    takers: Vec<(&'a str, Vec<(usize, Amount)>)>,
}

/// Counters that a device takes, with the amounts.
#[derive(Debug, Default)]
struct Taking {
    source: usize,
    amounts: Box<[(usize, Amount)]>,
}

/// Numbers counters.
pub(super) struct CounterLayoutBuilder<'a> {
    quirks: Quirks,
    layout: CounterLayout<'a>,
    groups: NameTable<(&'a str, &'a str), usize>,
    slots: NameTable<(usize, &'a str, &'a str), usize>,
}

impl<'a> CounterLayoutBuilder<'a> {
    pub(super) fn new(quirks: Quirks) -> Self {
        Self { quirks, layout: CounterLayout::default(), groups: NameTable::default(), slots: NameTable::default() }
    }

    /// Adds the counters of a pool, and the amounts that its devices for the node take of them.
    pub(super) fn add_pool(&mut self, pool: &FoundPool<'a>, devices: &[NodeDevice<'a>]) {
        let sets = pool.counter_slices.iter().flat_map(|slice| &slice.spec.shared_counters);
        let takes_any = || devices.iter().any(|it| !it.device.consumes_counters.is_empty());
        if self.quirks.has(Quirk::CountersPerSlice) {
            self.add_slices(pool, devices);
        } else if takes_any() {
            let by_name = self.quirks.has(Quirk::CountersByPoolName);
            let group = self.group(if by_name { "" } else { pool.driver }, pool.name);
            self.add_source(group, pool, sets);
            for device in devices {
                self.add_device(device);
            }
            let others = pool.other_slices.iter().flat_map(|slice| &slice.spec.devices);
            for device in others.filter(|device| !device.consumes_counters.is_empty()) {
                self.add_taker(&device.name, &device.consumes_counters);
            }
        } else {
            self.layout.takes.resize_with(self.layout.takes.len() + devices.len(), Taking::default);
        }
    }

    /// Adds the slices of a pool, each with a group of counters of its own.
    fn add_slices(&mut self, pool: &FoundPool<'a>, devices: &[NodeDevice<'a>]) {
        let mut devices = devices.iter();
        for slice in &pool.device_slices {
            let group = self.group("", &slice.metadata.name);
            self.add_source(group, pool, slice.spec.shared_counters.iter());
            for device in devices.by_ref().take(slice.spec.devices.len()) {
                self.add_device(device);
            }
        }
    }

    fn add_source(&mut self, group: usize, pool: &FoundPool<'a>, sets: impl Iterator<Item = &'a SliceCounterSet>) {
        let mut totals = Vec::new();
        for set in sets {
            for (counter, amount) in set.counters.iter() {
                totals.push((self.slot(group, &set.name, counter), (&amount.value).into()));
            }
        }
        let (driver, pool) = (pool.driver, pool.name);
        self.layout.sources.push(CounterSource { group, driver, pool, totals, takers: Vec::new() });
    }

    /// Adds a device of the source that was added last.
    fn add_device(&mut self, device: &NodeDevice<'a>) {
        let mut taking = Taking::default();
        if !device.device.consumes_counters.is_empty() {
            let amounts = self.add_taker(&device.device.name, &device.device.consumes_counters);
            taking = Taking { source: self.layout.sources.len() - 1, amounts: amounts.into() };
        }
        self.layout.takes.push(taking);
    }

    fn add_taker(&mut self, name: &'a str, consumption: &'a [DeviceCounterConsumption]) -> Vec<(usize, Amount)> {
        let Some(group) = self.layout.sources.last().map(|source| source.group) else { return Vec::new() };
        let mut amounts = Vec::new();
        for consumption in consumption {
            for (counter, amount) in consumption.counters.iter() {
                amounts.push((self.slot(group, &consumption.counter_set, counter), (&amount.value).into()));
            }
        }
        if let Some(source) = self.layout.sources.last_mut() {
            source.takers.push((name, amounts.clone()));
        }
        amounts
    }

    fn group(&mut self, driver: &'a str, name: &'a str) -> usize {
        let next = self.groups.len();
        *self.groups.entry((driver, name)).or_insert(next)
    }

    fn slot(&mut self, group: usize, set: &'a str, counter: &'a str) -> usize {
        let next = self.slots.len();
        *self.slots.entry((group, set, counter)).or_insert(next)
    }

    pub(super) fn finish(mut self) -> CounterLayout<'a> {
        (self.layout.groups, self.layout.slots) = (self.groups.len(), self.slots.len());
        self.layout
    }
}

/// Remaining amounts of the counters during a search.
#[derive(Debug)]
pub(super) struct CounterUse<'p, 'a> {
    layout: &'p CounterLayout<'a>,
    /// Amounts that others leave; `None` where no source has published the amount.
    available: Vec<Option<Amount>>,
    /// By group, once its amounts are known: true if others hold more than there is.
    overdrawn: Vec<Option<bool>>,
    /// Amounts that this search holds.
    held: Vec<Amount>,
}

impl<'p, 'a> CounterUse<'p, 'a> {
    pub(super) fn new(layout: &'p CounterLayout<'a>) -> Self {
        Self {
            layout,
            available: vec![None; layout.slots],
            overdrawn: vec![None; layout.groups],
            held: vec![Amount::default(); layout.slots],
        }
    }

    /// Takes the counters of the device, if enough is left.
    pub(super) fn take<'s>(
        &mut self,
        device: usize,
        others: impl Fn(&str, &str) -> Option<PoolAllocations<'s>>,
    ) -> bool {
        if !self.has_room(device, others) {
            return false;
        }
        for (slot, amount) in &self.layout.takes[device].amounts {
            self.held[*slot] = self.held[*slot].plus(*amount);
        }
        true
    }

    /// Returns true if enough is left of the counters of the device.
    pub(super) fn has_room<'s>(
        &mut self,
        device: usize,
        others: impl Fn(&str, &str) -> Option<PoolAllocations<'s>>,
    ) -> bool {
        let layout = self.layout;
        let taking = &layout.takes[device];
        let source = &layout.sources[taking.source];
        let overdrawn = match self.overdrawn[source.group] {
            Some(overdrawn) => overdrawn,
            None => self.open(source, others(source.driver, source.pool)),
        };
        !overdrawn
            && taking.amounts.iter().enumerate().all(|(at, (slot, amount))| {
                // A device that names a counter twice takes both amounts.
                let before = taking.amounts[..at].iter().filter(|(other, _)| other == slot);
                let held = before.fold(self.held[*slot], |held, (_, amount)| held.plus(*amount));
                self.available[*slot].is_none_or(|available| amount.fits(held, available))
            })
    }

    /// Gives the counters of the device back.
    pub(super) fn give_back(&mut self, device: usize) {
        for (slot, amount) in &self.layout.takes[device].amounts {
            self.held[*slot] = self.held[*slot].minus(*amount);
        }
    }

    /// Works out the amounts that others leave of the counters of a group. Returns true if they hold more than there
    /// is.
    fn open(&mut self, source: &CounterSource<'_>, others: Option<PoolAllocations<'_>>) -> bool {
        let mut used = vec![Amount::default(); self.layout.slots];
        if let Some(others) = others {
            let takers = source.takers.iter().filter(|(device, _)| others.takes_counters(device));
            for (slot, amount) in takers.flat_map(|(_, amounts)| amounts) {
                used[*slot] = used[*slot].plus(*amount);
            }
        }
        let mut overdrawn = false;
        for (slot, total) in &source.totals {
            overdrawn |= used[*slot] > *total;
            self.available[*slot] = Some(total.minus(used[*slot]));
        }
        self.overdrawn[source.group] = Some(overdrawn);
        overdrawn
    }
}
