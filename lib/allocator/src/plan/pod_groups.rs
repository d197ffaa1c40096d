//! The nodes where the pods of a set may be for the sake of other pods: required pod affinity and anti-affinity, the anti-affinity
//! of pods that stand already, and topology spread, as kube-scheduler's filters decide them.
//!
//! Pods are counted by domain, so a node's answer is a look at a few counts. Where the set's own pods change these
//! counts, pods are placed one by one; where they do not, nodes are filled as for any other set.

mod census;
mod nominated;
mod spread;
mod topology;

use std::collections::BTreeMap;

use hostler_api::core::LabelSelector;

use super::{nodes::Reason, pods::Unsupported, sequences::NumberMap};

pub(super) use census::PodCensus;

use nominated::NominatedCounts;
use spread::SpreadCount;
use topology::DomainCounts;

/// Counts of other pods that decide where the pods of one set may be.
#[derive(Debug, Default)]
pub(super) struct PodGroups {
    /// Pods that all terms of the set's affinity select, by the terms' labels of nodes.
    near: Vec<DomainCounts>,
    /// True if the set's own pods are among those.
    is_near_itself: bool,
    /// True if one of those stands somewhere.
    has_near: bool,
    /// Pods that the set's anti-affinity selects.
    far: Vec<DomainCounts>,
    /// Pods whose anti-affinity selects the set's.
    repelling: Vec<DomainCounts>,
    spread: Vec<SpreadCount>,
    /// Selectors of those constraints.
    selectors: Vec<Option<LabelSelector>>,
    /// Counts of pods that are nominated for a node; they count on that node alone.
    nominated: NumberMap<usize, NominatedCounts>,
    /// Terms that could not be answered, with the namespaces whose labels are not known.
    unknown: BTreeMap<UnknownTerm, Vec<String>>,
}

/// A kind of term that depends on labels of namespaces.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum UnknownTerm {
    Near,
    Far,
    Repelling,
}

impl PodGroups {
    /// Returns true if a pod of the set that is placed changes where the next one may be.
    pub(super) fn is_moving(&self) -> bool {
        let mut counts = self.near.iter().chain(&self.far).chain(&self.repelling);
        counts.any(|it| it.own > 0) || self.spread.iter().any(|it| it.counts.own > 0)
    }

    /// Returns true if the set's first pod may begin anywhere, and the others must follow it.
    pub(super) fn begins_anywhere(&self) -> bool {
        self.is_near_itself && !self.has_near
    }

    /// Returns the number of the node's domain in which the set's pods must be together.
    pub(super) fn home(&self, node: usize) -> Option<u32> {
        self.near.first()?.topology.domain(node)
    }

    /// Returns true if the node may take a pod of the set by now.
    pub(super) fn allows(&self, node: usize) -> bool {
        self.spread().all(|(at, it)| it.allows(node, self.more(node, at)))
            && self.is_near(node)
            && self.nominated.get(&node).is_none_or(NominatedCounts::allows)
            && self.far.iter().chain(&self.repelling).all(|it| it.at(node).is_none_or(|pods| pods == 0))
    }

    /// Returns the reason why the node takes no pod of the set by now.
    pub(super) fn refuses(&self, node: usize) -> Option<Reason> {
        if self.allows(node) {
            return None;
        }
        let spread = self.spread().find_map(|(at, it)| it.refuses(node, self.more(node, at)));
        let nominated = self.nominated.get(&node);
        let key_of = |counts: &[DomainCounts]| {
            let found = counts.iter().find(|it| it.at(node).is_some_and(|pods| pods > 0));
            found.map(|it| it.key.clone())
        };
        spread
            .or_else(|| self.not_near(node))
            .or_else(|| key_of(&self.far).or_else(|| nominated?.far.clone()).map(Reason::TooNear))
            .or_else(|| key_of(&self.repelling).or_else(|| nominated?.repelling.clone()).map(Reason::Repelled))
    }

    fn spread(&self) -> impl Iterator<Item = (usize, &SpreadCount)> {
        self.spread.iter().enumerate()
    }

    /// Number of nominated pods of the node that count for a constraint.
    fn more(&self, node: usize, constraint: usize) -> u64 {
        self.nominated.get(&node).and_then(|it| it.spread.get(constraint)).copied().unwrap_or_default()
    }

    /// Notes that a pod of the set is placed on the node.
    pub(super) fn stand(&mut self, node: usize) {
        for counts in self.near.iter_mut().filter(|it| it.own > 0) {
            self.has_near |= counts.topology.domain(node).is_some();
            counts.add_own(node);
        }
        self.far.iter_mut().chain(&mut self.repelling).for_each(|it| it.add_own(node));
        self.spread.iter_mut().for_each(|it| it.add_own(node));
    }

    /// Lists the terms that could not be answered.
    pub(super) fn unjudged(&self) -> impl Iterator<Item = Unsupported> {
        self.unknown.iter().map(|(term, namespaces)| {
            let terms = match term {
                UnknownTerm::Near => "required podAffinity",
                UnknownTerm::Far => "required podAntiAffinity",
                UnknownTerm::Repelling => "required podAntiAffinity of other pods",
            };
            let namespaces = hostler_api::few(namespaces);
            let what = format!("namespaceSelector of {terms} (the labels of namespaces are not known: {namespaces})");
            // More pods to be near to may be a help.
            Unsupported { what, may_help: *term == UnknownTerm::Near }
        })
    }

    fn is_near(&self, node: usize) -> bool {
        let pods = || self.near.iter().map(|it| it.at(node));
        pods().all(|pods| pods.is_some()) && (self.begins_anywhere() || pods().all(|pods| pods > Some(0)))
    }

    fn not_near(&self, node: usize) -> Option<Reason> {
        if self.is_near(node) {
            return None;
        }
        let absent = self.near.iter().find(|it| it.at(node).is_none());
        let empty = self.near.iter().find(|it| it.at(node) == Some(0));
        absent.map(|it| Reason::NoTopology(it.key.clone())).or_else(|| empty.map(|it| Reason::NotNear(it.key.clone())))
    }
}

#[cfg(test)]
mod tests;
