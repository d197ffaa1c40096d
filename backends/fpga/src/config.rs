//! The `[backends.fpga]` section of the configuration.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use hostler_api::ConfigProblem;
use hostler_backend::duration;
use hostler_linux::pci::{PciIdentity, PciPick};
use serde::{Deserialize, Serialize};

use crate::bitstream::Guid;

/// How FPGAs are offered.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct FpgaBackendConfig {
    /// Folder of the bitstreams that claims may name.
    pub bitstreams: PathBuf,
    /// Images that regions are programmed with when a claim ends: digests or names of bitstreams, by interface id.
    pub blank: BTreeMap<String, String>,
    /// Interface ids whose blank image clears the memory of the card, too. What an image does is known to the operator only;
    /// without it a card is never called erased.
    pub blank_erases: Vec<String>,
    /// Functions that are passed on whole, as addresses (`0000:b1:00.5`) or models (`8086:bccf`).
    pub vfio: Vec<String>,
    /// Offers cards with the XRT drivers to several claims at once. XRT lets processes share a card that has one design
    /// loaded, and refuses another design while the first is in use.
    pub share_xrt: bool,
    /// How often to look at health that no event tells of. Zero leaves it to the scan of everything.
    #[serde(with = "duration")]
    pub poll: Duration,
}

impl Default for FpgaBackendConfig {
    fn default() -> Self {
        Self {
            bitstreams: "/var/lib/hostler/bitstreams".into(),
            blank: BTreeMap::new(),
            blank_erases: Vec::new(),
            vfio: Vec::new(),
            share_xrt: false,
            poll: Duration::from_secs(5),
        }
    }
}

impl FpgaBackendConfig {
    /// All mistakes; none for a good configuration.
    pub fn validate(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        if !self.bitstreams.is_absolute() {
            problems.push(ConfigProblem::new("bitstreams", "is not absolute; begin it with /"));
        }
        problems.extend(self.blank.keys().filter_map(|key| blank_problem(key)));
        problems.extend(self.blank_erases.iter().filter(|id| !self.blank.contains_key(*id)).map(|id| {
            ConfigProblem::new("blank_erases", format!("{id:?} has no blank image: name one for it in blank"))
        }));
        let picks = self.vfio.iter().filter_map(|text| text.parse::<PciPick>().err());
        problems.extend(picks.map(|error| ConfigProblem::new("vfio", error.to_string())));
        if !self.poll.is_zero() && self.poll < Duration::from_secs(1) {
            problems.push(ConfigProblem::new("poll", "is less than a second; write 1s or more, or 0s for never"));
        }
        problems
    }

    /// True if this function is to be passed on whole.
    pub(crate) fn passes_on(&self, function: &PciIdentity) -> bool {
        self.vfio.iter().filter_map(|text| text.parse::<PciPick>().ok()).any(|pick| pick.names(function))
    }
}

/// One spelling for each id: two would be two images for one region.
fn blank_problem(key: &str) -> Option<ConfigProblem> {
    let canonical = Guid::parse(key).is_some_and(|id| id.as_str() == key);
    let reason = "is not an interface id as in `compat_id`: 32 lower-case hexadecimal digits without hyphens";
    (!canonical).then(|| ConfigProblem::new(format!("blank.{key:?}"), reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_named_by_address_or_by_model() {
        let config = |text: &str| FpgaBackendConfig { vfio: vec![text.to_owned()], ..FpgaBackendConfig::default() };
        let function =
            PciIdentity { address: "0000:b1:00.5".parse().unwrap(), vendor: 0x8086, device: 0xbccf, class: None };
        for text in ["0000:b1:00.5", "8086:bccf", "8086:BCCF"] {
            assert_eq!((config(text).validate().len(), config(text).passes_on(&function)), (0, true), "{text}");
        }
        for text in ["0000:b1:00.4", "8086:bcce", "10ee:bccf"] {
            assert_eq!((config(text).validate().len(), config(text).passes_on(&function)), (0, false), "{text}");
        }
        for text in ["", "bccf", "8086:bcc", "8086:+bcc", "0x8086:0xbccf", "b1:00.5", "8086:bccf:0"] {
            assert_eq!((config(text).validate().len(), config(text).passes_on(&function)), (1, false), "{text}");
        }
    }

    #[test]
    fn a_poll_is_a_second_or_more_or_never() {
        let problems = |poll| FpgaBackendConfig { poll, ..FpgaBackendConfig::default() }.validate().len();
        assert_eq!([0, 999, 1000].map(|millis| problems(Duration::from_millis(millis))), [0, 1, 0]);
    }
}
