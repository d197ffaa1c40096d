//! The hardware of the host. One task writes it, all readers see the latest whole value.
//!
//! ```text
//!  uevents ──hint──►┐
//!  timer ───────────┼──► task ── enumerate on blocking threads ──► compare ──► watch<Arc<Inventory>>
//!  admin ──rescan──►┘
//! ```
//!
//! Writer: [`task`]. Readers: slices, health, claims, metrics, the admin socket, through [`InventoryReader`].

pub mod changes;
pub mod drains;
pub mod hints;
pub mod hotplug;
pub mod lookup;
mod merge;
pub mod task;
pub mod view;

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use hostler_api::{
    BackendName, DeviceName,
    fabric::{DeviceIdentity, of_fabric_pool},
};
use hostler_backend::{BackendWarning, CardSerials, CounterSet, Device};
use tokio::sync::watch;

pub use drains::{Drain, Drains, LostDrains};

use crate::units::utc;

/// Backends of the cards that fabric managers attach: memory and accelerators of all kinds first.
const CARDS_BACKENDS: [&str; 2] = ["cxl", "fpga"];

/// Everything that is known about the hardware, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// One pool per backend of which something is known: a scan of it has succeeded since the start.
    pub pools: BTreeMap<BackendName, Arc<Pool>>,
    /// The other backends: their first scan has failed or not answered. That they have no devices is not known either.
    pub unknown: BTreeMap<BackendName, UnknownPool>,
    /// Start of the last scan of each backend that takes longer than callers wait for it.
    pub unanswered: BTreeMap<BackendName, SystemTime>,
    /// Devices that an operator takes out of service, whether they are there or not.
    pub drains: Drains,
    /// A list of drained devices that cannot be understood; `drains` then has every device.
    pub lost_drains: Option<LostDrains>,
}

/// The devices of one backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// `<node>/<backend>`.
    pub name: String,
    /// Devices, in the backend's order of preference.
    pub devices: Vec<Device>,
    /// Counters that these devices share.
    pub counter_sets: Vec<CounterSet>,
    /// Warnings about hardware that the backend could not understand.
    pub warnings: Vec<BackendWarning>,
    /// Reason why the devices are not up to date, if the last scan failed or has not answered; they are then the last
    /// known ones.
    pub stale: Option<String>,
}

/// The devices of one backend, if they are not known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnknownPool {
    /// `<node>/<backend>`.
    pub name: String,
    /// Reason why nothing is known.
    pub reason: String,
}

impl Inventory {
    /// Every device with its pool's name.
    pub fn devices(&self) -> impl Iterator<Item = (&str, &Device)> {
        self.pools.values().flat_map(|pool| pool.devices.iter().map(|device| (pool.name.as_str(), device)))
    }

    /// The device called `device` in the pool called `pool`, with its backend. A device behind a switch is the card on
    /// this node that has its serial number.
    pub fn find(&self, pool: &str, device: &str) -> Option<(&BackendName, &Device)> {
        if of_fabric_pool(pool).is_some() {
            return self.only_card(DeviceIdentity::of_device_name(device)?.serial);
        }
        let (backend, pool) = self.pools.iter().find(|(_, candidate)| candidate.name == pool)?;
        pool.devices.iter().find(|candidate| candidate.name.as_str() == device).map(|device| (backend, device))
    }
}

impl Inventory {
    /// The devices that are a whole card with this serial number: more than one where cards contradict each other.
    pub fn cards(&self, serial: u64) -> impl Iterator<Item = (&BackendName, &Device)> {
        let devices = self.pools.iter().flat_map(|(backend, pool)| pool.devices.iter().map(move |it| (backend, it)));
        devices.filter(move |(_, device)| device.cards == CardSerials::Whole(serial))
    }

    /// Returns why a card that is not found may be there all the same, if that is so. `last` is the backend that found the
    /// card last.
    pub fn cards_doubt(&self, last: Option<&str>) -> Option<String> {
        CARDS_BACKENDS.iter().find_map(|backend| {
            let Some(pool) = self.pools.get(*backend) else {
                return match self.unknown.get(*backend) {
                    Some(UnknownPool { reason, .. }) => {
                        Some(format!("backend {backend} could not be scanned: {reason}"))
                    }
                    // A host without FPGAs can do without their backend.
                    None if *backend == CARDS_BACKENDS[0] || last == Some(*backend) => {
                        Some(format!("backend {backend} is not enabled: nothing looks for cards"))
                    }
                    None => None,
                };
            };
            if let Some(reason) = &pool.stale {
                return Some(format!("backend {backend} could not be scanned: {reason}"));
            }
            let hidden = pool.devices.iter().find(|device| device.cards == CardSerials::Hidden)?;
            Some(format!("the serial number of {backend}/{} cannot be read", hidden.name))
        })
    }

    /// The card with this serial number, where one card has it alone.
    fn only_card(&self, serial: u64) -> Option<(&BackendName, &Device)> {
        let mut cards = self.cards(serial);
        cards.next().filter(|_| cards.next().is_none())
    }

    /// True if this and a later inventory are equal. Pools that both share are not compared again.
    pub(crate) fn is_same(&self, later: &Self) -> bool {
        let pools = self.pools.iter().zip(&later.pools);
        self.pools.len() == later.pools.len()
            && pools.into_iter().all(|(one, other)| one.0 == other.0 && Arc::ptr_eq(one.1, other.1))
            && (&self.unknown, &self.unanswered) == (&later.unknown, &later.unanswered)
            && (&self.drains, &self.lost_drains) == (&later.drains, &later.lost_drains)
    }

    /// The drain of a device, if it has one.
    pub fn drain(&self, backend: &BackendName, device: &DeviceName) -> Option<&Drain> {
        if self.drains.is_empty() {
            return None;
        }
        self.drains.get(&(backend.clone(), device.clone()))
    }

    /// Returns why nothing is known of the pool called `pool`, if that is so: a device that is not found there may
    /// exist all the same.
    pub fn unknown_reason(&self, pool: &str) -> Option<&str> {
        if of_fabric_pool(pool).is_some() {
            let mut unknown = CARDS_BACKENDS.iter().filter_map(|backend| self.unknown.get(*backend));
            return unknown.next().map(|unknown| unknown.reason.as_str());
        }
        self.unknown.values().find(|unknown| unknown.name == pool).map(|unknown| unknown.reason.as_str())
    }

    /// Returns every backend whose present devices are not known, and why, in words.
    pub fn doubts(&self) -> Vec<String> {
        let stale = self.pools.iter().filter_map(|(backend, pool)| {
            Some((backend, pool.stale.as_deref()?, "its devices are those of the last scan that worked"))
        });
        let unknown = self
            .unknown
            .iter()
            .map(|(backend, unknown)| (backend, unknown.reason.as_str(), "nothing is known of its devices"));
        let tell = |(backend, reason, devices): (&BackendName, &str, &str)| match self.unanswered.get(backend) {
            Some(since) => format!("backend {backend} {}; {devices}", unanswered(*since)),
            None => format!("backend {backend} could not be scanned: {reason}; {devices}"),
        };
        stale.chain(unknown).map(tell).collect()
    }
}

/// Describes a backend whose scan has been running since then.
fn unanswered(since: SystemTime) -> String {
    format!("has not answered since {}", utc(since))
}

/// Returns the name of a backend's pool on a node.
pub fn pool_name(node: &str, backend: &BackendName) -> String {
    format!("{node}/{backend}")
}

/// Reader of the latest inventory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct InventoryReader(watch::Receiver<Arc<Inventory>>);

impl InventoryReader {
    /// Wraps the receiving end of the task's watch channel.
    pub fn new(inventory_rx: watch::Receiver<Arc<Inventory>>) -> Self {
        Self(inventory_rx)
    }

    /// The latest value.
    pub fn latest(&self) -> Arc<Inventory> {
        self.0.borrow().clone()
    }

    /// Returns a receiver of its own, which has not seen the latest value yet.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Inventory>> {
        let mut inventory_rx = self.0.clone();
        inventory_rx.mark_changed();
        inventory_rx
    }
}
