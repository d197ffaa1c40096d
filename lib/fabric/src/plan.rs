//! Decides from an inventory whether a request is carried out, was carried out before, or is refused. Pure.

mod memory;

use hostler_api::fabric::{DeviceIdentity, SystemUuid};

pub use self::memory::{PlannedChunk, plan_free};

use crate::{AttachKey, AttachRequest, FabricConnection, FabricDevice, FabricHost, FabricInventory, ObjectPath};

/// The next step for a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AttachStep {
    /// The request was carried out before: this is its connection.
    Already(FabricConnection),
    /// A connection is to be made.
    Connect(AttachPlan),
}

/// A connection that is to be made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AttachPlan {
    /// The key.
    pub key: AttachKey,
    /// The switch domain.
    pub domain: ObjectPath,
    /// The device.
    pub device: DeviceIdentity,
    /// The host.
    pub host: SystemUuid,
    /// The host's endpoints in the domain.
    pub initiators: Vec<ObjectPath>,
    /// The device's endpoints in the domain.
    pub targets: Vec<ObjectPath>,
    /// The chunks that the connection names.
    pub chunks: Vec<ObjectPath>,
    /// The chunk that is made before, so that the connection can name it. `None`: the device has its memory.
    pub make: Option<PlannedChunk>,
}

/// The reason why a request is refused before anything is changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AttachRefusal {
    /// The key was used for another request.
    #[error("key {key} is used for {devices} on host {host} already; use another key")]
    KeyInUse {
        /// The key.
        key: AttachKey,
        /// The devices or chunks of the connection.
        devices: String,
        /// The host of the connection.
        host: String,
    },
    /// Another connection holds the device.
    #[error("device {device} is held by connection {connection} for host {host}; detach that one first")]
    DeviceHeld {
        /// The device.
        device: DeviceIdentity,
        /// Id of the connection.
        connection: String,
        /// The host of the connection.
        host: String,
    },
    /// Another host holds a device that shows the same memory.
    #[error(
        "device {device} shares chunk {chunk} with a device that connection {connection} holds for host {host}; detach \
         that one first"
    )]
    MemoryHeld {
        /// The device.
        device: DeviceIdentity,
        /// The shared chunk.
        chunk: ObjectPath,
        /// Id of the connection.
        connection: String,
        /// The host of the connection.
        host: String,
    },
    /// Another device shows the memory that was made for this one.
    #[error("chunk {chunk} was made for device {device} alone and is shown by {devices}; let one device show it")]
    MemoryShared {
        /// The device.
        device: DeviceIdentity,
        /// The chunk.
        chunk: ObjectPath,
        /// The paths of all devices that show it.
        devices: String,
    },
    /// No host has the UUID.
    #[error("the manager knows no host {host}; compare the UUIDs of its systems with the systemUUID of the Node")]
    UnknownHost {
        /// The UUID.
        host: SystemUuid,
    },
    /// The manager contradicts itself about the host.
    #[error("host {host} is not used: {reason}")]
    UnusableHost {
        /// The UUID.
        host: SystemUuid,
        /// The contradiction and its fix.
        reason: String,
    },
    /// The manager has no such device.
    #[error("the manager has no {target}; list its inventory")]
    UnknownTarget {
        /// The device.
        target: String,
    },
    /// The manager contradicts itself about the device.
    #[error("device {device} is not attached: {reason}")]
    UnusableDevice {
        /// The device.
        device: String,
        /// The contradiction and its fix.
        reason: String,
    },
    /// The memory domain of the device has not so much free memory.
    #[error(
        "device {device} has no memory, and {asked} bytes cannot be made for it: {free} bytes of memory domain {domain} \
         are free in chunks from {least} bytes on in steps of {step}; others: {others}; ask for less, or free some"
    )]
    NoRoom {
        /// The device.
        device: DeviceIdentity,
        /// The memory domain.
        domain: ObjectPath,
        /// The size that was asked for, in bytes.
        asked: u64,
        /// The free size in bytes.
        free: u64,
        /// The smallest chunk in bytes.
        least: u64,
        /// The step of chunks in bytes.
        step: u64,
        /// The chunks of the domain with their devices and hosts.
        others: String,
    },
    /// The device has no memory, and none is made for it.
    #[error(
        "device {device} has no memory, and none ({asked} bytes asked for) can be made for it: it has no memory domain \
         that lets clients make chunks and tells its free size; see the problems of the manager's inventory"
    )]
    NoMemory {
        /// The device.
        device: DeviceIdentity,
        /// The size that was asked for, in bytes; 0: all that is free.
        asked: u64,
    },
    /// The memory that was made for the device at another request is smaller.
    #[error(
        "device {device} has {size} bytes of memory that was made for another request (chunk {chunk}), and {asked} bytes \
         are asked for; free the memory of the device first"
    )]
    MemoryTooSmall {
        /// The device.
        device: DeviceIdentity,
        /// The chunk.
        chunk: ObjectPath,
        /// The size that the manager shows, in bytes; 0 where it shows none.
        size: u64,
        /// The size that was asked for, in bytes.
        asked: u64,
    },
    /// The host and the device have no switch domain in common.
    #[error(
        "host {host} and device {device} have no endpoints in one fabric; cable them to one, or choose another device"
    )]
    Apart {
        /// The host.
        host: SystemUuid,
        /// The device.
        device: DeviceIdentity,
    },
}

/// Decides what a request takes.
///
/// # Errors
/// When the request is refused: nothing has been changed, and repeating it changes nothing until the cause is gone.
pub fn plan_attach(inventory: &FabricInventory, request: &AttachRequest) -> Result<AttachStep, AttachRefusal> {
    if let Some(connection) = inventory.connection(&request.key) {
        return repeated(inventory, request, connection).map(AttachStep::Already);
    }
    let host = usable_host(inventory, &request.host)?;
    let device = usable_device(inventory, request.device)?;
    let chunks = own_chunks(inventory, device);
    check_free(inventory, device, request.device, &request.host)?;
    let (domain, initiators, targets) = common_domain(inventory, host, device)
        .ok_or(AttachRefusal::Apart { host: request.host.clone(), device: request.device })?;
    let make = memory::plan_chunk(inventory, device, request)?;
    let (key, host, device) = (request.key.clone(), request.host.clone(), request.device);
    Ok(AttachStep::Connect(AttachPlan { key, domain, device, host, initiators, targets, chunks, make }))
}

/// True if a connection is that of a request.
pub(crate) fn is_of(inventory: &FabricInventory, request: &AttachRequest, connection: &FabricConnection) -> bool {
    let own = inventory.device(request.device).map(|device| own_chunks(inventory, device)).unwrap_or_default();
    let has_all = connection.chunks.is_empty() || own.iter().all(|chunk| connection.chunks.contains(chunk));
    connection.devices == [request.device] && has_all && connection.host.as_ref() == Some(&request.host)
}

fn repeated(
    inventory: &FabricInventory,
    request: &AttachRequest,
    connection: &FabricConnection,
) -> Result<FabricConnection, AttachRefusal> {
    if is_of(inventory, request, connection) {
        return Ok(connection.clone());
    }
    let (key, host) = (request.key.clone(), connection.host_text());
    Err(AttachRefusal::KeyInUse { key, devices: devices_text(connection), host })
}

/// The devices of a connection for people.
pub(crate) fn devices_text(connection: &FabricConnection) -> String {
    let devices = connection.devices.iter().map(ToString::to_string);
    let chunks = connection.chunks.iter().map(ToString::to_string);
    let all: Vec<String> = devices.chain(chunks).collect();
    if all.is_empty() { "no known device".to_owned() } else { all.join(", ") }
}

fn usable_host<'a>(inventory: &'a FabricInventory, uuid: &SystemUuid) -> Result<&'a FabricHost, AttachRefusal> {
    let host = inventory.host(uuid).ok_or_else(|| AttachRefusal::UnknownHost { host: uuid.clone() })?;
    let reason = match &host.unusable {
        Some(reason) => reason.clone(),
        None if host.initiators.is_empty() => {
            format!("{} has no endpoint in a fabric; cable it to a switch", host.path)
        }
        None => return Ok(host),
    };
    Err(AttachRefusal::UnusableHost { host: uuid.clone(), reason })
}

fn usable_device(inventory: &FabricInventory, identity: DeviceIdentity) -> Result<&FabricDevice, AttachRefusal> {
    let device = known_device(inventory, identity)?;
    match &device.unusable {
        None => Ok(device),
        Some(reason) => {
            let (device, reason) = (device.path.to_string(), reason.clone());
            Err(AttachRefusal::UnusableDevice { device, reason })
        }
    }
}

/// The device with an identity.
pub(crate) fn known_device(
    inventory: &FabricInventory,
    identity: DeviceIdentity,
) -> Result<&FabricDevice, AttachRefusal> {
    let unknown = || AttachRefusal::UnknownTarget { target: format!("device {identity}") };
    inventory.device(identity).ok_or_else(unknown)
}

/// The chunks that no other device shows.
fn own_chunks(inventory: &FabricInventory, device: &FabricDevice) -> Vec<ObjectPath> {
    let is_own = |path: &&ObjectPath| inventory.chunk(path).is_some_and(|chunk| chunk.devices.len() == 1);
    device.chunks.iter().filter(is_own).cloned().collect()
}

/// Refuses a device that is held, or whose memory another host has through another device.
fn check_free(
    inventory: &FabricInventory,
    device: &FabricDevice,
    identity: DeviceIdentity,
    host: &SystemUuid,
) -> Result<(), AttachRefusal> {
    check_unheld(inventory, identity)?;
    for chunk in device.chunks.iter().filter_map(|path| inventory.chunk(path)) {
        let neighbours = chunk.devices.iter().filter_map(|path| inventory.device_at(path)?.identity);
        let by_device = neighbours.flat_map(|neighbour| inventory.connections_of(neighbour));
        let by_chunk = inventory.connections.iter().filter(|it| it.chunks.contains(&chunk.path));
        if let Some(holder) = by_device.chain(by_chunk).find(|it| it.host.as_ref() != Some(host)) {
            let (connection, host) = (holder.id.clone(), holder.host_text());
            let chunk = chunk.path.clone();
            return Err(AttachRefusal::MemoryHeld { device: identity, chunk, connection, host });
        }
    }
    Ok(())
}

/// Refuses a device that a connection holds.
fn check_unheld(inventory: &FabricInventory, device: DeviceIdentity) -> Result<(), AttachRefusal> {
    let Some(holder) = inventory.connections_of(device).next() else { return Ok(()) };
    let (connection, host) = (holder.id.clone(), holder.host_text());
    Err(AttachRefusal::DeviceHeld { device, connection, host })
}

/// The first domain in which both have endpoints, and the endpoints of each.
fn common_domain(
    inventory: &FabricInventory,
    host: &FabricHost,
    device: &FabricDevice,
) -> Option<(ObjectPath, Vec<ObjectPath>, Vec<ObjectPath>)> {
    let within = |paths: &[ObjectPath], domain: &ObjectPath| -> Vec<ObjectPath> {
        let is_within = |path: &&ObjectPath| inventory.endpoint(path).is_some_and(|it| it.domain == *domain);
        paths.iter().filter(is_within).cloned().collect()
    };
    inventory.domains.iter().find_map(|domain| {
        let (initiators, targets) = (within(&host.initiators, &domain.path), within(&device.endpoints, &domain.path));
        let is_common = !initiators.is_empty() && !targets.is_empty();
        is_common.then(|| (domain.path.clone(), initiators, targets))
    })
}

#[cfg(test)]
mod tests;
