//! What nobody holds: devices by driver, and what nodes have beside them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use hostler_api::resource::DeviceClass;
use serde::Serialize;

use super::{
    PlanOptions, Snapshot,
    amounts::shown,
    engine::{Engine, Way},
    projection::{Projection, Run},
    snapshot::{NodePlace, Pool, SliceUse},
};

/// What nobody holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterLeft {
    /// Devices, by driver.
    pub devices: BTreeMap<String, DeviceCount>,
    /// Nodes, by name.
    pub nodes: Vec<NodeLeft>,
}

/// So many devices.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct DeviceCount {
    /// There are.
    pub there: usize,
    /// Of these, nobody holds anything of so many. That each can be had together with all others is not said: parts of one
    /// card exclude each other.
    pub free: usize,
}

/// What nobody holds of a node.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct NodeLeft {
    /// Its name.
    pub node: String,
    /// Amounts by resource, as people write them.
    pub resources: BTreeMap<String, String>,
    /// Its own devices, by driver.
    pub devices: BTreeMap<String, DeviceCount>,
}

impl Snapshot {
    /// What nobody holds.
    pub fn left(&self) -> ClusterLeft {
        let facts = self.facts();
        let mut left = ClusterLeft::default();
        let mut of_nodes: BTreeMap<u32, BTreeMap<String, DeviceCount>> = BTreeMap::new();
        for pool in self.cluster.pools.iter() {
            let (driver, count) = (facts.text(pool.driver), self.count(pool));
            left.devices.entry(driver.to_owned()).or_default().add(count);
            if let Some(node) = pool.node {
                of_nodes.entry(node).or_default().entry(driver.to_owned()).or_default().add(count);
            }
        }
        let mut by_name: BTreeMap<&str, _> =
            of_nodes.into_iter().map(|(node, devices)| (facts.text(node), devices)).collect();
        left.nodes = (self.cluster.nodes.iter().enumerate())
            .map(|(at, place)| NodeLeft {
                node: place.name().to_owned(),
                resources: self.resources(at, place),
                devices: by_name.remove(place.name()).unwrap_or_default(),
            })
            .collect();
        left
    }

    /// Devices by class, as far as the selectors of classes have an answer.
    pub fn left_by_class(&self, options: &PlanOptions) -> BTreeMap<String, DeviceCount> {
        let mut counter = ClassCounter::new(self, options);
        for slice in self.cluster.pools.iter().flat_map(|pool| &pool.slices) {
            counter.add(*slice);
        }
        counter.classes.into_iter().map(|class| (class.name, class.count)).collect()
    }

    fn count(&self, pool: &Pool) -> DeviceCount {
        let mut count = DeviceCount::default();
        for slice in &pool.slices {
            let there = self.facts().store.columns.get(self.cluster.slices[*slice].1.names).len();
            let held = self.usage.slice(*slice).map_or(0, |held| {
                let shared = held.shares.keys().filter(|at| !held.is_taken(**at)).count();
                held.taken.iter().filter(|taken| **taken).count() + shared
            });
            count.add(DeviceCount { there, free: there.saturating_sub(held) });
        }
        count
    }

    fn resources(&self, at: usize, place: &NodePlace) -> BTreeMap<String, String> {
        let used = &self.usage.node(at).amounts;
        let left = place.allocatable.iter().map(|(name, amount)| (name, amount.saturating_sub(used.get(name))));
        left.map(|(name, amount)| (name.to_owned(), shown(name, amount))).collect()
    }
}

impl DeviceCount {
    fn add(&mut self, more: Self) {
        self.there += more.there;
        self.free += more.free;
    }
}

/// Counts devices by class; each kind of device is judged once.
struct ClassCounter<'a> {
    snapshot: &'a Snapshot,
    projection: Projection,
    classes: Vec<CountedClass>,
}

struct CountedClass {
    name: String,
    way: Way,
    /// By kind of slice: which of its runs are of the class.
    members: HashMap<u32, Vec<bool>>,
    count: DeviceCount,
}

impl<'a> ClassCounter<'a> {
    fn new(snapshot: &'a Snapshot, options: &PlanOptions) -> Self {
        let facts = snapshot.facts();
        let engine = Engine::new(facts, options);
        let all = facts.classes.values().flat_map(|class| &class.spec.selectors);
        let projection = Projection::new(engine.references_of(all));
        let class = |(name, class): (&String, &Arc<DeviceClass>)| {
            let way = engine.way(&class.spec.selectors)?;
            Some(CountedClass { name: name.clone(), way, members: HashMap::new(), count: DeviceCount::default() })
        };
        Self { snapshot, projection, classes: facts.classes.iter().filter_map(class).collect() }
    }

    fn add(&mut self, slice: usize) {
        let Snapshot { cluster, usage } = self.snapshot;
        let (packed, store) = (&cluster.slices[slice].1, &cluster.facts.store);
        let kind = self.projection.kind(packed, store);
        let (runs, driver) = (&self.projection.slice(kind).runs, store.texts.get(packed.driver));
        for class in &mut self.classes {
            let CountedClass { way, members, count, .. } = class;
            let is_member = |run: &Run| way.selects(driver, &packed.device(run.start, store));
            let members = members.entry(kind).or_insert_with(|| runs.iter().map(is_member).collect());
            let of_class = runs.iter().zip(members).filter(|(_, is_member)| **is_member);
            of_class.for_each(|(run, _)| count.add(count_of(*run, usage.slice(slice))));
        }
    }
}

fn count_of(run: Run, held: Option<&SliceUse>) -> DeviceCount {
    let is_held = |at: &usize| held.is_some_and(|held| held.is_taken(*at) || held.shares.contains_key(at));
    DeviceCount { there: run.len, free: run.len - (run.start..run.start + run.len).filter(is_held).count() }
}
