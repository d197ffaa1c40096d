//! A device as it is shown to programs: the shape is a promise, docs/inventory-json.md describes every field.

use hostler_backend::{Attributes, Capacities, Device, Sharing};
use serde::Serialize;

use super::{Drain, Inventory};

/// A device with its backend and pool.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DeviceView<'a> {
    backend: &'a str,
    pool: &'a str,
    name: &'a str,
    attributes: &'a Attributes,
    capacity: &'a Capacities,
    sharing: Sharing,
    health: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    health_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drained: Option<DrainView<'a>>,
}

/// Why and since when a device is out of service.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DrainView<'a> {
    since: u64,
    reason: Option<&'a str>,
    evict: bool,
}

impl<'a> From<&'a Drain> for DrainView<'a> {
    fn from(drain: &'a Drain) -> Self {
        Self { since: drain.since_unix(), reason: drain.reason.as_deref(), evict: drain.evict }
    }
}

impl<'a> DeviceView<'a> {
    /// A device of a backend's pool.
    pub fn of(backend: &'a str, pool: &'a str, device: &'a Device) -> Self {
        Self {
            backend,
            pool,
            name: device.name.as_str(),
            attributes: &device.attributes,
            capacity: &device.capacity,
            sharing: device.sharing,
            health: device.health.as_str(),
            health_reason: device.health.reason(),
            drained: None,
        }
    }

    /// The same device, with its drain.
    #[must_use]
    pub fn with_drain(self, drain: Option<&'a Drain>) -> Self {
        Self { drained: drain.map(DrainView::from), ..self }
    }
}

/// Every device of an inventory.
pub fn devices(inventory: &Inventory) -> Vec<DeviceView<'_>> {
    let pools = inventory.pools.iter();
    pools
        .flat_map(|(backend, pool)| {
            pool.devices.iter().map(|device| {
                let view = DeviceView::of(backend.as_str(), &pool.name, device);
                view.with_drain(inventory.drain(backend, &device.name))
            })
        })
        .collect()
}
