//! State of a device: whether it can be allocated, and if not, why. One rule for every reader that counts devices.
//! Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    fabric::FABRIC_TAINT,
    resource::DeviceTaint,
    well_known::{HELD_TAINT, TaintReason},
};

/// State of a device. Each device is in exactly one state, so the counts of all states sum up to all devices.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DeviceState {
    /// Claims have the device. A shared device counts as allocated once no part of it can be allocated any more.
    Allocated,
    /// The device is kept for a holder that does not have it yet.
    Held,
    /// The device does not work.
    Unhealthy,
    /// The device was taken out of service.
    Drained,
    /// The health or the presence of the device cannot be determined.
    Unknown,
    /// No claim has the device, but devices of other claims block it: partitions of one card exclude each other.
    Blocked,
    /// The device, or a part of it, can be given to any claim.
    Free,
}

/// Part of a device that claims have.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Occupancy {
    /// Nothing.
    #[default]
    Empty,
    /// Parts of the device; other parts can be allocated.
    Partly,
    /// All of the device, or so much that no part is left for another claim.
    Whole,
    /// Nothing, but the device draws on something that other claims have.
    Blocked,
}

/// Rest of one capacity of a shared device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PartsLeft<T> {
    /// Amount that no claim has.
    pub left: T,
    /// The smallest part that the device gives; all of the capacity where it gives no parts.
    pub smallest: T,
}

/// Reasons not to give a device to a new claim, from any source. Several may be true.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeviceImpediments {
    /// The device is kept for a holder.
    pub held: bool,
    /// The device does not work.
    pub unhealthy: bool,
    /// The device is out of service.
    pub drained: bool,
    /// The device could not be examined.
    pub unknown: bool,
    /// The device is behind a switch, and is being attached to a node or given back.
    pub moving: bool,
}

impl DeviceState {
    /// All states, in the order in which the first that is true counts.
    pub const ALL: [Self; 7] =
        [Self::Allocated, Self::Held, Self::Unhealthy, Self::Drained, Self::Unknown, Self::Blocked, Self::Free];

    /// Applies the rule. On a node whose report is unknown every device is [`Unknown`](Self::Unknown), and this is
    /// not called.
    pub fn of(occupancy: Occupancy, impediments: DeviceImpediments) -> Self {
        match (occupancy, impediments) {
            (Occupancy::Whole, _) => Self::Allocated,
            (_, DeviceImpediments { held: true, .. }) => Self::Held,
            (_, DeviceImpediments { unhealthy: true, .. }) => Self::Unhealthy,
            (_, DeviceImpediments { drained: true, .. }) => Self::Drained,
            (_, DeviceImpediments { unknown: true, .. }) => Self::Unknown,
            (Occupancy::Blocked, _) | (_, DeviceImpediments { moving: true, .. }) => Self::Blocked,
            (Occupancy::Empty | Occupancy::Partly, _) => Self::Free,
        }
    }

    /// Returns the state as one word, as in figures and on the wire.
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
    /// Occupancy of a shared device of which claims have parts, from the rest of each of its capacities. Once one
    /// capacity has no part left, no claim can have the device, regardless of the others.
    pub fn of_shared<T: PartialOrd>(left: impl IntoIterator<Item = PartsLeft<T>>) -> Self {
        if left.into_iter().any(|parts| parts.left < parts.smallest) { Self::Whole } else { Self::Partly }
    }
}

impl DeviceImpediments {
    /// Adds a taint that `driver` sets on its own device. For drivers whose reasons are not known here, every taint
    /// that keeps others away means that the device does not work.
    pub fn add_of_driver(&mut self, taint: &DeviceTaint, driver: &str) {
        if !taint.prevents_allocation() {
            return;
        }
        match TaintReason::of_key(&taint.key, driver) {
            _ if *taint.key == *HELD_TAINT => self.held = true,
            _ if *taint.key == *FABRIC_TAINT => self.moving = true,
            Some(TaintReason::Drained) => self.drained = true,
            Some(TaintReason::Unknown | TaintReason::Stale) => self.unknown = true,
            Some(TaintReason::Unhealthy) | None => self.unhealthy = true,
        }
    }

    /// Adds the taint of a DeviceTaintRule: a party other than the driver takes devices out of service, or holds them.
    pub fn add_of_rule(&mut self, taint: &DeviceTaint) {
        if !taint.prevents_allocation() {
            return;
        }
        if *taint.key == *HELD_TAINT { self.held = true } else { self.drained = true }
    }

    /// True if the device can be given to a claim, or could if no claim had it: it works and is in service. A held
    /// device counts, since its holder will have it, and so does one behind a switch that is on its way.
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
        let all = DeviceImpediments { held: true, unhealthy: true, drained: true, unknown: true, moving: true };
        let unheld = DeviceImpediments { held: false, ..all };
        let working = DeviceImpediments { unhealthy: false, ..unheld };
        let serving = DeviceImpediments { drained: false, ..working };
        let none = DeviceImpediments::default();
        for (occupancy, impediments, expected) in [
            (Occupancy::Whole, all, DeviceState::Allocated),
            (Occupancy::Partly, all, DeviceState::Held),
            (Occupancy::Partly, unheld, DeviceState::Unhealthy),
            (Occupancy::Empty, working, DeviceState::Drained),
            (Occupancy::Blocked, serving, DeviceState::Unknown),
            (Occupancy::Whole, DeviceImpediments { moving: true, ..none }, DeviceState::Allocated),
            (Occupancy::Empty, DeviceImpediments { moving: true, ..none }, DeviceState::Blocked),
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
            ("hostler.dev/fabric", DeviceImpediments { moving: true, ..nothing }),
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
