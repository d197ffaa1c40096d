//! `[reservations]`: how devices are kept for whom they were promised.

use serde::{Deserialize, Serialize};

/// `[reservations]`: how devices are kept for whom they were promised.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct ReservationsConfig {
    /// Seconds for which a closed device is looked at before it is promised: as long as a scheduler takes at most from its
    /// decision to the allocation that everybody sees.
    pub(crate) settle_seconds: u32,
    /// Seconds for which a device may be gone, or its node not answer, before another one is looked for.
    pub(crate) grace_seconds: u32,
    /// Seconds for which Reservations that are over are kept to be looked at.
    pub(crate) keep_seconds: u32,
    /// Image of the pods for which the scheduler gives shared claims their devices: one that does nothing, for ever.
    pub(crate) reserve_image: String,
    /// Whether pods with the scheduling gate `hostler.dev/placement` are given their devices and let go to their node.
    pub(crate) direct: bool,
}

impl Default for ReservationsConfig {
    fn default() -> Self {
        // A day, as Koordinator has it.
        Self {
            settle_seconds: 5,
            grace_seconds: 60,
            keep_seconds: 24 * 3600,
            direct: false,
            reserve_image: "registry.k8s.io/pause:3.10".to_owned(),
        }
    }
}
