//! Nodes that have devices for all claims of a pod together. Pure.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use hostler_allocator::structured::{
    Allocator, Budget, CompiledClaims, Fatal, NodeFacts, NodePools, Refusal, SliceIndex,
};
use hostler_api::{
    core::NodeSelector,
    resource::{AllocationResult, DeviceRequestAllocationResult, ResourceClaim},
};

use super::{inventory::Inventory, model::NodeState, terms::ClaimTerms};

/// Steps of one search on one node. An honest claim takes some hundred.
const MOST_STEPS: u64 = 100_000;

/// Limit of one question over all its nodes, in devices that are examined: it bounds time, since the same thread does
/// everything else.
const MOST_EXAMINED: u64 = 5_000_000;
const MOST_TIME: Duration = Duration::from_millis(500);
/// The reason for nodes that were not examined within the limit.
const CUT_SHORT: &str =
    "not decided: the claims take more work than there is for one pod; ask for less, or with fewer constraints";

/// Allocations for the claims on a node, or the claims that cannot be allocated there, and why.
pub(super) type NodeVerdict = Result<Vec<ClaimFit>, Unfit>;

/// A possible allocation of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClaimFit {
    pub(super) result: AllocationResult,
    /// Optional requests that would get nothing.
    pub(super) absent: Vec<String>,
    /// Number of devices of optional requests.
    pub(super) extras: usize,
}

/// Claims that cannot be allocated on a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unfit {
    pub(super) claims: BTreeSet<usize>,
    pub(super) reason: String,
}

/// Number of devices for optional requests, by claim and name.
type RequestCounts<'a> = BTreeMap<(usize, &'a str), i64>;

/// The claims of a pod that are to be allocated on one node.
#[derive(Debug)]
pub(super) struct Question<'a> {
    allocator: &'a Allocator,
    inventory: &'a Inventory,
    terms: &'a [ClaimTerms],
    /// True if a claim must have at least one device.
    needs_devices: bool,
    budget_left: Cell<u64>,
    ends: Instant,
}

impl<'a> Question<'a> {
    pub(super) fn new(
        allocator: &'a Allocator,
        inventory: &'a Inventory,
        terms: &'a [ClaimTerms],
        needs_devices: bool,
    ) -> Self {
        let (budget_left, ends) = (Cell::new(MOST_EXAMINED), Instant::now() + MOST_TIME);
        Self { allocator, inventory, terms, needs_devices, budget_left, ends }
    }

    /// Returns true if not all nodes could be examined.
    pub(super) fn is_cut_short(&self) -> bool {
        self.budget_left.get() == 0 || Instant::now() >= self.ends
    }

    /// Examines each of these nodes. A mistake in a device of one node does not matter where another node will do.
    ///
    /// # Errors
    /// Fails if the answer is the same for every node, or if no node will do and a device has a mistake.
    pub(super) fn ask<'n>(
        &self,
        nodes: impl IntoIterator<Item = &'n str>,
    ) -> Result<BTreeMap<String, NodeVerdict>, Fatal> {
        let whole = Variation::new(self.terms, |_, _| None);
        let compiled = self.allocator.compile(&whole.claims);
        let (mut verdicts, mut first) = (BTreeMap::new(), None);
        for node in nodes {
            let verdict = match self.ask_one(node, &whole, &compiled) {
                Err(fatal) if is_of_node(&fatal) => {
                    let unfit = self.for_all(fatal.to_string());
                    first = first.or(Some(fatal));
                    Err(unfit)
                }
                verdict => verdict?,
            };
            verdicts.insert(node.to_owned(), verdict);
        }
        match first {
            Some(fatal) if verdicts.values().all(Result::is_err) => Err(fatal),
            _ => Ok(verdicts),
        }
    }

    fn ask_one(&self, node: &str, whole: &Variation, compiled: &CompiledClaims<'_>) -> Result<NodeVerdict, Fatal> {
        let Some(NodeState { labels, .. }) = self.inventory.node(node) else {
            return Ok(Err(self.for_all(format!("there is no node {node}"))));
        };
        let is_excluded =
            |terms: &ClaimTerms| terms.suitable_nodes.iter().any(|selector| !selector.matches(node, labels));
        let excluded: BTreeSet<usize> = (0..self.terms.len()).filter(|at| is_excluded(&self.terms[*at])).collect();
        if !excluded.is_empty() {
            let reason = format!("node {node} is none of the class's suitableNodes");
            return Ok(Err(Unfit { claims: excluded, reason }));
        }
        if self.is_cut_short() {
            return Ok(Err(self.for_all(CUT_SHORT.to_owned())));
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
            Ok(results) => return Ok(self.fits(node, whole.expand(results, self.terms.len()))),
            Err(Refusal::Fatal(fatal)) => return Err(fatal),
            Err(refusal) => refusal,
        };
        if self.terms.iter().any(|terms| !terms.optional.is_empty())
            && let Some(results) = self.reduced(pools)?
        {
            return Ok(self.fits(node, results));
        }
        Ok(Err(self.unfit(&unfit)))
    }

    fn allocate(&self, pools: &NodePools<'_>, compiled: &CompiledClaims<'_>) -> Result<Vec<AllocationResult>, Refusal> {
        let state = self.inventory.holdings().state();
        let mut budget = Budget::steps(MOST_STEPS).within(self.budget_left.get(), Some(self.ends));
        let answer = self.allocator.allocate(pools, state, compiled, &mut budget);
        self.budget_left.set(self.budget_left.get().saturating_sub(budget.looks()));
        answer
    }

    /// Returns results with fewer devices for optional requests: one request after the other gets as many as possible.
    fn reduced(&self, pools: &NodePools<'_>) -> Result<Option<Vec<AllocationResult>>, Fatal> {
        let optional =
            self.terms.iter().enumerate().flat_map(|(at, terms)| terms.optional.iter().map(move |it| (at, it)));
        let mut counts: RequestCounts<'_> = optional.map(|(at, name)| ((at, name.as_str()), 0)).collect();
        let Some(mut best) = self.attempt(pools, &counts)? else { return Ok(None) };
        let requests: Vec<(usize, &str)> = counts.keys().copied().collect();
        // A claim that must have a device gets its first one before others get more.
        for request in requests.iter().filter(|_| self.needs_devices) {
            if best[request.0].devices.results.is_empty() {
                best = self.raise(pools, &mut counts, *request, 1)?.unwrap_or(best);
            }
        }
        for request in requests {
            let most = self.terms[request.0].most(request.1);
            best = self.raise(pools, &mut counts, request, most)?.unwrap_or(best);
        }
        Ok(Some(best))
    }

    /// Raises an optional request up to so many devices; returns the results, if it can have more.
    fn raise<'r>(
        &self,
        pools: &NodePools<'_>,
        counts: &mut RequestCounts<'r>,
        request: (usize, &'r str),
        most: i64,
    ) -> Result<Option<Vec<AllocationResult>>, Fatal> {
        let has = counts.get(&request).copied().unwrap_or_default();
        for count in (has + 1..=most).rev() {
            let mut with_more = counts.clone();
            with_more.insert(request, count);
            if let Some(results) = self.attempt(pools, &with_more)? {
                *counts = with_more;
                return Ok(Some(results));
            }
        }
        Ok(None)
    }

    fn attempt(
        &self,
        pools: &NodePools<'_>,
        counts: &RequestCounts<'_>,
    ) -> Result<Option<Vec<AllocationResult>>, Fatal> {
        let variation = Variation::new(self.terms, |at, request| counts.get(&(at, request)).copied());
        match self.allocate(pools, &self.allocator.compile(&variation.claims)) {
            Ok(results) => Ok(Some(variation.expand(results, self.terms.len()))),
            Err(Refusal::Fatal(fatal)) => Err(fatal),
            Err(_) => Ok(None),
        }
    }

    fn fits(&self, node: &str, results: Vec<AllocationResult>) -> NodeVerdict {
        let is_empty = |at: &usize| self.needs_devices && results[*at].devices.results.is_empty();
        let empty: BTreeSet<usize> = (0..results.len()).filter(is_empty).collect();
        if !empty.is_empty() {
            let reason =
                format!("nothing is free on node {node}, and kubelets before 1.28 refuse a claim without devices");
            return Err(Unfit { claims: empty, reason });
        }
        let fit = |(terms, mut result): (&ClaimTerms, AllocationResult)| {
            let has = |request: &&String| result.devices.results.iter().any(|it| it.request == **request);
            let absent = terms.optional.iter().filter(|request| !has(request)).cloned().collect();
            let is_extra = |it: &&DeviceRequestAllocationResult| terms.optional.contains(&it.request);
            let extras = result.devices.results.iter().filter(is_extra).count();
            // Devices that other nodes reach too are bound to this node from now on.
            result.node_selector = Some(NodeSelector::of_node(node));
            ClaimFit { result, absent, extras }
        };
        Ok(self.terms.iter().zip(results).map(fit).collect())
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

/// True if the failure is about devices of one node, so that another node may do.
fn is_of_node(fatal: &Fatal) -> bool {
    matches!(
        fatal,
        Fatal::Evaluate { .. }
            | Fatal::NodeSelector { .. }
            | Fatal::SelectorTerms { .. }
            | Fatal::NoSuchDevice { .. }
            | Fatal::InvalidPool { .. }
            | Fatal::AllOfBadPool { .. }
            | Fatal::AllAgainstConstraint { .. }
            | Fatal::LimitExceeded { .. }
    )
}

/// Marks nodes that have fewer optional devices than another one: the second pass. Returns true if there are any.
pub(super) fn prefer_extras<'n>(
    verdicts: &mut BTreeMap<String, NodeVerdict>,
    candidates: impl IntoIterator<Item = &'n String>,
) -> bool {
    let fits = candidates.into_iter().filter_map(|node| verdicts.get(node)?.as_ref().ok());
    let mut best: Vec<usize> = Vec::new();
    for fit in fits {
        best.resize(fit.len(), 0);
        best.iter_mut().zip(fit).for_each(|(best, fit)| *best = fit.extras.max(*best));
    }
    let mut is_any = false;
    for verdict in verdicts.values_mut() {
        let Ok(fit) = verdict else { continue };
        let lacks = |at: &usize| best.get(*at).is_some_and(|best| fit[*at].extras < *best);
        let claims: BTreeSet<usize> = (0..fit.len()).filter(lacks).collect();
        if !claims.is_empty() {
            *verdict = Err(Unfit { claims, reason: "another node has more of what is optional".to_owned() });
            is_any = true;
        }
    }
    is_any
}

/// Claims with other counts; a claim without any request left is left out.
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

    /// Returns results for all claims; the result of a claim without any request is empty.
    fn expand(&self, results: Vec<AllocationResult>, claims: usize) -> Vec<AllocationResult> {
        let mut all = vec![AllocationResult::default(); claims];
        for (place, result) in self.places.iter().zip(results) {
            all[*place] = result;
        }
        all
    }
}
