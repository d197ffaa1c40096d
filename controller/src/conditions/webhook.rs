//! The finding on leading pods to what is kept for them.

use hostler_api::hardware::ConditionStatus;

use super::{ClusterFinding, FindingKind};
use crate::webhook::WebhookPhase;

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
