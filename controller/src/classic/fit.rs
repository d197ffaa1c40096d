//! Which nodes have what claims of one pod want together. Pure.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::structured::{
    Allocator, Budget, CompiledClaims, Fatal, NodeFacts, NodePools, Refusal, SliceIndex,
};
use hostler_api::{
    core::NodeSelector,
    resource::{AllocationResult, ResourceClaim},
};

use super::{inventory::Inventory, terms::ClaimTerms};

/// Steps of one search on one node. An honest claim takes some hundred.
const MOST_STEPS: u64 = 100_000;

/// What claims would be given on a node, or which of them not, and why.
pub(super) type NodeVerdict = Result<Vec<ClaimFit>, Unfit>;

/// What a claim would be given.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClaimFit {
    pub(super) result: AllocationResult,
    /// Optional requests that would get nothing.
    pub(super) absent: Vec<String>,
    /// How many optional requests would get something.
    pub(super) extras: usize,
}

/// Which claims cannot be had on a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unfit {
    pub(super) claims: BTreeSet<usize>,
    pub(super) reason: String,
}

/// The claims of a pod that are to be allocated on one node.
#[derive(Debug)]
pub(super) struct Question<'a> {
    allocator: &'a Allocator,
    inventory: &'a Inventory,
    terms: &'a [ClaimTerms],
}

impl<'a> Question<'a> {
    pub(super) fn new(allocator: &'a Allocator, inventory: &'a Inventory, terms: &'a [ClaimTerms]) -> Self {
        Self { allocator, inventory, terms }
    }

    /// Asks for each of these nodes.
    ///
    /// # Errors
    /// When no node makes a difference.
    pub(super) fn ask<'n>(
        &self,
        nodes: impl IntoIterator<Item = &'n str>,
    ) -> Result<BTreeMap<String, NodeVerdict>, Fatal> {
        let whole = Variation::new(self.terms, |_, _| None);
        let compiled = self.allocator.compile(&whole.claims);
        let mut verdicts = BTreeMap::new();
        for node in nodes {
            verdicts.insert(node.to_owned(), self.ask_one(node, &whole, &compiled)?);
        }
        Ok(verdicts)
    }

    fn ask_one(&self, node: &str, whole: &Variation, compiled: &CompiledClaims<'_>) -> Result<NodeVerdict, Fatal> {
        let Some(labels) = self.inventory.labels(node) else {
            return Ok(Err(self.for_all(format!("there is no node {node}"))));
        };
        let is_excluded =
            |terms: &ClaimTerms| terms.suitable_nodes.iter().any(|selector| !selector.matches(node, labels));
        let excluded: BTreeSet<usize> = (0..self.terms.len()).filter(|at| is_excluded(&self.terms[*at])).collect();
        if !excluded.is_empty() {
            let reason = format!("node {node} is none of the class's suitableNodes");
            return Ok(Err(Unfit { claims: excluded, reason }));
        }
        let offers = match self.inventory.offers(node) {
            Ok(offers) => offers,
            Err(reason) => return Ok(Err(self.for_all(reason))),
        };
        let index = SliceIndex::new(offers.iter().flat_map(|slices| slices.iter()));
        match self.allocator.gather(NodeFacts { name: node, labels }, &index) {
            Ok(pools) => self.ask_pools(node, &pools, whole, compiled),
            Err(error) => Ok(Err(self.for_all(error.to_string()))),
        }
    }

    fn ask_pools(
        &self,
        node: &str,
        pools: &NodePools<'_>,
        whole: &Variation,
        compiled: &CompiledClaims<'_>,
    ) -> Result<NodeVerdict, Fatal> {
        let unfit = match self.allocate(pools, compiled) {
            Ok(results) => return Ok(Ok(self.fits(node, whole.expand(results, self.terms.len())))),
            Err(Refusal::Fatal(fatal)) => return Err(fatal),
            Err(refusal) => refusal,
        };
        if self.terms.iter().any(|terms| !terms.optional.is_empty())
            && let Some(results) = self.reduced(pools)?
        {
            return Ok(Ok(self.fits(node, results)));
        }
        Ok(Err(self.unfit(&unfit)))
    }

    fn allocate(&self, pools: &NodePools<'_>, compiled: &CompiledClaims<'_>) -> Result<Vec<AllocationResult>, Refusal> {
        let state = self.inventory.holdings().state();
        self.allocator.allocate(pools, state, compiled, &mut Budget::steps(MOST_STEPS))
    }

    /// What is there if optional requests get less: one after the other as much as can be had.
    fn reduced(&self, pools: &NodePools<'_>) -> Result<Option<Vec<AllocationResult>>, Fatal> {
        let optional =
            self.terms.iter().enumerate().flat_map(|(at, terms)| terms.optional.iter().map(move |it| (at, it)));
        let mut counts: BTreeMap<(usize, &str), i64> = optional.map(|(at, name)| ((at, name.as_str()), 0)).collect();
        let Some(mut best) = self.attempt(pools, &counts)? else { return Ok(None) };
        let requests: Vec<(usize, &str)> = counts.keys().copied().collect();
        for (claim, request) in requests {
            for count in (1..=self.terms[claim].most(request)).rev() {
                let with_more = counts.iter().map(|(key, count)| (*key, *count));
                let with_more: BTreeMap<(usize, &str), i64> = with_more.chain([((claim, request), count)]).collect();
                if let Some(results) = self.attempt(pools, &with_more)? {
                    (best, counts) = (results, with_more);
                    break;
                }
            }
        }
        Ok(Some(best))
    }

    fn attempt(
        &self,
        pools: &NodePools<'_>,
        counts: &BTreeMap<(usize, &str), i64>,
    ) -> Result<Option<Vec<AllocationResult>>, Fatal> {
        let variation = Variation::new(self.terms, |at, request| counts.get(&(at, request)).copied());
        match self.allocate(pools, &self.allocator.compile(&variation.claims)) {
            Ok(results) => Ok(Some(variation.expand(results, self.terms.len()))),
            Err(Refusal::Fatal(fatal)) => Err(fatal),
            Err(_) => Ok(None),
        }
    }

    fn fits(&self, node: &str, results: Vec<AllocationResult>) -> Vec<ClaimFit> {
        let fit = |(terms, mut result): (&ClaimTerms, AllocationResult)| {
            let has = |request: &&String| result.devices.results.iter().any(|it| it.request == **request);
            let (got, absent): (Vec<&String>, Vec<&String>) = terms.optional.iter().partition(has);
            let (extras, absent) = (got.len(), absent.into_iter().cloned().collect());
            // What can be used elsewhere too is used here from now on.
            result.node_selector = Some(NodeSelector::of_node(node));
            ClaimFit { result, absent, extras }
        };
        self.terms.iter().zip(results).map(fit).collect()
    }

    fn unfit(&self, refusal: &Refusal) -> Unfit {
        let reason = refusal.to_string();
        let Refusal::NoFit(no_fit) = refusal else { return self.for_all(reason) };
        let is_it = |terms: &ClaimTerms| {
            let metadata = &terms.claim.metadata;
            no_fit.claim == format!("{}/{}", metadata.namespace, metadata.name)
        };
        let claims: BTreeSet<usize> = (0..self.terms.len()).filter(|at| is_it(&self.terms[*at])).collect();
        if claims.is_empty() { self.for_all(reason) } else { Unfit { claims, reason } }
    }

    fn for_all(&self, reason: String) -> Unfit {
        Unfit { claims: (0..self.terms.len()).collect(), reason }
    }
}

/// Nodes with less of what is optional are left out while another one has more: the second pass.
pub(super) fn prefer_extras<'n>(
    verdicts: &mut BTreeMap<String, NodeVerdict>,
    candidates: impl IntoIterator<Item = &'n String>,
) {
    let fits = candidates.into_iter().filter_map(|node| verdicts.get(node)?.as_ref().ok());
    let mut best: Vec<usize> = Vec::new();
    for fit in fits {
        best.resize(fit.len(), 0);
        best.iter_mut().zip(fit).for_each(|(best, fit)| *best = fit.extras.max(*best));
    }
    for verdict in verdicts.values_mut() {
        let Ok(fit) = verdict else { continue };
        let lacks = |at: &usize| best.get(*at).is_some_and(|best| fit[*at].extras < *best);
        let claims: BTreeSet<usize> = (0..fit.len()).filter(lacks).collect();
        if !claims.is_empty() {
            *verdict = Err(Unfit { claims, reason: "another node has more of what is optional".to_owned() });
        }
    }
}

/// Claims with other counts; those that then ask for nothing are left out.
#[derive(Debug)]
struct Variation {
    claims: Vec<ResourceClaim>,
    places: Vec<usize>,
}

impl Variation {
    fn new(terms: &[ClaimTerms], count_of: impl Fn(usize, &str) -> Option<i64>) -> Self {
        let claims =
            terms.iter().enumerate().map(|(at, terms)| (at, terms.with_counts(|request| count_of(at, request))));
        let (places, claims) = claims.filter(|(_, claim)| !claim.spec.devices.requests.is_empty()).unzip();
        Self { claims, places }
    }

    /// Results for all claims, nothing for those that asked for nothing.
    fn expand(&self, results: Vec<AllocationResult>, claims: usize) -> Vec<AllocationResult> {
        let mut all = vec![AllocationResult::default(); claims];
        for (place, result) in self.places.iter().zip(results) {
            all[*place] = result;
        }
        all
    }
}
