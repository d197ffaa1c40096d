//! How the webhook is.

use std::sync::atomic::AtomicU64;

/// How the webhook is, for whoever wants to know.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct SteerStatus {
    /// Where it stands.
    pub(crate) phase: SteerPhase,
}

/// Where the webhook stands.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum SteerPhase {
    /// There is no certificate yet: whoever leads makes it.
    #[default]
    NoCertificate,
    /// The role of `deploy/holds/webhook` is missing; holds the API server's answer.
    NotInstalled(String),
    /// It cannot do its work, and why.
    Trouble(String),
    /// It answers.
    Answering,
}

/// Claims since the start, by what was answered.
#[derive(Debug, Default)]
pub(crate) struct SteerFigures {
    /// They were led to a Reservation.
    pub(crate) led: AtomicU64,
    /// Nothing is kept for them.
    pub(crate) untouched: AtomicU64,
    /// It could not be found out.
    pub(crate) unanswered: AtomicU64,
}
