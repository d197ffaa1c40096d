//! Claims that are allocated without a pod, as soon as they exist. Nodes that take no pods now are left out.

use hostler_api::ObjectKey;

use super::{
    context::{ClassicContext, ClassicEffect},
    fit::{ClaimFit, prefer_extras},
    model::NodeAccess,
    search::{AskedClaims, Verdicts, new_allocation, verdicts},
    state::PendingAllocation,
};

/// Chooses devices for a claim as soon as it exists, on any node that has them.
pub(super) fn decide_immediate(cx: &mut ClassicContext<'_>, key: &ObjectKey) {
    let Some(state) = cx.claims.get(key) else { return };
    if !cx.catalogue.is_ours(&state.claim) || !state.is_waiting() || state.is_busy() {
        return;
    }
    let terms = match cx.catalogue.terms(&state.claim) {
        Ok(terms) => terms,
        Err(mistake) => return cx.fail(key, &mistake),
    };
    let waiting = vec![(vec![key.name.clone()], key.clone())];
    let asked = AskedClaims { waiting, terms: vec![terms], ..AskedClaims::default() };
    let nodes: Vec<&str> = cx.inventory.open_nodes().map(|(node, _)| node.as_str()).collect();
    let Some(verdicts) = verdicts(cx, &asked, &nodes.iter().copied()) else { return };
    // A pod may not tolerate a taint: nodes with taints come after all others, whatever devices they have.
    let [open, tainted] = [NodeAccess::Open, NodeAccess::Tainted].map(|access| best_node(cx, &verdicts, access));
    let Some((node, fit)) = open.or(tainted) else {
        let reason = verdicts.values().find_map(|verdict| verdict.as_ref().err());
        let reason = reason.map_or("none takes pods", |unfit| unfit.reason.as_str());
        return cx.wait(key, &format!("no node will do, of {} nodes: {reason}", nodes.len()));
    };
    cx.push(match new_allocation(cx.settings, &node, (&asked.terms[0], &fit), None) {
        Ok(new) => ClassicEffect::Allocate(key.clone(), PendingAllocation { new, negotiation: None }),
        Err(error) => ClassicEffect::Refuse { claim: key.clone(), node, message: error.to_string() },
    });
}

/// Returns the first node with this access that has the most optional devices.
fn best_node(cx: &ClassicContext<'_>, verdicts: &Verdicts, access: NodeAccess) -> Option<(String, ClaimFit)> {
    let nodes: Vec<&String> = cx.inventory.open_nodes().filter(|(_, of)| *of == access).map(|(node, _)| node).collect();
    let of_node = |node: &&String| Some(((*node).clone(), verdicts.get(*node)?.clone()));
    let mut verdicts: Verdicts = nodes.iter().filter_map(of_node).collect();
    prefer_extras(&mut verdicts, nodes);
    verdicts.into_iter().find_map(|(node, verdict)| Some((node, verdict.ok()?.into_iter().next()?)))
}
