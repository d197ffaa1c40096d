//! Keeps the account: takes changes, judges the changed pools, and makes the changed nodes and sums anew. The account
//! has one owner; readers get values.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use hostler_allocator::plan::{ClusterFacts, DeviceJudge, FactChanges, PlanOptions, PoolId, PoolStock};

use super::{
    ClusterStock,
    node::{NodeFacts, NodeSummary},
    sums::ClusterSums,
};
use crate::reports::NodeReports;

/// A node, or no single node.
type Place = Option<Arc<str>>;

/// The account of a cluster's devices.
#[derive(Debug, Default)]
pub(crate) struct StockAccount {
    options: PlanOptions,
    judge: Option<DeviceJudge>,
    pools: HashMap<PoolId, PoolStock>,
    pools_of: HashMap<Place, BTreeSet<PoolId>>,
    stock: ClusterStock,
}

impl StockAccount {
    /// Makes an account that judges pools like the scheduler of a version.
    pub(crate) fn new(options: PlanOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Brings the account up to date.
    pub(crate) fn update(&mut self, facts: &mut ClusterFacts, reports: &mut NodeReports) -> &ClusterStock {
        let changes = facts.take_changes();
        let mut places: BTreeSet<Place> = reports.take_changed().into_iter().map(Some).collect();
        places.extend(changes.nodes().cloned().map(Some));
        if changes.is_all() || self.judge.is_none() {
            places.extend(facts.node_names().map(|name| Some(name.into())));
            places.extend(reports.names().cloned().map(Some));
            self.start_anew(facts);
        }
        self.judge_changed(facts, &changes, &mut places);
        for place in places {
            self.summarize(place, facts, reports);
        }
        self.stock.reports = reports.counts();
        &self.stock
    }

    /// Drops the account: classes select other devices, or names mean other objects, so no part of it can be kept.
    fn start_anew(&mut self, facts: &ClusterFacts) {
        *self = Self {
            options: self.options.clone(),
            judge: Some(DeviceJudge::new(facts, &self.options)),
            stock: ClusterStock { sums: ClusterSums::of_classes(facts.class_names()), ..ClusterStock::default() },
            ..Self::default()
        };
    }

    /// Judges the pools that changed, and adds the places where they have or had devices.
    fn judge_changed(&mut self, facts: &ClusterFacts, changes: &FactChanges, places: &mut BTreeSet<Place>) {
        let is_first = self.pools.is_empty();
        let changed = if is_first { facts.pools().collect() } else { facts.changed_pools(changes) };
        let Some(judge) = &mut self.judge else { return };
        for id in changed {
            let new = judge.stock(facts, id);
            let old = self.pools.remove(&id).unwrap_or_default();
            if old == new {
                self.pools.insert(id, new);
                continue;
            }
            for place in old.groups.iter().map(|group| &group.node) {
                self.pools_of.entry(place.clone()).or_default().remove(&id);
                places.insert(place.clone());
            }
            for place in new.groups.iter().map(|group| &group.node) {
                self.pools_of.entry(place.clone()).or_default().insert(id);
                places.insert(place.clone());
            }
            if !new.groups.is_empty() {
                self.pools.insert(id, new);
            }
        }
    }

    fn summarize(&mut self, place: Place, facts: &ClusterFacts, reports: &NodeReports) {
        let ids = self.pools_of.get(&place);
        let pools = ids.into_iter().flatten().filter_map(|id| Some((*id, self.pools.get(id)?)));
        let of_node = place
            .as_ref()
            .map(|name| NodeFacts { node: facts.node(name).map(|node| &**node), report: reports.get(name) });
        let new = NodeSummary::new(place.as_ref(), of_node.unwrap_or_default(), pools);
        let ClusterStock { nodes, elsewhere, sums, .. } = &mut self.stock;
        let Some(name) = place else {
            sums.replace(Some(elsewhere), &new);
            *elsewhere = Arc::new(new);
            return;
        };
        let old = nodes.get(&name);
        if new.is_there || new.report.is_some() || !new.cells.is_empty() {
            sums.replace(old.map(|old| &**old), &new);
            nodes.insert(name, Arc::new(new));
        } else if let Some(old) = nodes.remove(&name) {
            sums.remove(&old);
            self.pools_of.remove(&Some(name));
        }
    }
}
