//! Domains of nodes, by the values of a label, and numbers of pods in them.

use std::{collections::HashMap, rc::Rc};

use crate::plan::snapshot::NodePlace;

/// Number of the domain of nodes that do not have the label.
const NOWHERE: u32 = u32::MAX;

/// Domains of nodes by the values of one label.
#[derive(Debug)]
pub(super) struct Topology {
    of_nodes: Box<[u32]>,
    /// Number of domains.
    pub(super) domains: usize,
}

impl Topology {
    pub(super) fn new(nodes: &[NodePlace], key: &str) -> Self {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut of_nodes = Vec::with_capacity(nodes.len());
        for place in nodes {
            let next = u32::try_from(numbers.len()).unwrap_or(NOWHERE);
            let value = place.node.metadata.labels.get(key).map(String::as_str);
            of_nodes.push(value.map_or(NOWHERE, |value| *numbers.entry(value).or_insert(next)));
        }
        Self { of_nodes: of_nodes.into(), domains: numbers.len() }
    }

    /// Returns the domain of a node; `None`: the node does not have the label.
    pub(super) fn domain(&self, node: usize) -> Option<u32> {
        Some(self.of_nodes[node]).filter(|domain| *domain != NOWHERE)
    }
}

/// Numbers of pods by domain.
#[derive(Debug)]
pub(super) struct DomainCounts {
    /// The label whose values make the domains.
    pub(super) key: String,
    pub(super) topology: Rc<Topology>,
    pub(super) counts: Vec<u64>,
    /// How often one pod of the set itself counts.
    pub(super) own: u64,
}

impl DomainCounts {
    pub(super) fn new(key: &str, topology: Rc<Topology>) -> Self {
        Self { key: key.to_owned(), counts: vec![0; topology.domains], topology, own: 0 }
    }

    /// Returns the number of pods in the domain of the node; `None`: the node is in no domain.
    pub(super) fn at(&self, node: usize) -> Option<u64> {
        self.topology.domain(node).map(|domain| self.counts[domain as usize])
    }

    pub(super) fn add(&mut self, node: usize, pods: u64) {
        if let Some(domain) = self.topology.domain(node) {
            self.counts[domain as usize] += pods;
        }
    }

    pub(super) fn add_own(&mut self, node: usize) {
        self.add(node, self.own);
    }
}
