//! `[audit]`: the audit of the CPUs and NUMA nodes that containers are bound to.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ConfigMistake, duration};

/// Shortest period. With a shorter one the audit itself would keep CPUs busy.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);

/// `[audit]`: the audit of the CPUs and NUMA nodes that containers are bound to.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct AuditConfig {
    /// True if the daemon compares the binding of containers with their claims, and restores a binding that was
    /// changed.
    pub enabled: bool,
    /// Period of the comparison of all containers. A write into their cgroups is noticed at once besides.
    #[serde(with = "duration")]
    pub period: Duration,
}

impl AuditConfig {
    /// The period; `None` if the audit is off.
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
        // The kernel reports most writes at once; the period is for changes that it does not report, a smaller cgroup
        // above for example.
        Self { enabled: true, period: Duration::from_secs(10) }
    }
}
