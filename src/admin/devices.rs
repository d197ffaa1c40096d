//! Devices over the admin socket: their holders, and drains.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AdminFailure, AdminService,
    types::{AdminDevice, AdminDeviceDetails, DrainDevice},
};
use crate::{
    claims::ClaimTable,
    inventory::{
        Drain, Inventory, UnknownPool,
        drains::DrainError,
        lookup::{DeviceKey, lookup},
    },
    usage::holders::{DeviceUsage, UsageHolder, known_devices, usage},
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};

/// Returns all devices that are there, drained or held.
pub(super) async fn list(State(admin): State<AdminService>) -> Json<Vec<AdminDevice>> {
    let inventory = admin.0.inventory.reader().latest();
    let claims = admin.0.claims.table().borrow().clone();
    Json(devices(&inventory, &claims))
}

/// Returns one device, with what claims can ask of it.
pub(super) async fn show(
    State(admin): State<AdminService>,
    Path(name): Path<String>,
) -> Result<Json<AdminDeviceDetails>, AdminFailure> {
    let key = admin.device(&name)?;
    let Json(device) = admin.shown(&key)?;
    let inventory = admin.0.inventory.reader().latest();
    let pool = inventory.pools.get(&key.0);
    let found = pool.and_then(|pool| pool.devices.iter().find(|device| device.name == key.1));
    let (attributes, capacity) =
        found.map(|found| (fields(&found.attributes), fields(&found.capacity))).unwrap_or_default();
    Ok(Json(AdminDeviceDetails { device, attributes, capacity }))
}

/// Fields of the inventory's JSON.
fn fields(shown: &impl serde::Serialize) -> BTreeMap<String, serde_json::Value> {
    // Both are maps whose keys are names.
    serde_json::to_value(shown).and_then(serde_json::from_value).unwrap_or_default()
}

/// Takes a device out of service, or gives its drain another reason.
pub(super) async fn drain(
    State(admin): State<AdminService>,
    Path(name): Path<String>,
    Json(wanted): Json<DrainDevice>,
) -> Result<Json<AdminDevice>, AdminFailure> {
    let (backend, device) = admin.device(&name)?;
    let drain = Drain::now(wanted.reason.filter(|reason| !reason.trim().is_empty()), wanted.evict);
    admin.0.inventory.drain(backend.clone(), device.clone(), drain).await.map_err(|error| failure(&error))?;
    admin.shown(&(backend, device))
}

/// Puts a device back into service.
pub(super) async fn undrain(
    State(admin): State<AdminService>,
    Path(name): Path<String>,
) -> Result<Json<AdminDevice>, AdminFailure> {
    let key = admin.device(&name)?;
    // A device that is known by its drain only is shown for the last time.
    let before = admin.shown(&key)?;
    admin.0.inventory.undrain(key.0.clone(), key.1.clone()).await.map_err(|error| failure(&error))?;
    Ok(admin.shown(&key).unwrap_or(Json(AdminDevice { drained: None, ..before.0 })))
}

/// Gives up a list of drained devices that cannot be understood.
pub(super) async fn forget(State(admin): State<AdminService>) -> Result<StatusCode, AdminFailure> {
    admin.0.inventory.forget_lost_drains().await.map_err(|error| failure(&error))?;
    Ok(StatusCode::NO_CONTENT)
}

fn failure(error: &DrainError) -> AdminFailure {
    let status = match error {
        DrainError::Lost(_) => StatusCode::CONFLICT,
        DrainError::File(_) | DrainError::Encode(_) => StatusCode::INTERNAL_SERVER_ERROR,
        DrainError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    };
    AdminFailure::new(status, error)
}

impl AdminService {
    /// Finds the device that is meant by `name`.
    pub(super) fn device(&self, name: &str) -> Result<DeviceKey, AdminFailure> {
        let inventory = self.0.inventory.reader().latest();
        let claims = self.0.claims.table().borrow().clone();
        let known: BTreeSet<DeviceKey> = known_devices(&inventory, &claims);
        lookup(name, &known).map_err(|error| {
            // A device that is not found may belong to a backend that has not reported its devices.
            let unknown = name.split_once('/').and_then(|(backend, _)| inventory.unknown.get(backend));
            match unknown {
                Some(UnknownPool { name: pool, reason }) => AdminFailure(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("nothing is known of the devices in pool {pool}: {reason}; try again"),
                ),
                None => AdminFailure::new(StatusCode::NOT_FOUND, &error),
            }
        })
    }

    fn shown(&self, (backend, device): &DeviceKey) -> Result<Json<AdminDevice>, AdminFailure> {
        let inventory = self.0.inventory.reader().latest();
        let claims = self.0.claims.table().borrow().clone();
        let found = devices(&inventory, &claims)
            .into_iter()
            .find(|shown| shown.backend == backend.as_str() && shown.name == device.as_str());
        let gone = || AdminFailure(StatusCode::NOT_FOUND, format!("device {backend}/{device} is not there any more"));
        found.map(Json).ok_or_else(gone)
    }
}

fn devices(inventory: &Inventory, claims: &ClaimTable) -> Vec<AdminDevice> {
    let (holders, devices) = usage(inventory, claims);
    devices.into_iter().map(|device| shown(device, &holders)).collect()
}

fn shown(device: DeviceUsage, holders: &[UsageHolder]) -> AdminDevice {
    AdminDevice {
        holders: device.holder_names(holders).into_iter().collect(),
        name: device.name,
        backend: device.backend,
        pool: device.pool,
        health: device.health.as_str().to_owned(),
        health_reason: device.health_reason,
        drained: device.drained,
        // The words of the inventory's JSON.
        sharing: device.shared.map(|shared| if shared { "Shared" } else { "Exclusive" }.to_owned()),
        amounts: device.amounts,
        blocked: device.blocked,
    }
}
