//! One pool: the slices of it that count, the parts of its devices that claims have, and so the state of each device.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::{
    ExactQuantity,
    hardware::{DeviceCounts, DeviceState, Occupancy},
    resource::DeviceTaintRule,
};

use super::{
    DeviceGroup, DeviceHolder, DeviceJudge, DeviceKind, GivenDevices, PoolStock, StockDevice, amounts,
    counters::CountersLeft,
    kinds::{KindFacts, SharedCapacity, value_of_hold},
};
use crate::plan::{
    Snapshot,
    facts::{ClusterFacts, PackedSlice, PoolGiven, PoolKey, Store},
    sequences::NumberMap,
    snapshot::SliceUse,
};

/// A pool that is being judged.
pub(super) struct JudgedPool<'a> {
    facts: &'a ClusterFacts,
    name: Arc<str>,
    /// Slices of the newest generation, and their runs of devices.
    slices: Vec<JudgedSlice>,
    /// Given devices, by number of their name.
    given: NumberMap<u32, Vec<&'a PoolGiven>>,
    rules: Vec<&'a DeviceTaintRule>,
    /// True if the scheduler allocates devices of it.
    is_usable: bool,
    counters: CountersLeft,
    /// The cluster after a plan, if that is judged.
    planned: Option<&'a Snapshot>,
}

struct JudgedSlice {
    name: Arc<str>,
    slice: Arc<PackedSlice>,
    node: Option<Arc<str>>,
    runs: Vec<(usize, usize, Arc<KindFacts>)>,
}

/// The taken part of a device.
enum TakenPart<'a> {
    /// In the cluster as it is: the claims that have it.
    Given(&'a [&'a PoolGiven]),
    /// In the cluster after a plan, which has no claims to name: the use of the slice, and the place in it.
    Planned(Option<&'a SliceUse>, usize),
}

/// A device, or several that are alike and untouched.
struct JudgedDevice<'a> {
    node: Option<Arc<str>>,
    kind: &'a KindFacts,
    given: &'a [&'a PoolGiven],
    used: Vec<ExactQuantity>,
    state: DeviceState,
    /// Value of the taint that holds it for a Reservation, if one does.
    held_for: Option<&'a str>,
    is_allocatable: bool,
    count: u32,
}

impl<'a> JudgedPool<'a> {
    pub(super) fn new(judge: &mut DeviceJudge, facts: &'a ClusterFacts, key: PoolKey) -> Self {
        let mut pool = Self::untouched(judge, facts, key);
        pool.take_counters();
        pool
    }

    /// Judges the pool as a plan would leave it.
    pub(super) fn after(judge: &mut DeviceJudge, snapshot: &'a Snapshot, key: PoolKey) -> Self {
        let mut pool = Self::untouched(judge, snapshot.facts(), key);
        pool.planned = Some(snapshot);
        pool.take_counters();
        pool
    }

    /// Prepares the pool, with nothing taken of its counters.
    fn untouched(judge: &mut DeviceJudge, facts: &'a ClusterFacts, key: PoolKey) -> Self {
        let known = facts.pools.get(&key);
        let all: Vec<(&Arc<str>, &Arc<PackedSlice>)> = known
            .iter()
            .flat_map(|pool| &pool.slices)
            .filter_map(|name| Some((name, facts.slices.get(name)?)))
            .collect();
        let newest = all.iter().map(|(_, slice)| slice.generation).max().unwrap_or_default();
        let (names, slices): (Vec<&Arc<str>>, Vec<&Arc<PackedSlice>>) =
            all.into_iter().filter(|(_, slice)| slice.generation == newest).unzip();
        let mut given: NumberMap<u32, Vec<&PoolGiven>> = NumberMap::new();
        known.iter().flat_map(|pool| &pool.given).for_each(|it| given.entry(it.device).or_default().push(it));
        let (driver, name) = (facts.text(key.0), facts.text(key.1));
        Self {
            name: judge.texts.get(name),
            is_usable: is_complete(&slices) && is_clear(&slices, facts),
            counters: CountersLeft::of(slices.iter().map(|slice| &***slice), &facts.store),
            slices: names.into_iter().zip(slices).map(|(name, it)| JudgedSlice::new(judge, facts, name, it)).collect(),
            rules: facts.rules.values().map(|rule| &**rule).filter(|rule| may_be_about(rule, driver, name)).collect(),
            given,
            facts,
            planned: None,
        }
    }

    /// Counts the devices of the pool.
    pub(super) fn stock(&self, judge: &mut DeviceJudge) -> PoolStock {
        let mut groups: BTreeMap<(Option<Arc<str>>, Arc<DeviceKind>), DeviceGroup> = BTreeMap::new();
        let mut given = BTreeMap::new();
        self.each(&mut |device, _| {
            let key = (device.node.clone(), device.kind.kind.clone());
            groups.entry(key).or_insert_with_key(|(node, kind)| DeviceGroup::new(node, kind)).add(&device);
            self.add_given(&device, judge, &mut given);
        });
        PoolStock {
            pool: self.name.clone(),
            groups: groups.into_values().collect(),
            given: given.into_values().collect(),
        }
    }

    /// Lists the devices of the pool, one by one.
    pub(super) fn devices(&self, _: &mut DeviceJudge) -> Vec<StockDevice> {
        let mut devices = Vec::new();
        self.each(&mut |device, names| {
            let one = |name: &u32| StockDevice {
                name: self.facts.text(*name).to_owned(),
                pool: self.name.clone(),
                node: device.node.clone(),
                kind: device.kind.kind.clone(),
                state: device.state,
                held_for: device.held_for.map(Into::into),
                holders: device.given.iter().map(|given| self.holder(given, device.kind)).collect(),
                amounts: device.amounts(),
            };
            devices.extend(names.iter().map(one));
        });
        devices
    }

    /// Gives every device to `each`, with its name; devices that are alike and untouched come at once.
    fn each(&self, each: &mut dyn FnMut(JudgedDevice<'_>, &[u32])) {
        for slice in &self.slices {
            let names = self.facts.store.columns.get(slice.slice.names);
            for (start, len, kind) in &slice.runs {
                let names = &names[*start..start + len];
                let is_alike = self.is_untouched(slice) && self.rules.is_empty();
                let size = if is_alike { names.len().max(1) } else { 1 };
                let places = (*start..).step_by(size);
                names.chunks(size).zip(places).for_each(|(names, at)| each(self.judge(slice, kind, names, at), names));
            }
        }
    }

    /// Returns true if a slice is untouched.
    fn is_untouched(&self, slice: &JudgedSlice) -> bool {
        match self.planned {
            None => self.given.is_empty(),
            Some(after) => after.slice_use(&slice.name).is_none(),
        }
    }

    /// Returns the taken part of the device at a place of a slice.
    fn taken<'s>(&'s self, slice: &JudgedSlice, at: usize, name: u32) -> TakenPart<'s> {
        match self.planned {
            None => TakenPart::Given(self.given.get(&name).map_or(&[], |given| given)),
            Some(after) => TakenPart::Planned(after.slice_use(&slice.name), at),
        }
    }

    fn judge<'s>(&'s self, slice: &JudgedSlice, kind: &'s KindFacts, names: &[u32], at: usize) -> JudgedDevice<'s> {
        let taken = self.taken(slice, at, names[0]);
        let given = if let TakenPart::Given(given) = taken { given } else { &[] };
        let capacities = kind.shared.as_deref().unwrap_or_default();
        let used = taken.of(capacities, &self.facts.store);
        let occupancy = match &kind.shared {
            _ if taken.is_nothing() => Occupancy::Empty,
            None => Occupancy::Whole,
            Some(_) if taken.is_whole() => Occupancy::Whole,
            Some(capacities) => amounts::occupancy(&used, capacities),
        };
        let is_blocked = match occupancy {
            Occupancy::Empty => !self.is_usable || !self.counters.is_enough(kind),
            Occupancy::Partly => !self.is_usable,
            Occupancy::Whole | Occupancy::Blocked => false,
        };
        let mut impediments = kind.impediments;
        self.rules_about(kind, names[0]).for_each(|rule| impediments.add_of_rule(&rule.spec.taint));
        let of_rule = || self.rules_about(kind, names[0]).find_map(|rule| value_of_hold(&rule.spec.taint));
        JudgedDevice {
            node: slice.node.clone().or_else(|| kind.node.clone()),
            state: DeviceState::of(if is_blocked { Occupancy::Blocked } else { occupancy }, impediments),
            held_for: kind.held_for.as_deref().or_else(of_rule),
            is_allocatable: impediments.is_allocatable(),
            count: u32::try_from(names.len()).unwrap_or(u32::MAX),
            kind,
            given,
            used,
        }
    }

    /// Rules that keep others away from a device.
    fn rules_about<'s>(&'s self, kind: &'s KindFacts, name: u32) -> impl Iterator<Item = &'s DeviceTaintRule> {
        let name = self.facts.text(name);
        self.rules.iter().copied().filter(move |rule| rule.is_about(&kind.kind.driver, &self.name, name))
    }

    fn take_counters(&mut self) {
        let mut counters = std::mem::take(&mut self.counters);
        for slice in self.slices.iter().filter(|slice| slice.slice.has_counters) {
            let names = self.facts.store.columns.get(slice.slice.names);
            for (start, len, kind) in &slice.runs {
                let all = names[*start..start + len].iter().zip(*start..);
                let taken = all.filter(|(name, at)| !self.taken(slice, *at, **name).is_nothing()).count();
                (0..taken).for_each(|_| counters.take(kind));
            }
        }
        self.counters = counters;
    }

    fn add_given(&self, device: &JudgedDevice<'_>, judge: &mut DeviceJudge, all: &mut GivenByNamespace) {
        let capacities = device.kind.shared.as_deref().unwrap_or_default();
        let mut namespaces: Vec<&str> = Vec::new();
        for given in device.given {
            let namespace = judge.texts.get(&given.claim.namespace);
            let key = (namespace.clone(), device.node.clone(), device.kind.kind.clone());
            let sum = all.entry(key).or_insert_with(|| GivenDevices {
                namespace,
                node: device.node.clone(),
                kind: device.kind.kind.clone(),
                devices: 0,
                amounts: capacities.iter().map(|it| (it.name.clone(), Default::default())).collect(),
            });
            // Two claims of a namespace can have parts of one device.
            sum.devices += u32::from(!namespaces.contains(&&*given.claim.namespace));
            namespaces.push(&given.claim.namespace);
            let parts = amounts::consumed(given, capacities, &self.facts.store);
            for (it, part) in capacities.iter().zip(parts) {
                add_amount(&mut sum.amounts, &it.name, |sum| *sum = sum.plus(amounts::counted(part)));
            }
        }
    }

    fn holder(&self, given: &PoolGiven, kind: &KindFacts) -> DeviceHolder {
        let claim = self.facts.claims.get(&*given.claim);
        let pods = claim.iter().flat_map(|claim| &claim.pods).map(|pod| self.facts.text(*pod).to_owned());
        let capacities = kind.shared.as_deref().unwrap_or_default();
        let parts = amounts::consumed(given, capacities, &self.facts.store);
        let amounts = capacities.iter().zip(parts).map(|(it, part)| (it.name.clone(), amounts::counted(part)));
        DeviceHolder { claim: given.claim.clone(), pods: pods.collect(), amounts: amounts.collect() }
    }
}

type GivenByNamespace = BTreeMap<(Arc<str>, Option<Arc<str>>, Arc<DeviceKind>), GivenDevices>;

impl JudgedSlice {
    fn new(judge: &mut DeviceJudge, facts: &ClusterFacts, name: &Arc<str>, slice: &Arc<PackedSlice>) -> Self {
        Self {
            name: name.clone(),
            node: slice.node.map(|node| judge.texts.get(facts.text(node))),
            runs: judge.runs(slice, facts),
            slice: slice.clone(),
        }
    }
}

impl TakenPart<'_> {
    fn is_nothing(&self) -> bool {
        match self {
            Self::Given(given) => given.is_empty(),
            Self::Planned(taken, at) => !taken.is_some_and(|it| it.is_taken(*at) || it.shares.contains_key(at)),
        }
    }

    /// Returns true if one claim has all of the device.
    fn is_whole(&self) -> bool {
        match self {
            Self::Given(given) => given.iter().any(|given| given.consumed.is_none()),
            Self::Planned(taken, at) => taken.is_some_and(|it| it.is_taken(*at)),
        }
    }

    /// Returns the taken amount of each capacity.
    fn of(&self, capacities: &[SharedCapacity], store: &Store) -> Vec<ExactQuantity> {
        match self {
            Self::Given(given) => amounts::used(given, capacities, store),
            Self::Planned(_, _) if self.is_whole() => capacities.iter().map(|it| it.all).collect(),
            Self::Planned(taken, at) => {
                let share = taken.and_then(|it| it.shares.get(at));
                let part = |it: &SharedCapacity| share.and_then(|share| share.consumed.get(&*it.name)).copied();
                capacities.iter().map(|it| part(it).unwrap_or(ExactQuantity::ZERO)).collect()
            }
        }
    }
}

impl JudgedDevice<'_> {
    fn amounts(&self) -> Vec<(Arc<str>, hostler_api::hardware::AmountCounts)> {
        let capacities = self.kind.shared.as_deref().unwrap_or_default();
        amounts::counts(&self.used, capacities, self.state, self.is_allocatable)
    }
}

impl DeviceGroup {
    fn new(node: &Option<Arc<str>>, kind: &Arc<DeviceKind>) -> Self {
        let none = DeviceCounts::default();
        Self {
            node: node.clone(),
            kind: kind.clone(),
            counts: none,
            given: none,
            held_for: Vec::new(),
            amounts: Vec::new(),
        }
    }

    fn add(&mut self, device: &JudgedDevice<'_>) {
        for _ in 0..device.count {
            self.counts.add(device.state, device.is_allocatable);
            for (name, more) in device.amounts() {
                add_amount(&mut self.amounts, &name, |sum| sum.add(&more));
            }
        }
        if device.state == DeviceState::Held {
            let value: Arc<str> = device.held_for.unwrap_or_default().into();
            add_amount(&mut self.held_for, &value, |sum| *sum += device.count);
        }
        if !device.given.is_empty() {
            self.given.add(device.state, device.is_allocatable);
        }
    }
}

/// Capacities are few, and come in the same order.
fn add_amount<T: Default>(sums: &mut Vec<(Arc<str>, T)>, name: &Arc<str>, add: impl FnOnce(&mut T)) {
    let at = sums.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
        sums.push((name.clone(), T::default()));
        sums.len() - 1
    });
    add(&mut sums[at].1);
}

fn is_complete(slices: &[&Arc<PackedSlice>]) -> bool {
    slices.iter().all(|slice| usize::try_from(slice.slice_count) == Ok(slices.len()))
}

/// Returns true if each name of a device is there once.
fn is_clear(slices: &[&Arc<PackedSlice>], facts: &ClusterFacts) -> bool {
    let mut names: Vec<u32> = slices.iter().flat_map(|slice| facts.store.columns.get(slice.names)).copied().collect();
    names.sort_unstable();
    names.windows(2).all(|pair| pair[0] != pair[1])
}

/// Returns true if a rule can be about devices of the pool, and prevents their allocation.
pub(super) fn may_be_about(rule: &DeviceTaintRule, driver: &str, pool: &str) -> bool {
    let allows = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
    let selector = rule.spec.device_selector.as_ref();
    rule.is_understood()
        && rule.spec.taint.prevents_allocation()
        && selector.is_none_or(|it| allows(&it.driver, driver) && allows(&it.pool, pool))
}
