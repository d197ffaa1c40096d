//! What hardware exists. One task writes it, everybody reads the latest whole value.
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

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::{BackendName, DeviceName};
use hostler_backend::{BackendWarning, CounterSet, Device};
use tokio::sync::watch;

pub use drains::{Drain, Drains, LostDrains};

/// Everything that is known about the hardware, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// One pool per backend that has been scanned at least once.
    pub pools: BTreeMap<BackendName, Pool>,
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
    /// In the backend's order of preference.
    pub devices: Vec<Device>,
    /// What these devices share.
    pub counter_sets: Vec<CounterSet>,
    /// What the backend could not understand.
    pub warnings: Vec<BackendWarning>,
    /// Why the last scan failed, if it did; the devices are then the last known ones.
    pub stale: Option<String>,
}

impl Inventory {
    /// Every device with its pool's name.
    pub fn devices(&self) -> impl Iterator<Item = (&str, &Device)> {
        self.pools.values().flat_map(|pool| pool.devices.iter().map(|device| (pool.name.as_str(), device)))
    }

    /// The device called `device` in the pool called `pool`, with its backend.
    pub fn find(&self, pool: &str, device: &str) -> Option<(&BackendName, &Device)> {
        let (backend, pool) = self.pools.iter().find(|(_, candidate)| candidate.name == pool)?;
        pool.devices.iter().find(|candidate| candidate.name.as_str() == device).map(|device| (backend, device))
    }
}

impl Inventory {
    /// The drain of a device, if it has one.
    pub fn drain(&self, backend: &BackendName, device: &DeviceName) -> Option<&Drain> {
        if self.drains.is_empty() {
            return None;
        }
        self.drains.get(&(backend.clone(), device.clone()))
    }
}

/// The name of a backend's pool on a node.
pub fn pool_name(node: &str, backend: &BackendName) -> String {
    format!("{node}/{backend}")
}

/// Reads the latest inventory. Cheap to clone.
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

    /// A receiver of its own, which has not seen the latest value yet.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Inventory>> {
        let mut inventory_rx = self.0.clone();
        inventory_rx.mark_changed();
        inventory_rx
    }
}
