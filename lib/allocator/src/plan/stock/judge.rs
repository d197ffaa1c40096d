//! Judges devices, and remembers the result for devices that are alike.

use std::{collections::HashMap, sync::Arc};

use super::{
    DeviceKind, PoolId, PoolStock, StockDevice,
    kinds::{KindFacts, SharedTexts, add_references},
    pool::JudgedPool,
};
use crate::plan::{
    PlanOptions, Snapshot,
    engine::{Engine, Way},
    facts::{ClusterFacts, PackedSlice, PoolKey},
    projection::Projection,
};

/// Greatest number of remembered kinds: drivers that write changing values into their devices make new kinds for ever.
const MOST_KINDS: usize = 100_000;

/// Judges devices, by the classes of a cluster.
#[derive(Debug)]
pub struct DeviceJudge {
    options: PlanOptions,
    classes: Vec<(Arc<str>, Way)>,
    projection: Projection,
    /// By number of the kind of device.
    kinds: Vec<Option<Arc<KindFacts>>>,
    /// Kinds that reports do not tell apart, each once.
    named: HashMap<Arc<DeviceKind>, Arc<DeviceKind>>,
    pub(super) texts: SharedTexts,
}

impl DeviceJudge {
    /// Makes a judge for the known classes. Classes whose selectors do not compile select nothing.
    pub fn new(facts: &ClusterFacts, options: &PlanOptions) -> Self {
        let engine = Engine::new(facts, options);
        let mut references = engine.references_of(facts.classes.values().flat_map(|class| &class.spec.selectors));
        add_references(&mut references);
        let class = |(name, class): (&String, &Arc<_>)| {
            let class: &hostler_api::resource::DeviceClass = class;
            Some((Arc::from(name.as_str()), engine.way(&class.spec.selectors)?))
        };
        Self {
            options: options.clone(),
            classes: facts.classes.iter().filter_map(class).collect(),
            projection: Projection::new(references),
            kinds: Vec::new(),
            named: HashMap::new(),
            texts: SharedTexts::default(),
        }
    }

    /// Counts the devices of a pool.
    pub fn stock(&mut self, facts: &ClusterFacts, pool: PoolId) -> PoolStock {
        JudgedPool::new(self, facts, pool.0).stock(self)
    }

    /// Counts the devices of a pool as they would be after a plan.
    pub(in crate::plan) fn stock_after(&mut self, snapshot: &Snapshot, pool: PoolKey) -> PoolStock {
        JudgedPool::after(self, snapshot, pool).stock(self)
    }

    /// Names of the classes whose selectors compile.
    pub(in crate::plan) fn class_names(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().map(|(name, _)| &**name)
    }

    /// Lists the devices of a pool, one by one.
    pub fn devices(&mut self, facts: &ClusterFacts, pool: PoolId) -> Vec<StockDevice> {
        JudgedPool::new(self, facts, pool.0).devices(self)
    }

    /// Finds the pool with this name.
    pub fn pool(facts: &ClusterFacts, driver: &str, pool: &str) -> Option<PoolId> {
        let key: PoolKey = facts.pool_key(driver, pool)?;
        facts.pools.get(&key).map(|_| PoolId(key))
    }

    /// Returns runs of devices of a slice that are alike: their start, their number and their kind.
    pub(super) fn runs(
        &mut self,
        slice: &Arc<PackedSlice>,
        facts: &ClusterFacts,
    ) -> Vec<(usize, usize, Arc<KindFacts>)> {
        if self.projection.len() > MOST_KINDS {
            *self = Self::new(facts, &self.options);
        }
        let kind = self.projection.kind(slice, &facts.store);
        let runs = self.projection.slice(kind).runs.clone();
        runs.iter().map(|run| (run.start, run.len, self.kind(run.kind, facts))).collect()
    }

    fn kind(&mut self, number: u32, facts: &ClusterFacts) -> Arc<KindFacts> {
        let at = number as usize;
        if let Some(Some(known)) = self.kinds.get(at) {
            return known.clone();
        }
        let (driver, device) = self.projection.device(number, &facts.store);
        let mut made = KindFacts::new(facts.text(driver), &device, &self.classes, &mut self.texts);
        made.kind = self.named.entry(made.kind.clone()).or_insert(made.kind).clone();
        let made = Arc::new(made);
        if self.kinds.len() <= at {
            self.kinds.resize(at + 1, None);
        }
        self.kinds[at] = Some(made.clone());
        made
    }
}
