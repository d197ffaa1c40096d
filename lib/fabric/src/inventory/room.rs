//! Memory that can be made for devices without any: which domain is theirs, and how much of it is free.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DeviceKind, DeviceMemory, FabricDevice, FabricInventory, InventoryProblem, MemoryChunk, MemoryDomain};
use crate::ObjectPath;

/// Memory that can be made for a device that has none: a chunk of a memory domain, made when the device is attached.
/// Devices of one domain share it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct MemoryRoom {
    /// The memory domain.
    pub domain: ObjectPath,
    /// The size of the domain without all chunks, in bytes.
    pub free_bytes: u64,
    /// The smallest chunk in bytes, at least one.
    pub least_bytes: u64,
    /// The step in which chunks grow in bytes, at least one.
    pub step_bytes: u64,
}

impl MemoryRoom {
    /// The size of the chunk that is made where so much is asked for; `None`: there is not so much. Where nothing is asked
    /// for, all that is free.
    pub fn chunk_bytes(&self, asked: Option<u64>) -> Option<u64> {
        let (least, step) = (self.least_bytes.max(1), self.step_bytes.max(1));
        let above = self.free_bytes.checked_sub(least)?;
        let most = least + above / step * step;
        let Some(asked) = asked else { return Some(most) };
        let size = least.checked_add(asked.saturating_sub(least).checked_next_multiple_of(step)?)?;
        (size <= most).then_some(size)
    }
}

/// Fills the memory domains, the memory and the room of devices. Domains and devices each may name the other; one side is
/// enough.
pub(super) fn link(inventory: &mut FabricInventory) {
    link_domains(inventory);
    let domains: BTreeMap<&ObjectPath, &MemoryDomain> =
        inventory.memory_domains.iter().map(|domain| (&domain.path, domain)).collect();
    let chunks = inventory.memory_domains.iter().flat_map(|domain| &domain.chunks);
    let chunks: BTreeMap<&ObjectPath, &MemoryChunk> = chunks.map(|chunk| (&chunk.path, chunk)).collect();
    for device in &mut inventory.devices {
        device.memory = memory_of(device, &domains, &chunks);
    }
    let mut problems = Vec::new();
    for device in inventory.devices.iter_mut().filter(|device| may_lack_memory(device)) {
        match room_of(device, &domains) {
            Ok(room) => device.room = room.map(Box::new),
            Err(problem) => problems.push(problem),
        }
    }
    inventory.problems.extend(problems);
}

fn link_domains(inventory: &mut FabricInventory) {
    let mut named_by: BTreeMap<&ObjectPath, Vec<&ObjectPath>> = BTreeMap::new();
    for domain in &inventory.memory_domains {
        domain.devices.iter().for_each(|device| named_by.entry(device).or_default().push(&domain.path));
    }
    for device in &mut inventory.devices {
        device.memory_domains.extend(named_by.remove(&device.path).into_iter().flatten().cloned());
        device.memory_domains.sort();
        device.memory_domains.dedup();
    }
}

fn memory_of(
    device: &FabricDevice,
    domains: &BTreeMap<&ObjectPath, &MemoryDomain>,
    chunks: &BTreeMap<&ObjectPath, &MemoryChunk>,
) -> DeviceMemory {
    let own = || device.chunks.iter().map(|path| chunks.get(path).copied());
    let is_open = |path: &&ObjectPath| domains.get(path).is_some_and(|domain| domain.allows_chunk_creation);
    DeviceMemory {
        has_chunks: !device.chunks.is_empty(),
        size_bytes: own().map(|chunk| chunk?.size_bytes).reduce(|sum, size| sum?.checked_add(size?)).flatten(),
        made_for: own().flatten().find_map(|chunk| chunk.made_for.clone()),
        open_domain: device.memory_domains.iter().find(is_open).cloned(),
    }
}

fn may_lack_memory(device: &FabricDevice) -> bool {
    device.chunks.is_empty() && device.kind != DeviceKind::Accelerator
}

/// The room of a device without memory. A contradiction is an error: no memory is made for the device.
fn room_of(
    device: &FabricDevice,
    domains: &BTreeMap<&ObjectPath, &MemoryDomain>,
) -> Result<Option<MemoryRoom>, InventoryProblem> {
    let of_device = |reason| InventoryProblem::new(&device.path, "Links.MemoryDomains", reason);
    if let Some(missing) = device.memory_domains.iter().find(|path| !domains.contains_key(path)) {
        return Err(of_device(format!("names {missing}, which does not exist; mend the link")));
    }
    let named = device.memory_domains.iter().filter_map(|path| domains.get(path).copied());
    let open: Vec<&MemoryDomain> = named.filter(|domain| domain.allows_chunk_creation).collect();
    match open[..] {
        [] => Ok(None),
        [domain] => room_in(domain),
        _ => {
            let paths = ObjectPath::list(open.iter().map(|domain| &domain.path));
            Err(of_device(format!("names several memory domains ({paths}), so that memory is made in none; leave one")))
        }
    }
}

/// The room in a domain. `None`: it is full.
fn room_in(domain: &MemoryDomain) -> Result<Option<MemoryRoom>, InventoryProblem> {
    if let Some(doubt) = &domain.doubt {
        return Err(InventoryProblem::new(&domain.path, "MemoryChunks", doubt));
    }
    // Each attempt would make one more of these, and none would ever be freed.
    if let Some(chunk) = domain.chunks.iter().find(|chunk| chunk.made_for.is_some() && chunk.devices.is_empty()) {
        let reason =
            "was made for a device and names none, so that no more are made; delete it, and report the manager";
        return Err(InventoryProblem::new(&chunk.path, "Links.CXLLogicalDevices", reason));
    }
    let (path, least_bytes, step_bytes) = (&domain.path, domain.least_bytes.max(1), domain.step_bytes.max(1));
    let room = |free_bytes| MemoryRoom { domain: path.clone(), free_bytes, least_bytes, step_bytes };
    match domain.free_bytes {
        Some(free) => Ok((free >= least_bytes).then(|| room(free))),
        None => unknown_size(domain).map_or(Ok(None), Err),
    }
}

/// The size that is not told; `None`: all are, and contradict each other, which is a problem of its own.
fn unknown_size(domain: &MemoryDomain) -> Option<InventoryProblem> {
    let reason = "is not told, so that the free memory of the domain is not known and none is made; tell it";
    let unsized_chunk = domain.chunks.iter().find(|chunk| chunk.size_bytes.is_none());
    match (domain.size_bytes, unsized_chunk) {
        (None, _) => Some(InventoryProblem::new(&domain.path, "MemorySizeMiB", reason)),
        (Some(_), chunk) => chunk.map(|chunk| InventoryProblem::new(&chunk.path, "MemoryChunkSizeMiB", reason)),
    }
}

#[cfg(test)]
mod tests;
