//! The structured allocator: claims of one pod, the devices that one node can use, and what of them would be allocated.
//!
//! What does not depend on a node is compiled once ([`Allocator::compile`]), what does not depend on claims is gathered
//! once ([`NodePools`]), and what others hold comes in between ([`AllocatedState`]). The search puts the three together.

use std::collections::BTreeMap;

use hostler_api::resource::{AllocationResult, DeviceClass, ResourceClaim};

mod bits;
mod capacity;
mod claims;
mod constraints;
mod counters;
mod fatal;
mod pools;
mod quirks;
mod reason;
mod results;
mod rules;
mod search;
mod selection;
mod selectors;
mod share_id;
mod state;
mod version;

pub use claims::CompiledClaims;
pub use fatal::Fatal;
pub use pools::{GatherError, NodeFacts, NodePools, SliceIndex};
pub use quirks::{Quirk, Quirks};
pub use reason::{AlternativeNoFit, NoFit, Refusal, Rejection};
pub use rules::apply_taint_rules;
pub use search::Budget;
pub use state::AllocatedState;
pub use version::{Feature, Features, KubernetesVersion, Variant};

use claims::{ClaimCompiler, Failure};
use search::{Search, Stop, Verdict};
use selection::SelectionUse;
use selectors::Selectors;
use state::NodeState;

/// One of upstream's allocators, with the classes of a cluster.
#[derive(Debug)]
pub struct Allocator {
    features: Features,
    quirks: Quirks,
    classes: BTreeMap<String, DeviceClass>,
    selectors: Selectors,
}

impl Allocator {
    /// An allocator that does what one of upstream's does.
    pub fn new(features: Features, quirks: Quirks, classes: impl IntoIterator<Item = DeviceClass>) -> Self {
        let classes = classes.into_iter().map(|class| (class.metadata.name.clone(), class)).collect();
        Self { features, quirks, classes, selectors: Selectors::new(features, quirks) }
    }

    /// The one that a version has at work, with the features that are on there.
    pub fn for_version(version: KubernetesVersion, classes: impl IntoIterator<Item = DeviceClass>) -> Self {
        let features = Features::for_version(version);
        Self::new(features, Quirks::of(version, Variant::at_work(version, features)), classes)
    }

    /// The features that are on.
    pub fn features(&self) -> Features {
        self.features
    }

    /// The pools of a node, from the slices of all nodes.
    ///
    /// # Errors
    /// When a selector of nodes means nothing.
    pub fn gather<'a>(&self, node: NodeFacts<'a>, slices: &SliceIndex<'a>) -> Result<NodePools<'a>, GatherError> {
        NodePools::gather(self.features, self.quirks, node, slices)
    }

    /// Prepares claims to be satisfied on any number of nodes, one after the other.
    ///
    /// # Errors
    /// When they cannot be satisfied anywhere.
    pub fn compile<'a>(
        &'a self,
        claims: impl IntoIterator<Item = &'a ResourceClaim>,
    ) -> Result<CompiledClaims<'a>, Fatal> {
        let mut compiled = self.compile_all(claims);
        match compiled.failure.take() {
            Some(Failure::Request(fatal) | Failure::Constraint(fatal)) => Err(fatal),
            None => Ok(compiled),
        }
    }

    fn compile_all<'a>(&'a self, claims: impl IntoIterator<Item = &'a ResourceClaim>) -> CompiledClaims<'a> {
        ClaimCompiler::new(self.features, self.quirks, &self.classes, &self.selectors).add_all(claims)
    }

    /// What claims are given on one node. Of several reasons why they can be satisfied nowhere, it says that which upstream
    /// finds first; [`compile`](Self::compile) has found its own before there is a node.
    ///
    /// # Errors
    /// Why they are given nothing.
    pub fn allocate_once<'a>(
        &'a self,
        pools: &NodePools<'_>,
        state: &AllocatedState,
        claims: impl IntoIterator<Item = &'a ResourceClaim>,
        budget: &mut Budget,
    ) -> Result<Vec<AllocationResult>, Refusal> {
        self.allocate(pools, state, &self.compile_all(claims), budget)
    }

    /// What the claims are given on a node: all of them something, or none anything.
    ///
    /// # Errors
    /// Why they are given nothing.
    pub fn allocate(
        &self,
        pools: &NodePools<'_>,
        state: &AllocatedState,
        claims: &CompiledClaims<'_>,
        budget: &mut Budget,
    ) -> Result<Vec<AllocationResult>, Refusal> {
        let state = NodeState::new(state, pools, self.quirks);
        let selection = SelectionUse::new(self.features, self.quirks, claims, pools);
        let mut search = Search::new(self.features, self.quirks, claims, pools, &state, selection, budget);
        match search.run() {
            Ok(Verdict::Fit) => Ok(search.results()?),
            Ok(_) => {
                let (furthest, selection) = (search.furthest, search.selection);
                let mut unlimited = Budget::unlimited();
                let again = Search::new(self.features, self.quirks, claims, pools, &state, selection, &mut unlimited);
                Err(Refusal::NoFit(again.explain(furthest)))
            }
            Err(Stop::Fatal(fatal)) => Err(fatal.into()),
            Err(Stop::OutOfBudget | Stop::Explained) => Err(Refusal::OutOfBudget { steps: budget.used() }),
        }
    }
}

#[cfg(test)]
mod tests;
