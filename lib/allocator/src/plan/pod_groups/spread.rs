//! Topology spread constraints with DoNotSchedule.

use super::topology::DomainCounts;
use crate::plan::nodes::Reason;

/// One constraint, and the pods that it counts.
#[derive(Debug)]
pub(super) struct SpreadCount {
    pub(super) counts: DomainCounts,
    /// True if the constraint selects the set's own pods.
    pub(super) selects_own: bool,
    /// By index of the node: true if its pods are counted, and its domain can be the emptiest one.
    eligible: Vec<bool>,
    /// By domain: true if it has such a node.
    is_counted: Vec<bool>,
    max_skew: i64,
    /// True if there are fewer domains than `minDomains`: the emptiest one then counts as empty.
    is_scarce: bool,
    /// Number of pods in the emptiest domain.
    least: u64,
    /// Number of domains with that many.
    emptiest: usize,
}

/// Parts of a constraint.
pub(super) struct SpreadParts {
    pub(super) counts: DomainCounts,
    pub(super) selects_own: bool,
    pub(super) eligible: Vec<bool>,
    pub(super) max_skew: i32,
    pub(super) min_domains: i32,
}

impl SpreadCount {
    /// Makes the constraint, with no pod counted.
    pub(super) fn new(parts: SpreadParts) -> Self {
        let SpreadParts { counts, selects_own, eligible, max_skew, min_domains } = parts;
        let mut is_counted = vec![false; counts.topology.domains];
        for (node, _) in eligible.iter().enumerate().filter(|(_, is_eligible)| **is_eligible) {
            if let Some(domain) = counts.topology.domain(node) {
                is_counted[domain as usize] = true;
            }
        }
        let domains = is_counted.iter().filter(|it| **it).count();
        let is_scarce = i32::try_from(domains).is_ok_and(|domains| domains < min_domains);
        let max_skew = i64::from(max_skew);
        Self { counts, selects_own, eligible, is_counted, max_skew, is_scarce, least: 0, emptiest: domains }
    }

    /// Counts pods that stand on a node.
    pub(super) fn add(&mut self, node: usize, pods: u64) {
        let Some(domain) = self.counts.topology.domain(node).filter(|_| self.eligible[node] && pods > 0) else {
            return;
        };
        let count = &mut self.counts.counts[domain as usize];
        let was_emptiest = *count == self.least;
        *count += pods;
        if was_emptiest {
            self.emptiest -= 1;
            if self.emptiest == 0 {
                self.find_emptiest();
            }
        }
    }

    pub(super) fn add_own(&mut self, node: usize) {
        self.add(node, self.counts.own);
    }

    /// Returns true if the node may take a pod of the set, with so many `more` that are nominated for the node.
    pub(super) fn allows(&self, node: usize, more: u64) -> bool {
        self.skew(node, more).is_some_and(|skew| skew <= self.max_skew)
    }

    pub(super) fn refuses(&self, node: usize, more: u64) -> Option<Reason> {
        let key = self.counts.key.clone();
        match self.skew(node, more) {
            None => Some(Reason::NoSpreadTopology(key)),
            Some(skew) if skew > self.max_skew => Some(Reason::Spread { key, max_skew: self.max_skew }),
            Some(_) => None,
        }
    }

    /// Returns by how much the node's domain would exceed the emptiest one with one more pod.
    fn skew(&self, node: usize, more: u64) -> Option<i64> {
        let pods = self.counts.at(node)? + more + u64::from(self.selects_own);
        let least = match more {
            _ if self.is_scarce => 0,
            0 => self.least,
            more => self.least_with(node, more),
        };
        Some(i64::try_from(pods).unwrap_or(i64::MAX) - i64::try_from(least).unwrap_or(i64::MAX))
    }

    /// Numbers of pods in the domains that can be the emptiest one, with the numbers of these.
    fn counted(&self) -> impl Iterator<Item = (usize, u64)> {
        let counts = self.counts.counts.iter().copied().enumerate();
        counts.zip(&self.is_counted).filter(|(_, is_counted)| **is_counted).map(|(count, _)| count)
    }

    /// Number of pods in the emptiest domain, with so many `more` in that of the node.
    fn least_with(&self, node: usize, more: u64) -> u64 {
        let domain = self.counts.topology.domain(node).map(|domain| domain as usize);
        let pods = self.counted().map(|(at, pods)| if Some(at) == domain { pods + more } else { pods });
        pods.min().unwrap_or_default()
    }

    fn find_emptiest(&mut self) {
        let least = self.counted().map(|(_, pods)| pods).min().unwrap_or_default();
        let emptiest = self.counted().filter(|(_, pods)| *pods == least).count();
        (self.least, self.emptiest) = (least, emptiest);
    }
}
