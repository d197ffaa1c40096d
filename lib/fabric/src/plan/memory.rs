//! Decides which memory is made for a device, and which is freed. Pure.

use hostler_api::fabric::DeviceIdentity;

use super::{AttachRefusal, check_unheld, known_device, own_chunks};
use crate::{
    AttachKey, AttachRequest, DeviceKind, FabricDevice, FabricInventory, MemoryChunk, MemoryDomain, ObjectPath,
};

/// Messages list so many chunks of a domain: more than a device has logical devices.
const MOST_LISTED: usize = 16;

/// A chunk that is to be made for a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlannedChunk {
    /// The memory domain.
    pub domain: ObjectPath,
    /// The path of the device.
    pub device: ObjectPath,
    /// The size in bytes.
    pub size_bytes: u64,
}

/// Decides which chunk is made for a usable device. `None`: the device has its memory, or memory is none of its matters.
pub(super) fn plan_chunk(
    inventory: &FabricInventory,
    device: &FabricDevice,
    request: &AttachRequest,
) -> Result<Option<PlannedChunk>, AttachRefusal> {
    if !device.chunks.is_empty() {
        return check_made(inventory, device, request).map(|()| None);
    }
    if device.kind == DeviceKind::Accelerator || (request.memory.is_none() && open(inventory, device).next().is_none())
    {
        return Ok(None);
    }
    let planned = device.room.as_ref().and_then(|room| {
        let size_bytes = room.chunk_bytes(request.memory)?;
        Some(PlannedChunk { domain: room.domain.clone(), device: device.path.clone(), size_bytes })
    });
    planned.map(Some).ok_or_else(|| no_room(inventory, device, request))
}

/// The domains of a device in which clients make chunks.
fn open<'a>(inventory: &'a FabricInventory, device: &'a FabricDevice) -> impl Iterator<Item = &'a MemoryDomain> {
    let domains = device.memory_domains.iter().filter_map(|path| inventory.memory_domain(path));
    domains.filter(|domain| domain.allows_chunk_creation)
}

/// Refuses memory that was made for the device and is less than what is asked for. Memory that a person has made is the
/// device's size, which the caller knows.
fn check_made(
    inventory: &FabricInventory,
    device: &FabricDevice,
    request: &AttachRequest,
) -> Result<(), AttachRefusal> {
    let chunks: Vec<&MemoryChunk> = device.chunks.iter().filter_map(|path| inventory.chunk(path)).collect();
    let (Some(asked), Some(made)) = (request.memory, chunks.iter().find(|chunk| chunk.made_for.is_some())) else {
        return Ok(());
    };
    let own = own_chunks(inventory, device);
    let size = chunks.iter().filter(|chunk| own.contains(&chunk.path)).filter_map(|chunk| chunk.size_bytes);
    let size = size.fold(0, u64::saturating_add);
    if size >= asked {
        return Ok(());
    }
    Err(AttachRefusal::MemoryTooSmall { device: request.device, chunk: made.path.clone(), size, asked })
}

fn no_room(inventory: &FabricInventory, device: &FabricDevice, request: &AttachRequest) -> AttachRefusal {
    let mut open = open(inventory, device);
    let (domain, asked) = (open.next(), request.memory);
    let is_full = |domain: &&MemoryDomain| domain.free_bytes.is_some_and(|free| free < domain.least_bytes);
    // A domain that contradicts itself is not full: the size that it seems to have free would mislead.
    let Some(domain) = domain.filter(|domain| device.room.is_some() || (domain.doubt.is_none() && is_full(domain)))
    else {
        return AttachRefusal::NoMemory { device: request.device, asked: asked.unwrap_or_default() };
    };
    AttachRefusal::NoRoom {
        device: request.device,
        domain: domain.path.clone(),
        asked: asked.unwrap_or(domain.least_bytes),
        free: domain.free_bytes.unwrap_or_default(),
        least: domain.least_bytes,
        step: domain.step_bytes,
        others: chunks_text(inventory, domain),
    }
}

/// The chunks of a domain with their devices and hosts, for people.
fn chunks_text(inventory: &FabricInventory, domain: &MemoryDomain) -> String {
    let holders = |chunk: &MemoryChunk| {
        let identities = chunk.devices.iter().filter_map(|path| inventory.device_at(path)?.identity);
        let holder = |identity| {
            let hosts: Vec<String> = inventory.connections_of(identity).map(|it| it.host_text()).collect();
            let hosts = if hosts.is_empty() { "no host".to_owned() } else { hosts.join(", ") };
            format!("device {identity} on {hosts}")
        };
        let holders: Vec<String> = identities.map(holder).collect();
        if holders.is_empty() { "no known device".to_owned() } else { holders.join(" and ") }
    };
    let text = |chunk: &MemoryChunk| {
        let size = chunk.size_bytes.map_or_else(|| "an unknown size".to_owned(), |size| format!("{size} bytes"));
        format!("{} has {size} for {}", chunk.path, holders(chunk))
    };
    let mut texts: Vec<String> = domain.chunks.iter().take(MOST_LISTED).map(text).collect();
    match domain.chunks.len().saturating_sub(MOST_LISTED) {
        0 => {}
        more => texts.push(format!("and {more} more")),
    }
    if texts.is_empty() { "no chunk".to_owned() } else { texts.join(", ") }
}

/// The chunks that are deleted when the memory of a device is freed: those that were made under the key. None: there is nothing to
/// do.
///
/// # Errors
/// When the memory is kept: nothing has been changed.
pub fn plan_free(
    inventory: &FabricInventory,
    identity: DeviceIdentity,
    key: &AttachKey,
) -> Result<Vec<ObjectPath>, AttachRefusal> {
    let device = known_device(inventory, identity)?;
    let chunks = device.chunks.iter().filter_map(|path| inventory.chunk(path));
    let made: Vec<&MemoryChunk> = chunks.filter(|chunk| chunk.made_for.as_ref() == Some(key)).collect();
    if made.is_empty() {
        return Ok(Vec::new());
    }
    check_unheld(inventory, identity)?;
    for chunk in &made {
        if let Some(holder) = inventory.connections.iter().find(|it| it.chunks.contains(&chunk.path)) {
            let (chunk, connection, host) = (chunk.path.clone(), holder.id.clone(), holder.host_text());
            return Err(AttachRefusal::MemoryHeld { device: identity, chunk, connection, host });
        }
        if chunk.devices.len() > 1 {
            let (chunk, devices) = (chunk.path.clone(), ObjectPath::list(chunk.devices.iter()));
            return Err(AttachRefusal::MemoryShared { device: identity, chunk, devices });
        }
    }
    Ok(made.iter().map(|chunk| chunk.path.clone()).collect())
}
