//! The pod that a Reservation moves to another node.

use hostler_api::ObjectKey;

use super::{
    context::{HoldContext, HoldEffect, Timer},
    known::PodReading,
    reservation::Reservation,
    topics::RECONCILE_AGAIN,
};

/// Node of the pod that a Reservation moves.
pub(super) enum ReplacedNode {
    /// The Reservation moves no pod, or that pod is gone or has no node yet.
    None,
    Node(String),
    /// The pod is being read.
    Unknown,
}

/// Returns the node of the pod that the Reservation moves. The pod is read if it is not known.
pub(super) fn replaced_node(cx: &mut HoldContext<'_>, reservation: &Reservation) -> ReplacedNode {
    let object = &reservation.object;
    let Some(replaced) = &object.spec.replaces else { return ReplacedNode::None };
    let key = ObjectKey::new(&replaced.namespace, &replaced.name);
    // A pod whose claims stay as they are can go without any news of it.
    let timer = Timer::Replaced(object.name.clone());
    let age = cx.age(timer.clone());
    let known = cx.cluster.pods.get(&key);
    if age >= RECONCILE_AGAIN && matches!(known, Some(PodReading::Known(_))) {
        cx.stop(timer.clone());
        cx.push(HoldEffect::Start(timer));
        cx.push(HoldEffect::RereadPod(key));
        return ReplacedNode::Unknown;
    }
    cx.read_pod(&key);
    match known {
        Some(PodReading::Known(Some(pod))) if pod.uid == replaced.uid && !pod.node.is_empty() => {
            ReplacedNode::Node(pod.node.clone())
        }
        Some(PodReading::Known(_)) => ReplacedNode::None,
        _ => ReplacedNode::Unknown,
    }
}
