//! The booked room of a request, as sets of pods that the planner places before it plans other requests. Pure.

use hostler_allocator::plan::PodSet;
use hostler_api::core::PodSpec;

use super::{booking::kept_on, consume::pod_sets, context::ProvisionContext, membership::members};
use crate::requests::SeenRequest;

/// Returns the pods that are still to come. Pods with kept devices are placed on the nodes of these devices, and
/// request no device: no other pod can get a kept device anyway.
pub(super) fn booked(request: &SeenRequest, cx: &ProvisionContext<'_>) -> Option<Vec<PodSet>> {
    let sets = pod_sets(request, cx.objects).ok()?;
    let scheduled = cx.objects.consumers_of(&request.key).filter(|pod| pod.is_scheduled);
    let there: Vec<usize> = members(request, &sets, scheduled, cx).iter().map(Vec::len).collect();
    let mut booked = Vec::new();
    for (at, mut set) in sets.into_iter().enumerate() {
        set.count = set.count.saturating_sub(u32::try_from(there[at]).unwrap_or(u32::MAX));
        for (node, pods) in kept_on(request, Some(at), cx.reservations) {
            let count = pods.min(set.count);
            set.count -= count;
            booked.push(PodSet { count, spec: without_claims(&set.spec, node), ..set.clone() });
        }
        booked.push(set);
    }
    booked.retain(|set| set.count > 0);
    Some(booked)
}

/// Returns a pod without claims on this node; an empty name, of a device on no node, leaves the node open.
fn without_claims(spec: &PodSpec, node: String) -> PodSpec {
    let node_name = Some(node).filter(|node| !node.is_empty()).or_else(|| spec.node_name.clone());
    PodSpec { node_name, resource_claims: Vec::new(), ..spec.clone() }
}
