//! Whether a device can be had, and if not, why: one answer for everybody who counts. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    resource::DeviceTaint,
    well_known::{HELD_TAINT, TaintReason},
};

/// How a device is. Each is in exactly one state, so the states of all devices sum up to all devices.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DeviceState {
    /// Claims have it. One that is shared counts as allocated when no part of it can be had any more.
    Allocated,
    /// It is kept for somebody who has it not yet.
    Held,
    /// It does not work.
    Unhealthy,
    /// Somebody has taken it out of service.
    Drained,
    /// It cannot be said whether it works, or is there at all.
    Unknown,
    /// Nobody has it, and it cannot be had for what others have: partitions of one card exclude each other.
    Blocked,
    /// Anybody can have it, or a part of it.
    Free,
}

/// What claims have of a device.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Occupancy {
    /// Nothing.
    #[default]
    Empty,
    /// Parts of it, and other parts can be had.
    Partly,
    /// All of it, or so much that nobody else can have a part.
    Whole,
    /// Nothing, and it draws on something that others have.
    Blocked,
}

/// What is left of one capacity of a shared device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PartsLeft<T> {
    /// What no claim has.
    pub left: T,
    /// The smallest part that the device gives; all of the capacity where it gives no parts.
    pub smallest: T,
}

/// Why nobody new shall have a device, whoever says so. Several may be true.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeviceImpediments {
    /// It is kept for somebody.
    pub held: bool,
    /// It does not work.
    pub unhealthy: bool,
    /// It is out of service.
    pub drained: bool,
    /// It could not be looked at.
    pub unknown: bool,
}

impl DeviceState {
    /// All of them, in the order in which the first that is true counts.
    pub const ALL: [Self; 7] =
        [Self::Allocated, Self::Held, Self::Unhealthy, Self::Drained, Self::Unknown, Self::Blocked, Self::Free];

    /// The rule. Of a node whose report is unknown every device is [`Unknown`](Self::Unknown), and nobody asks this.
    pub fn of(occupancy: Occupancy, impediments: DeviceImpediments) -> Self {
        match (occupancy, impediments) {
            (Occupancy::Whole, _) => Self::Allocated,
            (_, DeviceImpediments { held: true, .. }) => Self::Held,
            (_, DeviceImpediments { unhealthy: true, .. }) => Self::Unhealthy,
            (_, DeviceImpediments { drained: true, .. }) => Self::Drained,
            (_, DeviceImpediments { unknown: true, .. }) => Self::Unknown,
            (Occupancy::Blocked, _) => Self::Blocked,
            (Occupancy::Empty | Occupancy::Partly, _) => Self::Free,
        }
    }

    /// In one word, as in figures and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Held => "held",
            Self::Unhealthy => "unhealthy",
            Self::Drained => "drained",
            Self::Unknown => "unknown",
            Self::Blocked => "blocked",
            Self::Free => "free",
        }
    }
}

impl fmt::Display for DeviceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Occupancy {
    /// Of a shared device that somebody has parts of, by what is left of each of its capacities. Where one has no part
    /// left, no claim can have the device, whatever is left of the others.
    pub fn of_shared<T: PartialOrd>(left: impl IntoIterator<Item = PartsLeft<T>>) -> Self {
        if left.into_iter().any(|parts| parts.left < parts.smallest) { Self::Whole } else { Self::Partly }
    }
}

impl DeviceImpediments {
    /// Takes in a taint that `driver` says of its own device. Of drivers whose words are not known here, every taint that
    /// keeps others away says that the device does not work.
    pub fn add_of_driver(&mut self, taint: &DeviceTaint, driver: &str) {
        if !taint.prevents_allocation() {
            return;
        }
        match TaintReason::of_key(&taint.key, driver) {
            _ if *taint.key == *HELD_TAINT => self.held = true,
            Some(TaintReason::Drained) => self.drained = true,
            Some(TaintReason::Unknown | TaintReason::Stale) => self.unknown = true,
            Some(TaintReason::Unhealthy) | None => self.unhealthy = true,
        }
    }

    /// Takes in the taint of a DeviceTaintRule: somebody other than the driver takes devices out of service, or holds them.
    pub fn add_of_rule(&mut self, taint: &DeviceTaint) {
        if !taint.prevents_allocation() {
            return;
        }
        if *taint.key == *HELD_TAINT { self.held = true } else { self.drained = true }
    }

    /// Whether somebody can have the device, or could if nobody had it: it works and is in service. Who holds it will.
    pub fn is_allocatable(self) -> bool {
        !(self.unhealthy || self.drained || self.unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: &str = "hostler.dev";

    fn taint(key: &str, effect: &str) -> DeviceTaint {
        DeviceTaint { key: key.into(), effect: effect.into(), ..DeviceTaint::default() }
    }

    fn of_driver(key: &str) -> DeviceImpediments {
        let mut impediments = DeviceImpediments::default();
        impediments.add_of_driver(&taint(key, "NoSchedule"), DRIVER);
        impediments
    }

    #[test]
    fn the_first_state_that_is_true_counts() {
        let all = DeviceImpediments { held: true, unhealthy: true, drained: true, unknown: true };
        let unheld = DeviceImpediments { held: false, ..all };
        let working = DeviceImpediments { unhealthy: false, ..unheld };
        let serving = DeviceImpediments { drained: false, ..working };
        for (occupancy, impediments, expected) in [
            (Occupancy::Whole, all, DeviceState::Allocated),
            (Occupancy::Partly, all, DeviceState::Held),
            (Occupancy::Partly, unheld, DeviceState::Unhealthy),
            (Occupancy::Empty, working, DeviceState::Drained),
            (Occupancy::Blocked, serving, DeviceState::Unknown),
            (Occupancy::Blocked, DeviceImpediments::default(), DeviceState::Blocked),
            (Occupancy::Partly, DeviceImpediments::default(), DeviceState::Free),
            (Occupancy::Empty, DeviceImpediments::default(), DeviceState::Free),
        ] {
            assert_eq!(DeviceState::of(occupancy, impediments), expected, "{occupancy:?} {impediments:?}");
        }
    }

    #[test]
    fn a_shared_device_is_allocated_when_one_capacity_has_no_part_left() {
        let parts = |left, smallest| PartsLeft { left, smallest };
        assert_eq!(Occupancy::of_shared([parts(8, 1), parts(4, 4)]), Occupancy::Partly);
        assert_eq!(Occupancy::of_shared([parts(8, 1), parts(3, 4)]), Occupancy::Whole);
        assert_eq!(Occupancy::of_shared::<u64>([]), Occupancy::Partly, "nothing limits who has it");
    }

    #[test]
    fn a_taint_means_what_the_driver_says_with_it() {
        let nothing = DeviceImpediments::default();
        for (key, expected) in [
            ("hostler.dev/unhealthy", DeviceImpediments { unhealthy: true, ..nothing }),
            ("hostler.dev/unknown", DeviceImpediments { unknown: true, ..nothing }),
            ("hostler.dev/stale", DeviceImpediments { unknown: true, ..nothing }),
            ("hostler.dev/drained", DeviceImpediments { drained: true, ..nothing }),
            ("hostler.dev/held", DeviceImpediments { held: true, ..nothing }),
            ("gpu.example.com/drained", DeviceImpediments { unhealthy: true, ..nothing }),
        ] {
            assert_eq!(of_driver(key), expected, "{key}");
        }
        let mut untouched = nothing;
        untouched.add_of_driver(&taint("hostler.dev/unhealthy", "None"), DRIVER);
        untouched.add_of_rule(&taint("hostler.dev/held", "None"));
        assert_eq!(untouched, nothing);
    }

    #[test]
    fn a_rule_takes_devices_out_of_service_or_holds_them() {
        let mut ruled = DeviceImpediments::default();
        ruled.add_of_rule(&taint("hostler.dev/held", "NoSchedule"));
        assert!(ruled.held && ruled.is_allocatable());
        ruled.add_of_rule(&taint("example.com/repair", "NoExecute"));
        assert!(ruled.drained && !ruled.unhealthy && !ruled.is_allocatable());
    }

    #[test]
    fn a_state_is_called_the_same_everywhere() {
        for state in DeviceState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
