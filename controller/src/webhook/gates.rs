//! The choice of pods that get the gate `hostler.dev/reservation` when they are made. Pure: the answer follows from what the controller
//! knows already, so that every controller answers at once, whether it leads or not.

use std::time::Instant;

use hostler_api::{ObjectKey, core::Pod, reservation::RESERVATION_GATE};
use hostler_reconcile::{Leadership, Observed as _};
use serde_json::json;

use super::review::WebhookAnswer;
use crate::{
    pod_gates::{GatesPhase, PodWait, WaitRules, wait_of_newcomer},
    unscheduled_pods::UnscheduledPod,
    view::ClusterView,
};

/// Facts that decide whether a pod gets the gate.
pub(super) struct GateFacts<'a> {
    pub(super) view: &'a ClusterView,
    pub(super) rules: &'a WaitRules,
    pub(super) phase: GatesPhase,
    pub(super) leadership: &'a Leadership,
}

impl GateFacts<'_> {
    /// Answers about a pod that is made.
    pub(super) fn answer(&self, pod: &Pod) -> WebhookAnswer {
        if !self.is_let_go() || pod.node().is_some() || !self.view.is_complete() {
            return WebhookAnswer::default();
        }
        let has_gates = !pod.spec.scheduling_gates.is_empty();
        if pod.spec.scheduling_gates.iter().any(|gate| gate.name == RESERVATION_GATE) {
            return WebhookAnswer::default();
        }
        // Its name may be made up later, and its UID is.
        let key = ObjectKey { namespace: pod.metadata.namespace.clone(), name: pod.metadata.name.clone() };
        let newcomer = UnscheduledPod::in_the_making(pod);
        if wait_of_newcomer(self.view, self.rules, &key, &newcomer) == PodWait::Nothing {
            return WebhookAnswer::default();
        }
        let gate = json!({ "name": RESERVATION_GATE });
        let operation = match has_gates {
            true => json!({ "op": "add", "path": "/spec/schedulingGates/-", "value": gate }),
            false => json!({ "op": "add", "path": "/spec/schedulingGates", "value": [gate] }),
        };
        WebhookAnswer { patch: vec![operation], warnings: Vec::new() }
    }

    /// True if a controller leads that removes gates.
    fn is_let_go(&self) -> bool {
        let Leadership { holder, trouble, .. } = self.leadership;
        let is_led = self.leadership.is_ours(Instant::now()) || holder.is_some() && trouble.is_none();
        self.phase == GatesPhase::On && is_led
    }
}
