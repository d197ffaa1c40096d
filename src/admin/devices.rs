//! Devices over the admin socket: who holds them, and taken out of service.

use std::collections::{BTreeMap, BTreeSet};

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use hostler_api::{BackendName, DeviceName};
use hostler_backend::{Device, Sharing};

use super::{
    AdminFailure, AdminService,
    types::{AdminDevice, AdminDeviceDetails, AdminDrain, DrainDevice},
};
use crate::{
    claims::ClaimTable,
    inventory::{
        Drain, Inventory, UnknownPool,
        drains::DrainError,
        lookup::{DeviceKey, lookup},
    },
};

/// All devices that are there, drained or held.
pub(super) async fn list(State(admin): State<AdminService>) -> Json<Vec<AdminDevice>> {
    let inventory = admin.0.inventory.reader().latest();
    let claims = admin.0.claims.table().borrow().clone();
    Json(devices(&inventory, &claims))
}

/// One device, with what claims can ask of it.
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

/// What stands in the inventory's JSON.
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
    // It may be known by nothing but its drain, and be shown for the last time.
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
    /// The device that is meant by `name`.
    pub(super) fn device(&self, name: &str) -> Result<DeviceKey, AdminFailure> {
        let inventory = self.0.inventory.reader().latest();
        let claims = self.0.claims.table().borrow().clone();
        let known: BTreeSet<DeviceKey> = all(&inventory, &claims).into_keys().collect();
        lookup(name, &known).map_err(|error| {
            // What is not found may be a device of a backend that has not told what it has.
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

/// The word of the inventory's JSON.
fn sharing(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Exclusive => "Exclusive",
        Sharing::Shared => "Shared",
    }
}

/// What is known of a device, from different sides.
#[derive(Default)]
struct KnownDevice<'a> {
    device: Option<&'a Device>,
    drain: Option<&'a Drain>,
    pool: Option<&'a str>,
    holders: BTreeSet<String>,
}

/// Every device that anybody knows of.
fn all<'a>(inventory: &'a Inventory, claims: &'a ClaimTable) -> BTreeMap<DeviceKey, KnownDevice<'a>> {
    let mut all: BTreeMap<DeviceKey, KnownDevice<'a>> = BTreeMap::new();
    for (backend, pool) in &inventory.pools {
        for device in &pool.devices {
            let known = all.entry((backend.clone(), device.name.clone())).or_default();
            (known.device, known.pool) = (Some(device), Some(pool.name.as_str()));
        }
    }
    for (key, drain) in &inventory.drains {
        all.entry(key.clone()).or_default().drain = Some(drain);
    }
    for (uid, view) in &claims.claims {
        let holder = view.claim().map_or_else(|| uid.to_string(), |claim| claim.full_name());
        for held in view.devices() {
            let known = all.entry((held.backend.clone(), held.grant.device.clone())).or_default();
            known.pool = known.pool.or(Some(&held.grant.pool));
            known.holders.insert(holder.clone());
        }
    }
    all
}

fn devices(inventory: &Inventory, claims: &ClaimTable) -> Vec<AdminDevice> {
    let pool_of = |backend: &BackendName| inventory.pools.get(backend).map(|pool| pool.name.as_str());
    let shown = |((backend, name), known): ((BackendName, DeviceName), KnownDevice<'_>)| AdminDevice {
        name: name.to_string(),
        pool: known.pool.or_else(|| pool_of(&backend)).unwrap_or_default().to_owned(),
        health: match (known.device, inventory.unknown.contains_key(&backend)) {
            (Some(device), _) => device.health.as_str(),
            (None, true) => "Unknown",
            (None, false) => "Absent",
        }
        .to_owned(),
        health_reason: match known.device {
            Some(device) => device.health.reason().map(str::to_owned),
            None => inventory.unknown.get(&backend).map(|unknown| unknown.reason.clone()),
        },
        drained: known.drain.map(|drain| AdminDrain {
            since: drain.since_unix(),
            reason: drain.reason.clone(),
            evict: drain.evict,
        }),
        holders: known.holders.into_iter().collect(),
        backend: backend.to_string(),
        sharing: known.device.map(|device| sharing(device.sharing).to_owned()),
    };
    all(inventory, claims).into_iter().map(shown).collect()
}
