//! Changes that the daemon has seen.

use serde::{Deserialize, Serialize};

/// `GET /v1/events?after=CURSOR&timeout=30s`: what has changed since; answered as soon as anything has, or when the time
/// is over. Without a cursor everything that is kept, at once.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AdminEvents {
    /// Cursor for the next question.
    pub cursor: String,
    /// Why changes between the cursor and the first of these are not known, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Changes, the latest last.
    pub items: Vec<AdminEvent>,
}

/// A change.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AdminEvent {
    /// Number of the change, from 0 at the daemon's start.
    pub number: u64,
    /// Time at which it was seen, seconds since 1970.
    pub time: u64,
    /// Subject of the change.
    pub subject: AdminEventSubject,
    /// `namespace/name` of a claim, or its UID where that is not known; `backend/device`; the node of a daemon.
    pub name: String,
    /// The change in one word. Claims: `preparing`, `prepared`, `quarantined`, `unprepared`, `failed`. Devices: `added`,
    /// `removed`, `healthy`, `unhealthy`, `unknown`, `drained`, `undrained`. The daemon: `started`, `reloaded`.
    pub change: String,
    /// Reason, for people; empty where there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Subject of a change.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AdminEventSubject {
    /// A claim.
    Claim,
    /// A device.
    Device,
    /// The daemon itself.
    Daemon,
}

impl AdminEventSubject {
    /// The subject in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Device => "device",
            Self::Daemon => "daemon",
        }
    }
}
