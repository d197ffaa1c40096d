//! The inventory of a fabric: switch domains, hosts, devices, memory and connections, and their contradictions. Pure:
//! a provider brings the parts as it has read them.

mod conclude;
mod held;
mod room;
mod shared;
mod watched;

use std::{fmt, sync::Arc};

use hostler_api::fabric::{DeviceIdentity, SystemUuid};
use serde::{Deserialize, Serialize};

pub use self::{
    room::MemoryRoom,
    watched::{WatchedDomain, WatchedInventory},
};

use crate::{AttachKey, ObjectPath};

/// Objects of a fabric as a provider has read them. Fields that only a comparison of objects can fill are empty.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct InventoryParts {
    /// The switch domains.
    pub domains: Vec<SwitchDomain>,
    /// The hosts; their `initiators` are filled by [`FabricInventory::conclude`].
    pub hosts: Vec<FabricHost>,
    /// The devices; their `endpoints` are those that the device itself names.
    pub devices: Vec<FabricDevice>,
    /// The endpoints of all domains.
    pub endpoints: Vec<FabricEndpoint>,
    /// The memory domains with their chunks.
    pub memory_domains: Vec<MemoryDomain>,
    /// The connections; their `host` and `devices` are filled by [`FabricInventory::conclude`].
    pub connections: Vec<FabricConnection>,
    /// Defects that the provider met while it read.
    pub problems: Vec<InventoryProblem>,
}

/// The inventory of a fabric manager, compared with itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FabricInventory {
    /// Switch domains, by path.
    pub domains: Vec<SwitchDomain>,
    /// Hosts, by path.
    pub hosts: Vec<FabricHost>,
    /// Devices, by path. Unusable ones are among them.
    pub devices: Vec<FabricDevice>,
    /// Endpoints, by path.
    pub endpoints: Vec<FabricEndpoint>,
    /// Memory domains, by path.
    pub memory_domains: Vec<MemoryDomain>,
    /// Connections, by path.
    pub connections: Vec<FabricConnection>,
    /// Contradictions and defects, one sentence each.
    pub problems: Vec<InventoryProblem>,
}

/// Health and state of an object, in the manager's own words: `OK`, `Enabled` and others. `None`: the manager tells none.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ObjectStatus {
    /// The health.
    pub health: Option<Arc<str>>,
    /// The state.
    pub state: Option<Arc<str>>,
}

/// A domain of switches: within one, each host can reach each device.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SwitchDomain {
    /// The path of the fabric.
    pub path: ObjectPath,
    /// The name that the manager shows.
    pub name: Option<String>,
    /// The UUID of the fabric as the manager writes it.
    pub uuid: Option<String>,
    /// Health and state.
    pub status: ObjectStatus,
}

/// A host behind a switch.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct FabricHost {
    /// The path of the system.
    pub path: ObjectPath,
    /// The UUID of the system. `None`: the manager tells none that can be used.
    pub uuid: Option<SystemUuid>,
    /// The endpoints through which the host initiates.
    pub initiators: Vec<ObjectPath>,
    /// The switch domain of the endpoints.
    pub domain: Option<ObjectPath>,
    /// Health and state.
    pub status: ObjectStatus,
    /// The reason why nothing is attached to the host.
    pub unusable: Option<String>,
}

/// The kind of a device.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum DeviceKind {
    /// Memory (CXL type 3).
    Memory,
    /// An accelerator (CXL type 1 or 2).
    Accelerator,
    /// The manager does not tell.
    #[default]
    Unknown,
}

/// A device, or the part of one that is attached by itself (a logical device).
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct FabricDevice {
    /// The path of the logical device.
    pub path: ObjectPath,
    /// Serial number and logical device. `None`: the manager tells none that can be used.
    pub identity: Option<DeviceIdentity>,
    /// The kind.
    pub kind: DeviceKind,
    /// The size of its memory in bytes, as far as the manager tells.
    pub size_bytes: Option<u64>,
    /// Health and state.
    pub status: ObjectStatus,
    /// The switch domain of its endpoints.
    pub domain: Option<ObjectPath>,
    /// The chassis that holds the device.
    pub enclosure: Option<ObjectPath>,
    /// The endpoints that lead to this device alone.
    pub endpoints: Vec<ObjectPath>,
    /// The chunks of memory that the device shows.
    pub chunks: Vec<ObjectPath>,
    /// The memory domains of the device: those that it names, and those that name it.
    pub memory_domains: Vec<ObjectPath>,
    /// Memory of the device as a whole.
    pub memory: DeviceMemory,
    /// The memory that can be made for the device. `None`: it has memory already, or no memory is made for it.
    pub room: Option<Box<MemoryRoom>>,
    /// The reason why the device is never attached.
    pub unusable: Option<String>,
}

/// The memory of a device as a whole: what its chunks and memory domains say of it, for readers that keep neither.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct DeviceMemory {
    /// True if the device shows chunks.
    pub has_chunks: bool,
    /// The size of all chunks in bytes. `None`: there are none, or the size of one is not told.
    pub size_bytes: Option<u64>,
    /// The key of the request for which the memory was made. `None`: the memory is the device's own, or there is none.
    pub made_for: Option<AttachKey>,
    /// The first memory domain of the device in which clients make chunks.
    pub open_domain: Option<ObjectPath>,
}

/// An end of a switch domain: a host's initiator or a device's target.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct FabricEndpoint {
    /// The path of the endpoint.
    pub path: ObjectPath,
    /// The switch domain.
    pub domain: ObjectPath,
    /// True if the endpoint is a host's.
    pub is_initiator: bool,
    /// Objects behind the endpoint that exist.
    pub entities: Vec<ObjectPath>,
    /// Objects that the endpoint names and that do not exist.
    pub missing: Vec<ObjectPath>,
    /// Identities that the endpoint itself names.
    pub identities: Vec<DeviceIdentity>,
    /// The ports behind the endpoint.
    pub ports: Vec<ObjectPath>,
}

/// Memory from which chunks are made.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct MemoryDomain {
    /// The path of the domain.
    pub path: ObjectPath,
    /// True if the manager lets clients make chunks (`AllowsMemoryChunkCreation`).
    pub allows_chunk_creation: bool,
    /// The size in bytes, as far as the manager tells.
    pub size_bytes: Option<u64>,
    /// The size without all chunks, in bytes. `None`: some size is not told, or the chunks are larger than the domain.
    pub free_bytes: Option<u64>,
    /// The smallest chunk in bytes.
    pub least_bytes: u64,
    /// The step in which chunks grow in bytes.
    pub step_bytes: u64,
    /// The paths of the devices for which chunks are made, as far as the domain names them.
    pub devices: Vec<ObjectPath>,
    /// The reason why there may be chunks that are not among these; `None`: there are none.
    pub doubt: Option<String>,
    /// The chunks that exist.
    pub chunks: Vec<MemoryChunk>,
}

/// A chunk of memory.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct MemoryChunk {
    /// The path of the chunk.
    pub path: ObjectPath,
    /// The size in bytes, as far as the manager tells.
    pub size_bytes: Option<u64>,
    /// The paths of the devices that show the chunk; several share it.
    pub devices: Vec<ObjectPath>,
    /// The key of the request for which the chunk was made. `None`: its name is no key, so that another program has made it.
    pub made_for: Option<AttachKey>,
}

/// A connection: a device, or chunks of it, attached to a host.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct FabricConnection {
    /// The path of the connection.
    pub path: ObjectPath,
    /// The Id that the manager shows.
    pub id: String,
    /// The key under which it was made. `None`: its name is no key, so that another program has made it.
    pub key: Option<AttachKey>,
    /// The host. `None`: no known host, or several.
    pub host: Option<SystemUuid>,
    /// The devices.
    pub devices: Vec<DeviceIdentity>,
    /// The chunks that the connection names.
    pub chunks: Vec<ObjectPath>,
    /// The endpoints of the host as the manager returns them.
    pub initiators: Vec<ObjectPath>,
    /// The endpoints of the devices as the manager returns them.
    pub targets: Vec<ObjectPath>,
    /// Health and state.
    pub status: ObjectStatus,
}

/// A sentence about an object that cannot be as the manager tells it.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct InventoryProblem {
    /// The object.
    pub object: ObjectPath,
    /// The field of the object.
    pub field: String,
    /// The mistake and its fix.
    pub reason: String,
}

impl Default for ObjectPath {
    fn default() -> Self {
        Self::new("")
    }
}

impl InventoryProblem {
    /// A mistake in a field of an object.
    pub fn new(object: &ObjectPath, field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { object: object.clone(), field: field.into(), reason: reason.into() }
    }
}

impl fmt::Display for InventoryProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.object, self.field, self.reason)
    }
}

impl FabricInventory {
    /// The device with an identity. Where several say that they have it, each of them is unusable.
    pub fn device(&self, identity: DeviceIdentity) -> Option<&FabricDevice> {
        self.devices.iter().find(|device| device.identity == Some(identity))
    }

    /// The device at a path.
    pub fn device_at(&self, path: &ObjectPath) -> Option<&FabricDevice> {
        self.devices.iter().find(|device| device.path == *path)
    }

    /// The chunk at a path.
    pub fn chunk(&self, path: &ObjectPath) -> Option<&MemoryChunk> {
        self.memory_domains.iter().flat_map(|domain| &domain.chunks).find(|chunk| chunk.path == *path)
    }

    /// The endpoint at a path.
    pub fn endpoint(&self, path: &ObjectPath) -> Option<&FabricEndpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.path == *path)
    }

    /// The connection that was made under a key.
    pub fn connection(&self, key: &AttachKey) -> Option<&FabricConnection> {
        self.connections.iter().find(|connection| connection.key.as_ref() == Some(key))
    }

    /// The memory domain at a path.
    pub fn memory_domain(&self, path: &ObjectPath) -> Option<&MemoryDomain> {
        self.memory_domains.iter().find(|domain| domain.path == *path)
    }

    /// The memory domains that a device has chunks of, or can have.
    pub(crate) fn domains_of<'a>(&'a self, device: &'a FabricDevice) -> impl Iterator<Item = &'a MemoryDomain> {
        let has_chunk = |domain: &MemoryDomain| domain.chunks.iter().any(|chunk| device.chunks.contains(&chunk.path));
        let is_its = move |domain: &&MemoryDomain| device.memory_domains.contains(&domain.path) || has_chunk(domain);
        self.memory_domains.iter().filter(is_its)
    }

    /// The memory domain of the memory that hostler made for a device. `None`: there is none.
    pub fn made_in(&self, identity: DeviceIdentity) -> Option<&MemoryDomain> {
        let device = self.device(identity)?;
        let is_of_device = |chunk: &MemoryChunk| chunk.made_for.is_some() && device.chunks.contains(&chunk.path);
        self.memory_domains.iter().find(|domain| domain.chunks.iter().any(is_of_device))
    }
}

impl FabricDevice {
    /// The state in which nothing can be done with the device, in the manager's words; `None`: it works, as far as the
    /// manager tells.
    pub fn broken(&self) -> Option<&str> {
        const NOT_WORKING: [&str; 3] = ["Absent", "Disabled", "UnavailableOffline"];
        self.status.state.as_deref().filter(|state| NOT_WORKING.contains(state))
    }
}

impl FabricConnection {
    /// The host for people: its UUID, or else the endpoints that the connection names.
    pub fn host_text(&self) -> String {
        match (&self.host, self.initiators.as_slice()) {
            (Some(host), _) => host.to_string(),
            (None, []) => "no host".to_owned(),
            (None, initiators) => {
                let paths: Vec<&str> = initiators.iter().map(ObjectPath::as_str).collect();
                format!("an unknown host at {}", paths.join(", "))
            }
        }
    }
}
