//! The devices that are to be held, and those that can be. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use hostler_api::{fabric::of_fabric_pool, hardware::NodeHardwareSpec};
use hostler_backend::Device;

use crate::inventory::{Inventory, Pool};

/// The devices of this node that are to be held.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HeldDevices {
    generation: i64,
    /// Values of the taints, by pool and device.
    values: BTreeMap<(String, String), String>,
    /// True if devices that draw on one counter set are held each for itself.
    holds_partitions: bool,
}

/// The devices that can be held, and reasons why others cannot.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HoldsInForce {
    values: BTreeMap<(String, String), String>,
    /// In the order of pools and devices.
    pub refused: Vec<RefusedHold>,
    /// True if anything is to be held at all.
    pub is_wanted: bool,
}

/// A device that is not held, though it should be.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RefusedHold {
    /// `<pool>/<device>`.
    pub device: String,
    /// Why not.
    pub reason: HoldRefusal,
}

/// Why a device is not held.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum HoldRefusal {
    /// This driver has no such device here.
    NotThere,
    /// The backend of the device has not answered since the start: the slice stays as it is.
    BackendUnknown,
    /// The device draws on this counter set, and others that do are not held for the same Reservation. Schedulers count
    /// the draw of a tainted device on its counters though no claim has the device, and refuse the others.
    PartOfCounterSet(String),
}

impl HeldDevices {
    /// Reads a spec of this generation.
    pub fn of(spec: &NodeHardwareSpec, generation: i64) -> Self {
        // Devices behind switches that are kept for this node are the controller's to close: it publishes them.
        let own = spec.holds.iter().filter(|hold| of_fabric_pool(&hold.pool).is_none());
        let holds = own.map(|hold| ((hold.pool.clone(), hold.device.clone()), hold.value.clone()));
        Self { generation, values: holds.collect(), holds_partitions: spec.holds_partitions }
    }

    /// Generation of the spec; 0 where there is none.
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// How many devices.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the devices of the inventory that can be held.
    pub fn in_force(&self, inventory: &Inventory) -> HoldsInForce {
        let mut in_force = HoldsInForce { is_wanted: !self.is_empty(), ..HoldsInForce::default() };
        for ((pool, device), value) in &self.values {
            match self.refusal(inventory, pool, device, value) {
                None => {
                    in_force.values.insert((pool.clone(), device.clone()), value.clone());
                }
                Some(reason) => in_force.refused.push(RefusedHold { device: format!("{pool}/{device}"), reason }),
            }
        }
        in_force
    }

    fn refusal(&self, inventory: &Inventory, pool: &str, device: &str, value: &str) -> Option<HoldRefusal> {
        if inventory.unknown.values().any(|unknown| unknown.name == pool) {
            return Some(HoldRefusal::BackendUnknown);
        }
        let known = inventory.pools.values().find(|known| known.name == pool);
        let found = known.and_then(|known| Some((known, known.devices.iter().find(|it| it.name.as_str() == device)?)));
        let Some((pool, device)) = found else { return Some(HoldRefusal::NotThere) };
        if self.holds_partitions {
            return None;
        }
        let is_held = |other: &Device| self.value(&pool.name, other.name.as_str()) == Some(value);
        let sets: BTreeSet<&str> = device.consumes.iter().map(|uses| uses.set.as_str()).collect();
        let split = sets.into_iter().find(|set| !drawing(pool, set).all(is_held));
        split.map(|set| HoldRefusal::PartOfCounterSet(set.to_owned()))
    }

    fn value(&self, pool: &str, device: &str) -> Option<&str> {
        self.values.get(&(pool.to_owned(), device.to_owned())).map(String::as_str)
    }
}

/// The devices of a pool that draw on a counter set.
fn drawing<'a>(pool: &'a Pool, set: &'a str) -> impl Iterator<Item = &'a Device> {
    pool.devices.iter().filter(move |device| device.consumes.iter().any(|uses| uses.set.as_str() == set))
}

impl HoldsInForce {
    /// The value of the taint with which a device is held.
    pub fn value(&self, pool: &str, device: &str) -> Option<&str> {
        // Most nodes hold nothing, most of the time.
        if self.values.is_empty() {
            return None;
        }
        self.values.get(&(pool.to_owned(), device.to_owned())).map(String::as_str)
    }
}

impl fmt::Display for RefusedHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, reason } = self;
        match reason {
            HoldRefusal::NotThere => write!(f, "{device}: there is no such device"),
            HoldRefusal::BackendUnknown => write!(f, "{device}: its backend has not answered since the start"),
            HoldRefusal::PartOfCounterSet(set) => {
                write!(
                    f,
                    "{device}: it draws on counter set {set}, whose devices can be held for one only, and all \
                     together, unless the controller is told that schedulers bear it: reservations.holds_partitions"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hostler_api::{BackendName, DeviceName, hardware::NodeHold};
    use hostler_backend::CounterUse;

    use super::*;
    use crate::inventory::UnknownPool;

    const VALUE: &str = "0123456789abcdef";
    const OTHER: &str = "fedcba9876543210";

    fn name(text: &str) -> DeviceName {
        DeviceName::new(text).unwrap()
    }

    fn drawing_on(device: &str, set: &str) -> Device {
        let uses = CounterUse { set: name(set), counters: BTreeMap::new() };
        Device { consumes: vec![uses], ..Device::new(name(device)) }
    }

    fn inventory() -> Inventory {
        let devices = vec![Device::new(name("a")), drawing_on("p0", "card"), drawing_on("p1", "card")];
        let pool = Pool { name: "node/fake".to_owned(), devices, ..Pool::default() };
        let unknown = UnknownPool { name: "node/fpga".to_owned(), reason: "slow".to_owned() };
        Inventory {
            pools: [(BackendName::new("fake").unwrap(), pool.into())].into(),
            unknown: [(BackendName::new("fpga").unwrap(), unknown)].into(),
            ..Inventory::default()
        }
    }

    fn in_force(holds: &[(&str, &str, &str)]) -> HoldsInForce {
        let hold = |(pool, device, value): &(&str, &str, &str)| NodeHold {
            pool: (*pool).to_owned(),
            device: (*device).to_owned(),
            value: (*value).to_owned(),
        };
        let spec = NodeHardwareSpec { holds: holds.iter().map(hold).collect(), ..NodeHardwareSpec::default() };
        HeldDevices::of(&spec, 1).in_force(&inventory())
    }

    fn refused(holds: &[(&str, &str, &str)]) -> Vec<String> {
        in_force(holds).refused.iter().map(RefusedHold::to_string).collect()
    }

    #[test]
    fn a_device_that_is_there_is_held() {
        let held = in_force(&[("node/fake", "a", VALUE)]);
        assert_eq!((held.value("node/fake", "a"), held.value("node/fake", "p0")), (Some(VALUE), None));
        assert!(held.refused.is_empty() && held.is_wanted);
        assert!(!in_force(&[]).is_wanted);
    }

    #[test]
    fn a_device_behind_a_switch_is_not_this_daemons_to_close() {
        let held = in_force(&[("fabric/row1/cxl", "4c1d96fffeddd835-0001", VALUE)]);
        assert_eq!(held, HoldsInForce::default());
    }

    #[test]
    fn what_is_not_there_is_named_and_holds_nothing_else_up() {
        let holds =
            [("node/fake", "a", VALUE), ("node/fake", "b", VALUE), ("node/fpga", "x", VALUE), ("n", "a", VALUE)];
        assert_eq!(
            refused(&holds),
            [
                "n/a: there is no such device",
                "node/fake/b: there is no such device",
                "node/fpga/x: its backend has not answered since the start",
            ]
        );
        assert_eq!(in_force(&holds).value("node/fake", "a"), Some(VALUE));
    }

    #[test]
    fn the_devices_of_a_counter_set_are_held_together_or_not_at_all() {
        let part = "draws on counter set card, whose devices can be held for one only, and all together, unless the controller is \
                    told that schedulers bear it: reservations.holds_partitions";
        assert_eq!(refused(&[("node/fake", "p0", VALUE)]), [format!("node/fake/p0: it {part}")]);
        let for_two = [("node/fake", "p0", VALUE), ("node/fake", "p1", OTHER)];
        assert_eq!(refused(&for_two).len(), 2);
        assert!(in_force(&for_two).value("node/fake", "p0").is_none());
        assert_eq!(refused(&[("node/fake", "p0", VALUE), ("node/fake", "p1", VALUE)]), Vec::<String>::new());
    }

    #[test]
    fn where_schedulers_bear_it_each_device_of_a_counter_set_is_held_for_itself() {
        let hold = NodeHold { pool: "node/fake".to_owned(), device: "p0".to_owned(), value: VALUE.to_owned() };
        let spec = NodeHardwareSpec { holds: vec![hold], holds_partitions: true, ..NodeHardwareSpec::default() };
        let held = HeldDevices::of(&spec, 1).in_force(&inventory());
        assert_eq!((held.value("node/fake", "p0"), held.value("node/fake", "p1")), (Some(VALUE), None));
        assert!(held.refused.is_empty());
    }
}
