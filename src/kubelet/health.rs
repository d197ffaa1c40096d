//! Reports the health of devices to the kubelet, in both versions of the API.
//!
//! Each stream begins with the health of all devices, repeats it before the kubelet's patience ends, and reports
//! changes of devices at once. A slow reader misses only states that are already over: a report is made when it can be
//! sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::{ClaimUid, DeviceName, few};
use hostler_backend::{Device, Health};
use hostler_proto::{
    health_v1::{self as v1, dra_resource_health_server::DraResourceHealth as V1Api},
    health_v1alpha1::{self as v1alpha1, dra_resource_health_server::DraResourceHealth as V1Alpha1Api},
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use crate::{
    claims::{ClaimTable, ClaimsHandle},
    inventory::{Inventory, InventoryReader},
    tasks::Tasks,
};

/// Time for which the kubelet believes a report: the kubelet's own default, stated explicitly.
const BELIEVED: Duration = Duration::from_secs(30);
/// Period of repeated reports. Two may be lost before the kubelet stops believing the last one.
const RESEND: Duration = Duration::from_secs(10);
/// Time in which changes of claims are collected. Only claims on devices that are gone matter to a report, and to tell
/// takes a look at all devices.
const SETTLE: Duration = Duration::from_secs(1);
/// Longest message in bytes. The kubelet cuts longer messages, and may cut a character in two.
const MAX_MESSAGE: usize = 1024;
/// Devices in one message. With the longest names and messages they take 1.5 MB; the kubelet refuses more than 4 MiB.
const MAX_DEVICES: usize = 1000;

/// Serves the health API. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct HealthService {
    inventory: InventoryReader,
    claims_rx: watch::Receiver<Option<ClaimsHandle>>,
    tasks: Tasks,
}

type Reports<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl HealthService {
    /// Makes the service on top of the inventory and of the table of claims that hold devices.
    pub(super) fn new(
        inventory: InventoryReader,
        claims_rx: watch::Receiver<Option<ClaimsHandle>>,
        tasks: Tasks,
    ) -> Self {
        Self { inventory, claims_rx, tasks }
    }

    /// Starts a stream. It ends when the reader goes, or the daemon.
    fn watch(&self) -> ReceiverStream<Result<v1::NodeWatchResourcesResponse, Status>> {
        // One message waits for the reader; the next is made when that one is taken.
        let (reports_tx, reports_rx) = mpsc::channel(1);
        let (inventory_rx, mut claims_rx) = (self.inventory.subscribe(), self.claims_rx.clone());
        let stop = self.tasks.stop_token();
        self.tasks.job(async move {
            let reporting = async {
                // The devices that claims hold are not known before claims are recovered; meanwhile the kubelet
                // believes the last report.
                let table_rx = match claims_rx.wait_for(Option::is_some).await.as_deref() {
                    Ok(Some(claims)) => claims.table(),
                    _ => return Err(StreamEnded),
                };
                HealthWatch { inventory_rx, table_rx }.report_to(&reports_tx).await
            };
            tokio::select! {
                // Cancel safe: a report that was not sent does not matter to a reader that is told to come back.
                _ = reporting => {}
                // Cancel safe: both futures are without state.
                () = reports_tx.closed() => {}
                () = stop.cancelled() => {}
            }
        });
        ReceiverStream::new(reports_rx)
    }
}

#[tonic::async_trait]
impl V1Api for HealthService {
    type NodeWatchResourcesStream = Reports<v1::NodeWatchResourcesResponse>;

    async fn node_watch_resources(
        &self,
        _: Request<v1::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        Ok(Response::new(Box::pin(self.watch())))
    }
}

#[tonic::async_trait]
impl V1Alpha1Api for HealthService {
    type NodeWatchResourcesStream = Reports<v1alpha1::NodeWatchResourcesResponse>;

    async fn node_watch_resources(
        &self,
        _: Request<v1alpha1::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        Ok(Response::new(Box::pin(self.watch().map(|report| report.map(to_v1alpha1)))))
    }
}

/// The source of one stream.
struct HealthWatch {
    inventory_rx: watch::Receiver<Arc<Inventory>>,
    table_rx: watch::Receiver<Arc<ClaimTable>>,
}

/// The end of a stream: its reader has gone, or a task that it reads from.
struct StreamEnded;

impl HealthWatch {
    async fn report_to(
        mut self,
        reports_tx: &mpsc::Sender<Result<v1::NodeWatchResourcesResponse, Status>>,
    ) -> Result<(), StreamEnded> {
        loop {
            // Only this task sends, so the room stays: the report states what is true once there is room.
            drop(reports_tx.reserve().await.map_err(|_| StreamEnded)?);
            let resend = Instant::now() + RESEND;
            let sent = self.states();
            let now = unix_seconds();
            // An empty report still tells the kubelet that the stream works.
            for part in parts(&sent) {
                let devices = part.iter().map(|(id, state)| message(id, state, now)).collect();
                reports_tx.send(Ok(v1::NodeWatchResourcesResponse { devices })).await.map_err(|_| StreamEnded)?;
            }
            self.wait_until_other(&sent, resend).await?;
        }
    }

    /// Waits until the report changes, or must be repeated.
    async fn wait_until_other(
        &mut self,
        sent: &[(DeviceId, ReportedHealth)],
        resend: Instant,
    ) -> Result<(), StreamEnded> {
        while self.states() == sent {
            tokio::select! {
                // Cancel safe: a change that was not taken is still marked as unseen.
                changed = self.inventory_rx.changed() => changed.map_err(|_| StreamEnded)?,
                changed = self.table_rx.changed() => {
                    changed.map_err(|_| StreamEnded)?;
                    self.settle().await?;
                }
                // Cancel safe: the deadline is absolute.
                () = sleep_until(resend) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Lets claims come and go for a while, or until devices change.
    async fn settle(&mut self) -> Result<(), StreamEnded> {
        timeout(SETTLE, self.inventory_rx.changed()).await.map_or(Ok(()), |changed| changed.map_err(|_| StreamEnded))
    }

    fn states(&mut self) -> Vec<(DeviceId, ReportedHealth)> {
        let inventory = self.inventory_rx.borrow_and_update().clone();
        let table = self.table_rx.borrow_and_update().clone();
        states(&inventory, table.held_devices())
    }
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct DeviceId {
    pool: String,
    device: String,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct ReportedHealth {
    health: v1::HealthStatus,
    message: String,
}

/// Health of every device that exists, and of every device that is gone, or may be, while a claim holds it. `held`:
/// pool, device and holder.
fn states<'a>(
    inventory: &Inventory,
    held: impl Iterator<Item = (&'a str, &'a DeviceName, &'a ClaimUid)>,
) -> Vec<(DeviceId, ReportedHealth)> {
    let mut states = Vec::new();
    let mut present = BTreeSet::new();
    for pool in inventory.pools.values() {
        for device in &pool.devices {
            present.insert((pool.name.as_str(), device.name.as_str()));
            let id = DeviceId { pool: pool.name.clone(), device: device.name.to_string() };
            states.push((id, state(device, pool.stale.as_deref())));
        }
    }
    let mut missing: BTreeMap<(&str, &str), BTreeSet<&ClaimUid>> = BTreeMap::new();
    for (pool, device, holder) in held {
        if present.contains(&(pool, device.as_str())) {
            continue;
        }
        match inventory.find(pool, device.as_str()) {
            // The kubelet knows a device behind a switch by the names that the claim was given, of whichever claim.
            Some((backend, found)) => {
                present.insert((pool, device.as_str()));
                let stale = inventory.pools.get(backend).and_then(|pool| pool.stale.as_deref());
                states.push((DeviceId { pool: pool.to_owned(), device: device.to_string() }, state(found, stale)));
            }
            None => drop(missing.entry((pool, device.as_str())).or_default().insert(holder)),
        }
    }
    states.extend(missing.into_iter().map(|((pool, device), holders)| {
        let health = inventory.unknown_reason(pool).map_or_else(|| removed(&holders), unknown);
        (DeviceId { pool: pool.to_owned(), device: device.to_owned() }, health)
    }));
    states
}

/// Health of a device. If the last scan of its backend failed, the device was fine once, and its health is unknown now.
fn state(device: &Device, stale: Option<&str>) -> ReportedHealth {
    let health = match (&device.health, stale) {
        (Health::Healthy, None) => v1::HealthStatus::Healthy,
        (Health::Healthy, Some(_)) | (Health::Unknown { .. }, _) => v1::HealthStatus::Unknown,
        (Health::Unhealthy { .. }, _) => v1::HealthStatus::Unhealthy,
    };
    ReportedHealth { health, message: cut(device.health.reason().or(stale).unwrap_or_default()) }
}

/// Unknown health: the backend has told nothing since the start, so the device may be absent.
fn unknown(reason: &str) -> ReportedHealth {
    ReportedHealth { health: v1::HealthStatus::Unknown, message: cut(reason) }
}

fn removed(holders: &BTreeSet<&ClaimUid>) -> ReportedHealth {
    let message = format!("removed from this host while held by claim {}", few(holders));
    ReportedHealth { health: v1::HealthStatus::Unhealthy, message: cut(&message) }
}

/// Cuts a message to at most [`MAX_MESSAGE`] bytes, between characters.
fn cut(message: &str) -> String {
    const MARK: &str = "...";
    if message.len() <= MAX_MESSAGE {
        return message.to_owned();
    }
    let end = (0..=MAX_MESSAGE - MARK.len()).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{MARK}", &message[..end])
}

/// Splits states into messages: at least one, even if there are no states.
fn parts(states: &[(DeviceId, ReportedHealth)]) -> impl Iterator<Item = &[(DeviceId, ReportedHealth)]> {
    let nothing = states.is_empty().then_some(states);
    states.chunks(MAX_DEVICES).chain(nothing)
}

fn message(id: &DeviceId, state: &ReportedHealth, now: i64) -> v1::DeviceHealth {
    v1::DeviceHealth {
        device: Some(v1::DeviceIdentifier { pool_name: id.pool.clone(), device_name: id.device.clone() }),
        health: state.health.into(),
        last_updated_time: now,
        health_check_timeout_seconds: BELIEVED.as_secs().cast_signed(),
        message: state.message.clone(),
    }
}

fn unix_seconds() -> i64 {
    // A clock before 1970 gives 0, which the kubelet ignores like any other value.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

fn to_v1alpha1(report: v1::NodeWatchResourcesResponse) -> v1alpha1::NodeWatchResourcesResponse {
    let devices = report.devices.into_iter().map(|health| v1alpha1::DeviceHealth {
        device: health
            .device
            .map(|device| v1alpha1::DeviceIdentifier { pool_name: device.pool_name, device_name: device.device_name }),
        health: health.health,
        last_updated_time: health.last_updated_time,
        health_check_timeout_seconds: health.health_check_timeout_seconds,
        message: health.message,
    });
    v1alpha1::NodeWatchResourcesResponse { devices: devices.collect() }
}

#[cfg(test)]
mod tests;
