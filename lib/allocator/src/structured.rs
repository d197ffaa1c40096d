//! The structured allocator: it takes the claims of one pod and the devices of one node, and finds the allocations.
//!
//! The claims are compiled once for all nodes ([`Allocator::compile`]), the devices of a node are gathered once for
//! all claims ([`NodePools`]), and the allocations of other claims come in between ([`AllocatedState`]). The search
//! puts the three together.

use std::collections::BTreeMap;

use hostler_api::{
    KubernetesVersion,
    resource::{AllocationResult, DeviceClass, ResourceClaim},
};

mod bits;
mod capacity;
mod claims;
mod constraints;
mod counters;
mod fatal;
mod found_pool;
mod names;
mod node;
mod node_state;
mod pools;
mod quirks;
mod reason;
mod results;
mod rules;
mod search;
mod selection;
mod selectors;
mod share_id;
mod shortage;
mod state;
mod version;

pub use claims::CompiledClaims;
pub use fatal::Fatal;
pub use node::NodeFacts;
pub use pools::{GatherError, NodePools, SliceIndex};
pub use quirks::{Quirk, Quirks};
pub use reason::{AlternativeNoFit, Conflict, NoFit, Refusal, Rejection, RequestValues};
pub use rules::apply_taint_rules;
pub use search::Budget;
pub use shortage::{CapacityShortage, Lack};
pub use state::AllocatedState;
pub use version::{Feature, Features, Variant};

use claims::ClaimCompiler;
use node_state::NodeState;
use search::{DeadEnd, Search, SearchVerdict, Stop};
use selection::SelectionUse;
use selectors::Selectors;

/// One of upstream's allocators, with the classes of a cluster.
#[derive(Debug)]
pub struct Allocator {
    features: Features,
    quirks: Quirks,
    classes: BTreeMap<String, DeviceClass>,
    selectors: Selectors,
}

impl Allocator {
    /// Makes an allocator that does what one of upstream's does.
    pub fn new(features: Features, quirks: Quirks, classes: impl IntoIterator<Item = DeviceClass>) -> Self {
        let classes = classes.into_iter().map(|class| (class.metadata.name.clone(), class)).collect();
        Self { features, quirks, classes, selectors: Selectors::new(features, quirks) }
    }

    /// Makes the allocator that a version has at work, with the features that are on there.
    pub fn for_version(version: KubernetesVersion, classes: impl IntoIterator<Item = DeviceClass>) -> Self {
        let features = Features::for_version(version);
        Self::new(features, Quirks::of(version, Variant::at_work(version, features)), classes)
    }

    /// The features that are on.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Gathers the pools of a node from the slices of all nodes.
    ///
    /// # Errors
    /// Fails when a selector of nodes is invalid.
    pub fn gather<'a>(&self, node: NodeFacts<'a>, slices: &SliceIndex<'a>) -> Result<NodePools<'a>, GatherError> {
        NodePools::gather(self.features, self.quirks, node, slices)
    }

    /// Prepares claims to be satisfied on any number of nodes, one after the other. Their errors are reported when
    /// they are to be allocated: which of several errors comes first depends on the devices there.
    pub fn compile<'a>(&'a self, claims: impl IntoIterator<Item = &'a ResourceClaim>) -> CompiledClaims<'a> {
        ClaimCompiler::new(self.features, self.quirks, &self.classes, &self.selectors).add_all(claims)
    }

    /// Allocates devices of a node to all of the claims, or to none.
    ///
    /// # Errors
    /// Returns the reason why the claims are given nothing.
    pub fn allocate(
        &self,
        pools: &NodePools<'_>,
        state: &AllocatedState,
        claims: &CompiledClaims<'_>,
        budget: &mut Budget,
    ) -> Result<Vec<AllocationResult>, Refusal> {
        let state = NodeState::new(state, pools, self.quirks);
        let mut second = budget.again();
        self.search(pools, &state, claims, budget)?
            .map_err(|end| self.start(pools, &state, claims, end.selection, &mut second).explain(end.furthest))
    }

    /// Does the same for callers that need no reason: `None` where the node cannot satisfy the claims.
    ///
    /// # Errors
    /// Fails when no node makes a difference, or the search took too long.
    pub fn find(
        &self,
        pools: &NodePools<'_>,
        state: &AllocatedState,
        claims: &CompiledClaims<'_>,
        budget: &mut Budget,
    ) -> Result<Option<Vec<AllocationResult>>, Refusal> {
        Ok(self.search(pools, &NodeState::new(state, pools, self.quirks), claims, budget)?.ok())
    }

    fn search<'p, 'a>(
        &self,
        pools: &'p NodePools<'a>,
        state: &'p NodeState<'p>,
        claims: &'p CompiledClaims<'a>,
        budget: &'p mut Budget,
    ) -> Result<Result<Vec<AllocationResult>, DeadEnd<'p, 'a>>, Refusal> {
        let selection = SelectionUse::new(self.features, self.quirks, claims, pools);
        let mut search = self.start(pools, state, claims, selection, budget);
        match search.run() {
            Ok(SearchVerdict::Fit) => Ok(Ok(search.results()?)),
            Ok(_) => Ok(Err(search.into_dead_end())),
            Err(Stop::Fatal(fatal)) => Err(fatal.into()),
            Err(Stop::OutOfBudget | Stop::Explained) => Err(Refusal::OutOfBudget { steps: search.steps() }),
        }
    }

    fn start<'p, 'a>(
        &self,
        pools: &'p NodePools<'a>,
        state: &'p NodeState<'p>,
        claims: &'p CompiledClaims<'a>,
        selection: SelectionUse<'p, 'a>,
        budget: &'p mut Budget,
    ) -> Search<'p, 'a> {
        Search::new(self.features, self.quirks, claims, pools, state, selection, budget)
    }
}

#[cfg(test)]
mod tests;
