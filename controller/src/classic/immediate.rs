//! Claims that are allocated without a pod, as soon as they exist.

use hostler_allocator::plan::ObjectKey;

use super::{
    context::{AskedClaims, new_allocation},
    core::ClassicCore,
    event::NoticeReason,
    fit::prefer_extras,
    model::ClaimWish,
    state::PendingAllocation,
};

impl ClassicCore {
    /// Claims that are allocated as soon as they exist, wherever there is something.
    pub(super) fn settle_immediate(&mut self, key: &ObjectKey) {
        let Some(state) = self.claims.get(key) else { return };
        let is_immediate = matches!(state.claim.wish, ClaimWish::Class { is_immediate: true, .. });
        let is_ours = is_immediate && self.catalogue.is_ours(&state.claim);
        if !is_ours || !self.is_waiting(state) || self.is_busy(state) {
            return;
        }
        let terms = match self.catalogue.terms(&state.claim) {
            Ok(terms) => terms,
            Err(mistake) => return self.tell(key, NoticeReason::Failed, mistake.to_string()),
        };
        let waiting = vec![(key.name.clone(), key.clone())];
        let asked = AskedClaims { waiting, terms: vec![terms], ..AskedClaims::default() };
        let nodes: Vec<String> = self.inventory.nodes().map(str::to_owned).collect();
        let Some(mut verdicts) = self.verdicts(&asked, &nodes.iter().map(String::as_str)) else { return };
        prefer_extras(&mut verdicts, &nodes);
        let chosen = nodes.iter().find_map(|node| Some((node, verdicts.get(node)?.as_ref().ok()?.first()?)));
        match chosen {
            None => {
                let reason = verdicts.values().find_map(|verdict| verdict.as_ref().err());
                let reason = reason.map_or("there are no nodes", |unfit| unfit.reason.as_str());
                self.tell_waiting(key, &format!("no node will do, of {} nodes: {reason}", nodes.len()));
            }
            Some((node, fit)) => {
                let new = new_allocation(node, &asked.terms[0], fit, None);
                match self.check_handle(node, fit) {
                    Ok(()) => self.start_one(key, PendingAllocation { new, context: None }),
                    Err(error) => self.was_refused(key, node, &error.to_string()),
                }
            }
        }
    }
}
