//! The findings on leading pods to what is kept for them, and on having them wait for it.

use hostler_api::hardware::ConditionStatus;

use super::{ClusterFinding, FindingKind};
use crate::{pod_gates::GatesPhase, webhook_status::WebhookPhase};

/// Makes the finding on the webhook. The controller is ready without it, as the API server makes claims without it.
pub(super) fn webhook_finding(phase: &WebhookPhase) -> ClusterFinding {
    let (status, reason, message) = match phase {
        WebhookPhase::NoCertificate => {
            let message = "there is no certificate yet; the controller that leads makes one".to_owned();
            (ConditionStatus::Unknown, "NoCertificate", message)
        }
        WebhookPhase::NotInstalled(why) => (ConditionStatus::False, "NotInstalled", why.clone()),
        WebhookPhase::Trouble(why) => (ConditionStatus::False, "Failed", why.clone()),
        WebhookPhase::Answering => {
            (ConditionStatus::True, "Answering", "claims of owners are led to Reservations".to_owned())
        }
    };
    ClusterFinding::new(FindingKind::Webhook, status, reason, message)
}

/// Makes the finding on gates of pods; none where they are switched off. The controller is ready without them: pods are
/// made without gates then.
pub(super) fn gates_finding(phase: GatesPhase) -> Option<ClusterFinding> {
    let (status, reason, message) = match phase {
        GatesPhase::Off => return None,
        GatesPhase::Unknown => (ConditionStatus::Unknown, "NoAnswer", "it is being asked whether pods may be let go"),
        GatesPhase::NotInstalled => {
            let message = "owners do not wait by a scheduling gate: deploy/holds/gates has the role for it";
            (ConditionStatus::False, "NotInstalled", message)
        }
        GatesPhase::Forbidden => {
            let message = "no pod is gated, since the controller may not patch pods, and so could not let it go; apply \
                           deploy/holds/gates, or set webhook.gates = false";
            (ConditionStatus::False, "Forbidden", message)
        }
        GatesPhase::On => (ConditionStatus::True, "Gating", "owners wait for their places by a scheduling gate"),
    };
    Some(ClusterFinding::new(FindingKind::PodGates, status, reason, message))
}
