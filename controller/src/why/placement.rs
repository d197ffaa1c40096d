//! Pods for which the cluster has the devices: the nodes that take them, and the nodes that do not.

use std::collections::BTreeSet;

use hostler_allocator::plan::{NodeRefusal, NodeRefusalKind, SetPlan};
use hostler_api::few;

use super::{
    cause::{CauseKind, PodCause},
    claims::ExplainedClaim,
    pod::ExplainedPod,
};

/// Returns the cause of a pod whose devices are there, from the planner's answer.
pub(super) fn of_nodes(pod: &ExplainedPod, claims: &[ExplainedClaim<'_>], fit: &SetPlan) -> Option<PodCause> {
    if !fit.room.is_empty() {
        return Some(fits(pod, fit));
    }
    if let Some(problem) = &fit.problem {
        return Some(PodCause::new(CauseKind::NodeRefuses, problem.clone()));
    }
    let with_devices: BTreeSet<&str> = nodes_with_devices(claims);
    let is_near = |refusal: &&NodeRefusal| refusal.nodes.iter().any(|node| with_devices.contains(&**node));
    let near = fit.refusals.iter().find(is_near);
    let (refusal, nodes) = match near {
        Some(near) => (near, near.nodes.iter().filter(|node| with_devices.contains(&***node)).collect()),
        None => (fit.refusals.first()?, Vec::new()),
    };
    let nodes: Vec<&String> = if nodes.is_empty() { refusal.nodes.iter().collect() } else { nodes };
    let (reason, count) = (&refusal.reason, nodes.len());
    let named = if count == 1 { format!("node {}", nodes[0]) } else { format!("{count} nodes ({})", few(&nodes)) };
    let reason = match (near.is_some(), refusal.kind) {
        (true, kind) if kind != NodeRefusalKind::Devices => {
            format!("{named} has what its claims ask for, but {reason}")
        }
        _ if claims.is_empty() => format!("no node takes it; {named}: {reason}"),
        _ => format!("no node has what its claims ask for together; {named}: {reason}"),
    };
    let fix = fix(refusal.kind, nodes.first().map_or("NODE", |name| name.as_str()));
    Some(PodCause::new(CauseKind::NodeRefuses, reason).with_fix(fix))
}

/// Returns the nodes that have a device for some request of the claims.
fn nodes_with_devices<'c>(claims: &'c [ExplainedClaim<'_>]) -> BTreeSet<&'c str> {
    let requests = claims.iter().flat_map(|claim| &claim.requests);
    let devices = requests.flat_map(|request| request.devices.iter().filter(|device| request.may_have(device)));
    devices.filter_map(|device| device.node.as_deref()).collect()
}

fn fits(pod: &ExplainedPod, fit: &SetPlan) -> PodCause {
    let (room, status) = (few(&fit.room), &pod.status);
    if let Some(scheduler) = pod.other_scheduler() {
        let reason = format!("room is on {room}, but scheduler {scheduler} places it, and has not yet");
        let fix =
            format!("check that {scheduler} runs and knows claims; its log and the pod's Events tell why it waits");
        return PodCause::new(CauseKind::OtherScheduler, reason).with_fix(fix);
    }
    if !status.nominated_node_name.is_empty() {
        let reason = format!("the scheduler makes room for it on node {}", status.nominated_node_name);
        let fix = "less important pods there are being ended; wait until they are gone";
        return PodCause::new(CauseKind::Fits, reason).with_fix(fix);
    }
    let said = status.condition("PodScheduled").filter(|it| it.status == "False" && !it.message.is_empty());
    let said = said.map(|it| format!("; it last said: {}", it.message.trim())).unwrap_or_default();
    if !fit.unsupported.is_empty() {
        let reason =
            format!("room is on {room}, unless what is not judged here forbids it: {}{said}", few(&fit.unsupported));
        return PodCause::new(CauseKind::Fits, reason);
    }
    let reason = format!("room is on {room}, and the scheduler has not placed it yet{said}");
    let fix = "the scheduler tries again within five minutes at the latest; if not, its log says why";
    PodCause::new(CauseKind::Fits, reason).with_fix(fix)
}

/// Returns the step that removes a node's refusal.
fn fix(kind: NodeRefusalKind, node: &str) -> String {
    match kind {
        NodeRefusalKind::NotReady => format!("kubectl describe node {node} tells since when and why"),
        NodeRefusalKind::Cordoned => format!("kubectl uncordon {node}"),
        NodeRefusalKind::NotWanted => "change which nodes the pod asks for, or label the nodes with devices".to_owned(),
        NodeRefusalKind::Taint => "tolerate the taint in the pod, or take it from the node".to_owned(),
        NodeRefusalKind::Port => "use no host port, or another one".to_owned(),
        NodeRefusalKind::Lacking => "ask for less, or end pods on these nodes".to_owned(),
        NodeRefusalKind::Spread => {
            "make room in the domains with the fewest of its pods, or allow a greater maxSkew".to_owned()
        }
        NodeRefusalKind::OtherPods => {
            "change its podAffinity or podAntiAffinity, or wait until the pods that these are about start or end"
                .to_owned()
        }
        NodeRefusalKind::ClaimElsewhere => {
            "end the pods that use the claim: its devices are then given anew".to_owned()
        }
        NodeRefusalKind::Devices => "ask for less, or wait until holders have ended".to_owned(),
    }
}
