//! The state of the webhook.

use std::sync::atomic::AtomicU64;

/// The state of the webhook, for its readers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct WebhookStatus {
    /// The phase of the webhook.
    pub(crate) phase: WebhookPhase,
}

impl WebhookStatus {
    /// True unless the webhook's role is missing: without it the controller cannot read claims, and changes none.
    pub(crate) fn is_installed(&self) -> bool {
        !matches!(self.phase, WebhookPhase::NotInstalled(_))
    }
}

/// The phase of the webhook.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum WebhookPhase {
    /// No certificate is there yet: the leader makes it.
    #[default]
    NoCertificate,
    /// The role of `deploy/holds/webhook` is missing; holds the API server's answer.
    NotInstalled(String),
    /// The webhook cannot do its work; holds the reason.
    Trouble(String),
    /// The webhook answers.
    Answering,
}

/// Numbers of claims and pods since the start, by the webhook's answer.
#[derive(Debug, Default)]
pub(crate) struct WebhookFigures {
    /// Claims that were changed to use a Reservation.
    pub(crate) led: AtomicU64,
    /// Claims for which no devices are kept.
    pub(crate) untouched: AtomicU64,
    /// Claims for which no answer could be found.
    pub(crate) unanswered: AtomicU64,
    /// Pods that were made with a gate.
    pub(crate) gated: AtomicU64,
}
