//! The `[backends.cxl]` section of the configuration.

use std::time::Duration;

use hostler_api::ConfigProblem;
use hostler_backend::duration;
use hostler_linux::pci::{PciIdentity, PciPick};
use serde::{Deserialize, Serialize};

/// Looking more often would keep the mailboxes of many cards busy.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

/// How CXL devices are offered.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct CxlBackendConfig {
    /// Accelerators that are passed on whole, as addresses (`0000:b1:00.0`) or models (`8086:0ddb`).
    pub vfio: Vec<String>,
    /// How often to look at health that no event tells of. Zero leaves it to the scan of everything.
    #[serde(with = "duration")]
    pub poll: Duration,
}

impl Default for CxlBackendConfig {
    fn default() -> Self {
        Self { vfio: Vec::new(), poll: Duration::from_secs(10) }
    }
}

impl CxlBackendConfig {
    /// All mistakes; none for a good configuration.
    pub fn validate(&self) -> Vec<ConfigProblem> {
        let picks = self.vfio.iter().filter_map(|text| text.parse::<PciPick>().err());
        let mut problems: Vec<_> = picks.map(|error| ConfigProblem::new("vfio", error.to_string())).collect();
        if !self.poll.is_zero() && self.poll < SHORTEST_POLL {
            problems.push(ConfigProblem::new("poll", "is less than a second; write 1s or more, or 0s for never"));
        }
        problems
    }

    /// True if this function is to be passed on whole.
    pub(crate) fn passes_on(&self, function: &PciIdentity) -> bool {
        self.vfio.iter().filter_map(|text| text.parse::<PciPick>().ok()).any(|pick| pick.names(function))
    }
}
