//! Taking a device from hosts: the expected connections are removed, or else the port of the device is disabled.

use hostler_api::fabric::DeviceIdentity;
use hyper::Method;
use serde_json::json;

use super::{FabricReading, RedfishClient, absent, detach::is_same, record::FabricRecord, service::WriteCall};
use crate::{
    AttachKey, ExpectedConnection, FabricConnection, FabricDevice, FabricError, FabricInventory, FabricOutcome,
    Isolation, ObjectPath, plan::known_device,
};

impl RedfishClient {
    pub(super) async fn isolate(
        &self,
        identity: DeviceIdentity,
        expected: &[ExpectedConnection],
    ) -> Result<FabricOutcome<Isolation>, FabricError> {
        let reading = self.reading(self.recent_hardware().await?).await?;
        let device = known_device(&reading.inventory, identity)?;
        let (meant, others): (Vec<&FabricConnection>, Vec<_>) = reading
            .inventory
            .connections_of(identity)
            .partition(|connection| expected.iter().any(|expected| expected.is(connection)));
        let mut removed = Vec::new();
        for connection in meant {
            match self.remove_connection(&reading, connection).await? {
                FabricOutcome::Done(()) => removed.push(connection.id.clone()),
                // The port of the device carries connections that are not expected.
                kept if !others.is_empty() => {
                    return Ok(kept.map(|()| Isolation::Removed { connections: Vec::new() }));
                }
                kept => return self.cut(&reading.inventory, device, kept).await,
            }
        }
        // Work under way would give the device to a host again.
        let is_meant = |key: &AttachKey| expected.contains(&ExpectedConnection::Key(key.clone()));
        if let Some(key) = self.operations.attaching(identity, is_meant)
            && let Some(operation) = self.running(&key).await?
        {
            return Ok(FabricOutcome::UnderWay(operation));
        }
        // A connection that another manager alone knows may hold the device.
        Ok(absent(&reading.records, FabricOutcome::Done(Isolation::Removed { connections: removed })))
    }

    async fn remove_connection(
        &self,
        reading: &FabricReading,
        connection: &FabricConnection,
    ) -> Result<FabricOutcome<()>, FabricError> {
        let has = |record: &&FabricRecord| {
            connection.path.is_within(&record.fabric) || connection.path.is_within(&record.collection())
        };
        let Some(record) = reading.records.iter().find(has) else {
            return Ok(FabricOutcome::not_done(format!("{} lies in no known fabric", connection.path)));
        };
        let Some(read) = record.read_connection(&connection.path).await? else { return Ok(FabricOutcome::Done(())) };
        if !is_same(&read.connection, connection) {
            let why = "was made anew while it was looked at; it is looked at again";
            return Ok(FabricOutcome::not_done(format!("{} {why}", connection.path)));
        }
        let key = read.connection.key.clone();
        self.remove(record, key.as_ref(), read).await
    }

    /// Disables the port of a device whose connection stays, if the port is the device's alone.
    async fn cut(
        &self,
        inventory: &FabricInventory,
        device: &FabricDevice,
        kept: FabricOutcome<()>,
    ) -> Result<FabricOutcome<Isolation>, FabricError> {
        let reason = match &kept {
            FabricOutcome::NotDone { reason } | FabricOutcome::Unknown { reason } => reason.clone(),
            FabricOutcome::Done(()) | FabricOutcome::UnderWay(_) => {
                return Ok(kept.map(|()| Isolation::Removed { connections: Vec::new() }));
            }
        };
        let unsupported = |why: &str| FabricError::Unsupported {
            service: self.name().to_owned(),
            step: "isolate the device",
            reason: format!("{reason}; {why}"),
        };
        let Some(port) = own_port(inventory, device) else {
            return Err(unsupported("and the device has no port of its own that could be disabled"));
        };
        let body = json!({"InterfaceEnabled": false});
        let service = &self.services.main;
        let etag = service.read(&port).await?.and_then(|read| read.etag);
        let call = WriteCall { method: Method::PATCH, path: &port, body: Some(&body), etag };
        let written = service.write(call).await;
        let is_disabled = |read: &super::service::ReadDocument| {
            read.document.at(&["InterfaceEnabled"]).and_then(serde_json::Value::as_bool) == Some(false)
        };
        match service.read(&port).await? {
            Some(read) if is_disabled(&read) => Ok(FabricOutcome::Done(Isolation::PortDisabled { port })),
            _ => match written {
                Ok(answer) if [404, 405, 501].contains(&answer.status) => {
                    Err(unsupported("and its port cannot be disabled"))
                }
                _ => Ok(FabricOutcome::Unknown {
                    reason: format!("{reason}; and port {port} does not show as disabled"),
                }),
            },
        }
    }
}

/// The port that leads to a device and to no other one.
fn own_port(inventory: &FabricInventory, device: &FabricDevice) -> Option<ObjectPath> {
    let endpoints = device.endpoints.iter().filter_map(|path| inventory.endpoint(path));
    let mut ports = endpoints.flat_map(|endpoint| &endpoint.ports);
    let is_shared = |port: &ObjectPath| {
        let others = inventory.devices.iter().filter(|other| other.path != device.path);
        let mut others = others.flat_map(|other| &other.endpoints).filter_map(|path| inventory.endpoint(path));
        others.any(|endpoint| endpoint.ports.contains(port))
    };
    ports.find(|port| !is_shared(port)).cloned()
}
