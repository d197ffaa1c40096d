//! `[audit]`: whether containers stay bound to what their claims say.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ConfigMistake, duration};

/// More often than this it would be the auditor who keeps CPUs busy.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);

/// `[audit]`: whether containers stay bound to what their claims say.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct AuditConfig {
    /// Whether containers that somebody binds to something else are put back. Otherwise nobody looks.
    pub enabled: bool,
    /// How often all of them are looked at. Writes into their cgroups are noticed at once besides.
    #[serde(with = "duration")]
    pub period: Duration,
}

impl AuditConfig {
    /// How often to look; `None` for never.
    pub fn active(&self) -> Option<Duration> {
        self.enabled.then_some(self.period)
    }

    pub(super) fn problems(&self) -> Option<ConfigMistake> {
        let what = "is shorter than a second";
        (self.period < SHORTEST_PERIOD).then(|| ConfigMistake::new("audit.period", what, "write \"1s\" or more"))
    }
}

impl Default for AuditConfig {
    fn default() -> Self {
        // What is changed behind our back is seen at once where the kernel tells of writes; this is for what it does not
        // tell, a smaller cgroup above for example.
        Self { enabled: true, period: Duration::from_secs(10) }
    }
}
