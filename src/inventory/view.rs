//! Device as it is shown to programs: the shape is a promise, docs/inventory-json.md describes every field.

use std::collections::BTreeMap;

use hostler_api::{BackendName, DeviceName, Quantity};
use hostler_backend::{Attributes, Capacities, Device, Sharing};
use serde::Serialize;

use super::{Drain, Inventory};

/// A device with its backend and pool.
#[derive(Clone, Debug, Serialize)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<BTreeMap<String, Quantity>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free: Option<BTreeMap<String, Quantity>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<Vec<String>>,
}

/// Shares of a device that claims have, for programs that ask the daemon.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceShares {
    /// Amounts that claims hold of each capacity.
    pub held: BTreeMap<String, Quantity>,
    /// Amounts that could still be had.
    pub free: BTreeMap<String, Quantity>,
    /// `namespace/name` of the claims.
    pub holders: Vec<String>,
}

/// Reason and start of a device's drain.
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
            held: None,
            free: None,
            holders: None,
        }
    }

    /// Returns the same device, with the shares of it.
    #[must_use]
    pub fn with_shares(self, shares: Option<DeviceShares>) -> Self {
        let Some(DeviceShares { held, free, holders }) = shares else { return self };
        Self { held: Some(held), free: Some(free), holders: Some(holders), ..self }
    }

    /// Returns the same device, with its drain.
    #[must_use]
    pub fn with_drain(self, drain: Option<&'a Drain>) -> Self {
        Self { drained: drain.map(DrainView::from), ..self }
    }
}

/// Returns every device of an inventory; `shares` tells the shares of it.
pub fn devices(
    inventory: &Inventory,
    shares: impl Fn(&BackendName, &DeviceName) -> Option<DeviceShares>,
) -> Vec<DeviceView<'_>> {
    let (pools, shares) = (inventory.pools.iter(), &shares);
    pools
        .flat_map(|(backend, pool)| {
            pool.devices.iter().map(|device| {
                let view = DeviceView::of(backend.as_str(), &pool.name, device);
                view.with_drain(inventory.drain(backend, &device.name)).with_shares(shares(backend, &device.name))
            })
        })
        .collect()
}
