//! Plans of sets of pods on nodes, with each question to the allocator asked once.
//!
//! A cluster of thousands of nodes has few kinds of machines, and half a million pods come from few templates. So
//! devices are reduced to what the pods at hand can tell of them, nodes to shapes and states, and the allocator is
//! asked once for each pair of a state and a list of claims; every other pod and node is a look into a table. The
//! answer is that of asking pod by pod, node by node.

mod amounts;
mod answer;
mod boxes;
mod change;
mod engine;
mod facts;
#[cfg(test)]
mod fixtures;
mod left;
mod neighbours;
mod node_use;
mod nodes;
mod occupancy;
mod placing;
mod pod_groups;
mod pod_terms;
mod pods;
mod priority;
mod projection;
mod questions;
mod sequences;
mod shapes;
mod snapshot;
mod stock;
#[cfg(test)]
mod tests;

use occupancy::Occupancy;
use placing::{Known, Placing};
use pod_groups::PodCensus;
use pods::Wish;
use projection::Projection;
use questions::Questions;
use shapes::Shapes;

pub use answer::{NodeRefusal, NodeRefusalKind, Order, PlacedDevice, Placement, Plan, SetPlan, Verdict};
pub use boxes::{BoxSize, CutShort, PlanBoxes};
pub use change::{Change, ChangeError, ParseChangeError};
pub use engine::PlanOptions;
pub use facts::{ClaimFacts, ClusterFacts, FactChanges, QUOTA_OF_CLAIMS, QUOTA_OF_DEVICES, QuotaAmounts, QuotaBook};
pub use left::{ClusterLeft, DeviceCount, NodeLeft};
pub use pod_terms::shared_labels;
pub use pods::{NotJudged, PodSet, not_judged, not_kept};
pub use questions::CUT_SHORT;
pub use snapshot::Snapshot;
pub use stock::{DeviceGroup, DeviceHolder, DeviceJudge, DeviceKind, GivenDevices, PoolId, PoolStock, StockDevice};

impl Snapshot {
    /// Places the pods of `sets` on nodes. More important sets come first, others in the order given; where not all
    /// fit so, two more orders are tried.
    pub fn plan(&self, sets: &[PodSet], options: &PlanOptions) -> Plan {
        self.plan_within(sets, options, &mut PlanBoxes::default())
    }

    /// Does the same with no more work and time than the boxes have; a set that is cut short says so.
    pub fn plan_within(&self, sets: &[PodSet], options: &PlanOptions, boxes: &mut PlanBoxes) -> Plan {
        let (wishes, was_open) = (self.wishes(sets), boxes.is_open());
        let mut known = self.known(&wishes, options, boxes);
        let mut plan = self.attempt(Order::AsGiven, &wishes, &mut known, options);
        for order in [Order::LargestFirst, Order::FewestNodesFirst] {
            if plan.sets.iter().all(|set| set.placed == set.wanted) || sets.len() < 2 {
                break;
            }
            let other = self.attempt(order, &wishes, &mut known, options);
            if other.sets.iter().all(|set| set.placed == set.wanted) {
                plan = other;
            }
        }
        *boxes = std::mem::take(&mut known.questions.boxes);
        if !was_open {
            boxes.close();
        }
        plan
    }

    /// Names the nodes that would take one pod of the set, and the reasons why the others would not.
    pub fn fit(&self, set: &PodSet, options: &PlanOptions, boxes: &mut PlanBoxes) -> SetPlan {
        let set = PodSet { count: 0, ..set.clone() };
        let wishes = self.wishes(std::slice::from_ref(&set));
        let mut known = self.known(&wishes, options, boxes);
        let fit = Placing::new(&mut known, self.usage.clone(), false).explain(&wishes[0]);
        *boxes = std::mem::take(&mut known.questions.boxes);
        fit
    }

    /// The first attempt of [`plan`](Self::plan) alone.
    #[cfg(test)]
    fn attempt_as_given(&self, sets: &[PodSet], options: &PlanOptions) -> Plan {
        let wishes = self.wishes(sets);
        let mut known = self.known(&wishes, options, &mut PlanBoxes::default());
        self.attempt(Order::AsGiven, &wishes, &mut known, options)
    }

    fn wishes(&self, sets: &[PodSet]) -> Vec<Wish> {
        sets.iter().map(|set| Wish::new(set, self.facts())).collect()
    }

    fn known(&self, wishes: &[Wish], options: &PlanOptions, boxes: &mut PlanBoxes) -> Known<'_> {
        let engine = engine::Engine::new(self.facts(), options);
        let mut projection = Projection::new(engine.references(wishes, self.facts()));
        Known {
            cluster: &self.cluster,
            shapes: Shapes::new(&self.cluster, &mut projection),
            occupancy: Occupancy::default(),
            census: PodCensus::default(),
            questions: Questions::new(&self.cluster, engine, projection, std::mem::take(boxes)),
        }
    }

    fn attempt(&self, order: Order, wishes: &[Wish], known: &mut Known<'_>, options: &PlanOptions) -> Plan {
        let turns = self.turns(order, wishes, known);
        let mut placing = Placing::new(known, self.usage.clone(), options.names_devices);
        let mut placed: Vec<(usize, SetPlan)> = turns.into_iter().map(|at| (at, placing.place(&wishes[at]))).collect();
        placed.sort_by_key(|(at, _)| *at);
        let after = Snapshot { cluster: self.cluster.clone(), usage: placing.usage };
        Plan { order, sets: placed.into_iter().map(|(_, set)| set).collect(), after }
    }

    /// The indices of the sets in the order in which they are placed.
    fn turns(&self, order: Order, wishes: &[Wish], known: &mut Known<'_>) -> Vec<usize> {
        let mut turns: Vec<usize> = (0..wishes.len()).collect();
        match order {
            Order::AsGiven => {}
            Order::LargestFirst => turns.sort_by_key(|at| std::cmp::Reverse(wishes[*at].size())),
            Order::FewestNodesFirst => {
                let mut placing = Placing::new(known, self.usage.clone(), false);
                turns.sort_by_cached_key(|at| placing.explain(&wishes[*at]).room.len());
            }
        }
        turns.sort_by_key(|at| std::cmp::Reverse(wishes[*at].priority));
        turns
    }
}
