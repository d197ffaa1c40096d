//! Claims that are allocated without a pod, as soon as they exist. Nodes that take no pods now are left out.

use hostler_api::ObjectKey;

use super::{
    context::{AskedClaims, Verdicts, new_allocation},
    core::ClassicCore,
    event::NoticeReason,
    fit::{ClaimFit, prefer_extras},
    model::NodeAccess,
    state::PendingAllocation,
};

impl ClassicCore {
    /// Allocates a claim as soon as it exists, on any node that has the devices.
    pub(super) fn settle_immediate(&mut self, key: &ObjectKey) {
        let Some(state) = self.claims.get(key) else { return };
        if !self.catalogue.is_ours(&state.claim) || !self.is_waiting(state) || self.is_busy(state) {
            return;
        }
        let terms = match self.catalogue.terms(&state.claim) {
            Ok(terms) => terms,
            Err(mistake) => return self.tell(key, NoticeReason::Failed, mistake.to_string()),
        };
        let waiting = vec![(vec![key.name.clone()], key.clone())];
        let asked = AskedClaims { waiting, terms: vec![terms], ..AskedClaims::default() };
        let nodes: Vec<String> = self.inventory.open_nodes().map(|(node, _)| node.clone()).collect();
        let Some(verdicts) = self.verdicts(&asked, &nodes.iter().map(String::as_str)) else { return };
        // A pod may not tolerate a taint: nodes with taints come after all others, whatever devices they have.
        let [open, tainted] = [NodeAccess::Open, NodeAccess::Tainted].map(|access| self.best_node(&verdicts, access));
        match open.or(tainted) {
            None => {
                let reason = verdicts.values().find_map(|verdict| verdict.as_ref().err());
                let reason = reason.map_or("none takes pods", |unfit| unfit.reason.as_str());
                self.tell_waiting(key, &format!("no node will do, of {} nodes: {reason}", nodes.len()));
            }
            Some((node, fit)) => {
                let new = new_allocation(&node, &asked.terms[0], &fit, None);
                match self.check_handle(&node, &fit) {
                    Ok(()) => self.start_one(key, PendingAllocation { new, context: None }),
                    Err(error) => self.was_refused(key, &node, &error.to_string()),
                }
            }
        }
    }

    /// Returns the first node with this access that has the most optional devices.
    fn best_node(&self, verdicts: &Verdicts, access: NodeAccess) -> Option<(String, ClaimFit)> {
        let nodes: Vec<&String> =
            self.inventory.open_nodes().filter(|(_, of)| *of == access).map(|(node, _)| node).collect();
        let of_node = |node: &&String| Some(((*node).clone(), verdicts.get(*node)?.clone()));
        let mut verdicts: Verdicts = nodes.iter().filter_map(of_node).collect();
        prefer_extras(&mut verdicts, nodes);
        verdicts.into_iter().find_map(|(node, verdict)| Some((node, verdict.ok()?.into_iter().next()?)))
    }
}
