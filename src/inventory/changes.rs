//! Compares two inventories, for the log: what came, went and changed. Pure.

use std::{collections::BTreeMap, fmt, sync::Arc};

use hostler_backend::Device;

use super::Inventory;

/// A difference between two inventories.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InventoryChange {
    /// The pool.
    pub pool: String,
    /// The device; `None` where the whole pool is meant.
    pub device: Option<String>,
    /// Kind of the difference.
    pub what: ChangeKind,
}

/// Kinds of changes of a device or a pool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ChangeKind {
    /// The device was not there before.
    Added,
    /// The device is not there any more.
    Removed,
    /// Attributes, capacities or edits of the device are others.
    Changed,
    /// The health of the device is another than before.
    Health(&'static str),
    /// The backend could not be scanned or does not answer; the last known devices stay.
    Stale(String),
    /// The scan failed or has not answered, and there are no last known devices.
    Unknown(String),
    /// The backend can be scanned again.
    Fresh,
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added => f.write_str("added"),
            Self::Removed => f.write_str("removed"),
            Self::Changed => f.write_str("changed"),
            Self::Health(health) => f.write_str(health),
            Self::Stale(reason) => write!(f, "stale: {reason}"),
            Self::Unknown(reason) => write!(f, "unknown: {reason}"),
            Self::Fresh => f.write_str("fresh"),
        }
    }
}

/// Returns the differences, pool by pool, by device name.
pub fn changes(old: &Inventory, new: &Inventory) -> Vec<InventoryChange> {
    let mut found = Vec::new();
    for (backend, pool) in &new.pools {
        let before = old.pools.get(backend);
        if before.is_some_and(|before| Arc::ptr_eq(before, pool)) {
            continue;
        }
        let stale = before.and_then(|pool| pool.stale.as_ref());
        let what = match (&pool.stale, stale) {
            (Some(now), before) if before != Some(now) => Some(ChangeKind::Stale(now.clone())),
            (None, Some(_)) => Some(ChangeKind::Fresh),
            _ => None,
        };
        found.extend(what.map(|what| InventoryChange { pool: pool.name.clone(), device: None, what }));
        let before = before.map_or(&[][..], |pool| &pool.devices[..]);
        found.extend(device_changes(&pool.name, before, &pool.devices));
    }
    let unknown = new.unknown.iter().filter(|(backend, unknown)| old.unknown.get(*backend) != Some(*unknown));
    found.extend(unknown.map(|(_, unknown)| InventoryChange {
        pool: unknown.name.clone(),
        device: None,
        what: ChangeKind::Unknown(unknown.reason.clone()),
    }));
    found
}

fn device_changes(pool: &str, old: &[Device], new: &[Device]) -> Vec<InventoryChange> {
    fn by_name(devices: &[Device]) -> BTreeMap<&str, &Device> {
        devices.iter().map(|device| (device.name.as_str(), device)).collect()
    }
    let (old, new) = (by_name(old), by_name(new));
    let removed = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name, ChangeKind::Removed));
    let others = new.iter().filter_map(|(name, device)| Some((name, compare(old.get(name).copied(), device)?)));
    removed
        .chain(others)
        .map(|(name, what)| InventoryChange { pool: pool.to_owned(), device: Some((*name).to_owned()), what })
        .collect()
}

fn compare(old: Option<&Device>, new: &Device) -> Option<ChangeKind> {
    let Some(old) = old else { return Some(ChangeKind::Added) };
    if old.health != new.health {
        return Some(ChangeKind::Health(new.health.as_str()));
    }
    (old != new).then_some(ChangeKind::Changed)
}

#[cfg(test)]
mod tests {
    use hostler_api::{BackendName, DeviceName};
    use hostler_backend::Health;

    use super::*;
    use crate::inventory::Pool;

    fn inventory(devices: &[(&str, Health)], stale: Option<&str>) -> Inventory {
        let device = |(name, health): &(&str, Health)| {
            let mut device = Device::new(DeviceName::new(*name).unwrap());
            device.health = health.clone();
            device
        };
        let pool = Pool {
            name: "node/fake".to_owned(),
            devices: devices.iter().map(device).collect(),
            stale: stale.map(str::to_owned),
            ..Pool::default()
        };
        Inventory { pools: [(BackendName::new("fake").unwrap(), pool.into())].into(), ..Inventory::default() }
    }

    fn text(old: &Inventory, new: &Inventory) -> Vec<String> {
        let name = |change: &InventoryChange| change.device.clone().unwrap_or_default();
        changes(old, new).iter().map(|change| format!("{} {}", name(change), change.what)).collect()
    }

    #[test]
    fn what_came_went_and_fell_ill_is_named() {
        let ill = Health::Unhealthy { reason: "hot".to_owned() };
        let old = inventory(&[("a", Health::Healthy), ("b", Health::Healthy), ("c", Health::Healthy)], None);
        let new = inventory(&[("b", ill), ("c", Health::Healthy), ("d", Health::Healthy)], None);
        assert_eq!(text(&old, &new), ["a removed", "b Unhealthy", "d added"]);
        assert_eq!(text(&new, &new), [""; 0]);
    }

    #[test]
    fn a_failed_scan_is_one_change_and_so_is_its_end() {
        let (fresh, stale) =
            (inventory(&[("a", Health::Healthy)], None), inventory(&[("a", Health::Healthy)], Some("EIO")));
        assert_eq!(text(&fresh, &stale), [" stale: EIO"]);
        assert_eq!(text(&stale, &fresh), [" fresh"]);
        assert_eq!(text(&stale, &stale), [""; 0]);
    }
}
