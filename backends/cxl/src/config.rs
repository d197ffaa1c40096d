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
    /// Accelerators whose memory is cleared by a reset of their function, as addresses or models. What their makers say is
    /// known to the operator only; without it an accelerator is never called erased.
    pub reset_erases: Vec<String>,
    /// How often to look at health that no event tells of. Zero leaves it to the scan of everything.
    #[serde(with = "duration")]
    pub poll: Duration,
}

impl Default for CxlBackendConfig {
    fn default() -> Self {
        Self { vfio: Vec::new(), reset_erases: Vec::new(), poll: Duration::from_secs(10) }
    }
}

impl CxlBackendConfig {
    /// All mistakes; none for a good configuration.
    pub fn validate(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        for (key, texts) in [("vfio", &self.vfio), ("reset_erases", &self.reset_erases)] {
            let mistakes = texts.iter().filter_map(|text| text.parse::<PciPick>().err());
            problems.extend(mistakes.map(|error| ConfigProblem::new(key, error.to_string())));
        }
        if !self.poll.is_zero() && self.poll < SHORTEST_POLL {
            problems.push(ConfigProblem::new("poll", "is less than a second; write 1s or more, or 0s for never"));
        }
        problems
    }

    /// True if this function is to be passed on whole.
    pub(crate) fn passes_on(&self, function: &PciIdentity) -> bool {
        is_picked(&self.vfio, function)
    }

    /// True if a reset of this function clears its memory.
    pub(crate) fn is_erased_by_reset(&self, function: &PciIdentity) -> bool {
        is_picked(&self.reset_erases, function)
    }
}

fn is_picked(texts: &[String], function: &PciIdentity) -> bool {
    texts.iter().filter_map(|text| text.parse::<PciPick>().ok()).any(|pick| pick.names(function))
}
