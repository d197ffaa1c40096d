//! Placing pods that change where the next one of their set may be: one by one, each on the first node that takes it by
//! then.

use super::{Candidate, Placement, Placing, Stage};
use crate::plan::{nodes, sequences::NumberMap};

/// Nodes that may still take a pod of the set.
struct OpenNodes {
    /// In the order in which they are filled.
    nodes: Vec<usize>,
    /// Nodes that refused for lack of devices, with the number of the last change of pools that several nodes see.
    refused: NumberMap<usize, u64>,
}

impl Placing<'_, '_> {
    /// Places pods one by one, until there are `most` of the set.
    pub(super) fn fill_in_turn(&mut self, most: u32, stage: &Stage, candidate: &mut Candidate<'_>) {
        let cluster = self.known.cluster;
        let is_possible = |node: &usize| {
            candidate.never[*node].is_none()
                && candidate.home.is_none_or(|home| candidate.groups.home(*node) == Some(home))
                && stage.allows(&cluster.nodes[*node]).is_none()
        };
        let nodes = candidate.order.iter().copied().filter(is_possible).collect();
        let mut open = OpenNodes { nodes, refused: NumberMap::new() };
        while candidate.plan.placed < most && candidate.may_go_on() {
            if self.known.questions.boxes.is_empty() {
                candidate.cut_short();
                break;
            }
            let Some((node, placement)) = self.place_one(&mut open, stage, candidate) else { break };
            self.usage.node_mut(node).add(&candidate.wish.holds, 1);
            candidate.groups.stand(node);
            candidate.stand(node, placement);
        }
    }

    /// Places one pod on the first node that takes it.
    fn place_one(
        &mut self,
        open: &mut OpenNodes,
        stage: &Stage,
        candidate: &mut Candidate<'_>,
    ) -> Option<(usize, Placement)> {
        let (mut full, mut found, mut looks) = (false, None, 0);
        for node in &open.nodes {
            looks += 1;
            if !candidate.groups.allows(*node) {
                continue;
            }
            let place = &self.known.cluster.nodes[*node];
            if nodes::not_now(place, &candidate.taken(&self.usage, *node), candidate.wish).is_some() {
                full = true;
                continue;
            }
            let mut placement = Placement { node: place.name().to_owned(), pods: 0, devices: Vec::new() };
            if self.takes(*node, &mut open.refused, stage, candidate, &mut placement) {
                found = Some((*node, placement));
                break;
            }
            if !candidate.may_go_on() {
                return None;
            }
        }
        self.known.questions.boxes.spend(looks);
        // A node never has more room for the set than before.
        if full {
            let (cluster, usage) = (self.known.cluster, &self.usage);
            let taken = |node: usize| candidate.taken(usage, node);
            open.nodes.retain(|node| nodes::not_now(&cluster.nodes[*node], &taken(*node), candidate.wish).is_none());
        }
        found
    }

    /// Adds a pod to the node, if its devices allow. A node that refused is asked again only if something was taken
    /// of pools that several nodes see.
    fn takes(
        &mut self,
        node: usize,
        refused: &mut NumberMap<usize, u64>,
        stage: &Stage,
        candidate: &mut Candidate<'_>,
        placement: &mut Placement,
    ) -> bool {
        let Some(claims) = stage.claims else {
            placement.pods = 1;
            return true;
        };
        let changes = self.known.occupancy.changes();
        if refused.get(&node) == Some(&changes) {
            return false;
        }
        let takes = self.add_pod(node, claims, stage, candidate, placement);
        if !takes {
            refused.insert(node, changes);
        }
        takes
    }
}

impl Candidate<'_> {
    /// Notes a pod that was placed; pods of one node are told together.
    fn stand(&mut self, node: usize, placement: Placement) {
        self.plan.placed += placement.pods;
        let at = *self.places.entry(node).or_insert(self.plan.placements.len());
        match self.plan.placements.get_mut(at) {
            Some(there) => {
                there.pods += placement.pods;
                there.devices.extend(placement.devices);
                self.nodes[at].1 += placement.pods;
            }
            None => {
                self.nodes.push((node, placement.pods));
                self.plan.placements.push(placement);
            }
        }
    }
}
