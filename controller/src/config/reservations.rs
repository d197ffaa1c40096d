//! `[reservations]`: settings of Reservations.

use hostler_process::config::ConfigMistake;
use serde::{Deserialize, Serialize};

use super::SwitchMode;
/// `[reservations]`: settings of Reservations.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct ReservationsConfig {
    /// Seconds between the closing of a device and its promise: the longest time from a scheduler's decision to the
    /// allocation that every watch shows.
    pub(crate) settle_seconds: u32,
    /// Seconds for which a device may be gone, or its node not answer, before another device is chosen.
    pub(crate) grace_seconds: u32,
    /// Seconds for which Reservations that are over are kept for people.
    pub(crate) keep_seconds: u32,
    /// Image of the pods for which the scheduler gives shared claims their devices: its program does nothing and never
    /// ends.
    pub(crate) reserve_image: String,
    /// True to close a part of a counter set to others without the rest of it. Safe only where every scheduler has the
    /// fix of kubernetes#140436: other schedulers take the parts beside it for taken as well.
    pub(crate) holds_partitions: bool,
    /// The release of the oldest scheduler of the cluster. Empty: the release of kube-scheduler's pods in
    /// `kube-system`, else of the API server.
    pub(crate) oldest_scheduler: String,
    /// Switch of direct mode: hostler gives pods with the scheduling gate `hostler.dev/placement` their devices, and
    /// then removes the gate.
    pub(crate) direct: SwitchMode,
    /// Switch of places: pods in the namespace `hostler-places` keep CPU, memory, ports and what else the pods of a
    /// Reservation take of their nodes.
    pub(crate) places: SwitchMode,
}

impl Default for ReservationsConfig {
    fn default() -> Self {
        // A day, like Koordinator.
        Self {
            settle_seconds: 5,
            grace_seconds: 60,
            keep_seconds: 24 * 3600,
            holds_partitions: false,
            oldest_scheduler: String::new(),
            direct: SwitchMode::Off,
            places: SwitchMode::Off,
            reserve_image: "registry.k8s.io/pause:3.10".to_owned(),
        }
    }
}

impl ReservationsConfig {
    /// Returns mistakes of values that their types do not exclude.
    pub(super) fn mistakes(&self) -> Vec<ConfigMistake> {
        // Without a pause between closing and promising, a device would be promised that a scheduler has already given
        // to another pod.
        let settle = (self.settle_seconds == 0).then(|| {
            let fix = "write at least 1: as long as a scheduler takes from its decision to the allocation that everybody sees";
            ConfigMistake::new("reservations.settle_seconds", "is 0".to_owned(), fix)
        });
        let is_image = !self.reserve_image.is_empty() && !self.reserve_image.contains(char::is_whitespace);
        let image = (!is_image).then(|| {
            let what = format!("is {:?}, which is no image", self.reserve_image);
            let fix = "write an image that does nothing, for ever, such as \"registry.k8s.io/pause:3.10\"";
            ConfigMistake::new("reservations.reserve_image", what, fix)
        });
        let is_release = self.oldest_scheduler.is_empty() || release_of(&self.oldest_scheduler).is_some();
        let scheduler = (!is_release).then(|| {
            let what = format!("is {:?}, which is no release", self.oldest_scheduler);
            ConfigMistake::new(
                "reservations.oldest_scheduler",
                what,
                "write what it says of itself, such as \"1.36.3\"",
            )
        });
        settle.into_iter().chain(image).chain(scheduler).collect()
    }
}

/// Major, minor and patch release; a missing patch is 0.
pub(crate) fn release_of(text: &str) -> Option<[u32; 3]> {
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    };
    let mut parts = text.trim_start_matches('v').split('.');
    let [major, minor, patch] = [(); 3].map(|()| parts.next().and_then(number));
    Some([major?, minor?, patch.unwrap_or_default()])
}
