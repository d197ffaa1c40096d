//! The decision whether a gated pod loses its gate. Pure: everything was read anew, so a controller that takes over goes on with the
//! same write.

use std::time::Duration;

use hostler_api::{
    core::{NodeAffinity, NodeSelector, NodeSelectorTerm, PreferredSchedulingTerm},
    reservation::RESERVATION_GATE,
};
use hostler_cluster::since_1970;

use super::{
    context::{GateContext, GateStep, GateWrite, GrantedPlace},
    waits::PodWait,
};
use crate::{places::PlacePod, unscheduled_pods::PodGates};

/// Time for which a pod waits for a request that is not there: both may be made at once, and one that was deleted does
/// not come back.
const REQUEST_MISSING: Duration = Duration::from_secs(60);
/// Weight of the preference for the node of the place: the largest that there is.
const WEIGHT: i32 = 100;

/// Decides the next step.
pub(super) fn decide(cx: &GateContext) -> GateStep {
    let is_waiting = |pod: &&PlacePod| {
        PodGates::of(&pod.spec.scheduling_gates).has_own() && pod.node().is_none() && !pod.is_ending()
    };
    let Some(pod) = cx.pod.as_ref().filter(is_waiting) else { return GateStep::Rest };
    if let Some(place) = &cx.place {
        // Schedulers count the nominated pod, so no other one comes between until its gate is gone.
        let is_nominated = !place.node.is_empty() && pod.status.nominated_node_name == place.node;
        return match place.is_free && is_nominated {
            true => release(pod, Some(place)),
            false => GateStep::Hold(PodWait::Place(place.reservation.clone()), None),
        };
    }
    match &cx.wait {
        PodWait::Nothing => release(pod, None),
        PodWait::Request(_) => {
            let age = pod.created().and_then(since_1970).map(|created| cx.now.saturating_sub(created));
            let left = age.and_then(|age| REQUEST_MISSING.checked_sub(age)).filter(|left| !left.is_zero());
            left.map_or_else(|| release(pod, None), |left| GateStep::Hold(cx.wait.clone(), Some(left)))
        }
        PodWait::Place(_) | PodWait::Decision(_) => GateStep::Hold(cx.wait.clone(), None),
    }
}

/// Removes the gate; a pod that is given a place is led to its node.
fn release(pod: &PlacePod, place: Option<&GrantedPlace>) -> GateStep {
    let others = pod.spec.scheduling_gates.iter().filter(|gate| gate.name != RESERVATION_GATE);
    let before = pod.spec.affinity.as_ref().and_then(|it| it.node_affinity.clone()).unwrap_or_default();
    GateStep::Write(Box::new(GateWrite {
        pod: pod.key(),
        version: pod.version(),
        gates: others.map(|gate| gate.name.clone()).collect(),
        affinity: place.map(|place| led_to(before, place)),
    }))
}

/// Returns the affinity of a pod that is led to the node of its place.
fn led_to(mut affinity: NodeAffinity, place: &GrantedPlace) -> NodeAffinity {
    let node = NodeSelector::of_node(&place.node);
    if place.is_only {
        affinity.required = Some(narrowed(affinity.required, node));
    } else {
        let preference = node.node_selector_terms.into_iter().next().unwrap_or_default();
        affinity.preferred.push(PreferredSchedulingTerm { weight: WEIGHT, preference });
    }
    affinity
}

/// Narrows a selector as the API server lets it for gated pods: each term gets further requirements, and no term comes
/// or goes. A term without requirements matches no node, and stays so.
fn narrowed(required: Option<NodeSelector>, node: NodeSelector) -> NodeSelector {
    let Some(mut required) = required.filter(|it| !it.node_selector_terms.is_empty()) else { return node };
    let further: Vec<_> = node.node_selector_terms.into_iter().flat_map(|term| term.match_fields).collect();
    let is_empty = |term: &NodeSelectorTerm| term.match_fields.is_empty() && term.match_expressions.is_empty();
    for term in required.node_selector_terms.iter_mut().filter(|term| !is_empty(term)) {
        let new: Vec<_> = further.iter().filter(|it| !term.match_fields.contains(it)).cloned().collect();
        term.match_fields.extend(new);
    }
    required
}
