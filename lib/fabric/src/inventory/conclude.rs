//! Concludes an inventory from its parts: which endpoint leads to which host or device, and what contradicts what.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::fabric::{DeviceIdentity, SystemUuid};

use super::{FabricInventory, InventoryParts, InventoryProblem, held, room};
use crate::{FabricEndpoint, MemoryDomain, ObjectPath};

impl FabricInventory {
    /// Compares the parts with each other. Nothing is dropped: an object that contradicts another one is marked as
    /// unusable, and a problem says why.
    pub fn conclude(parts: InventoryParts) -> Self {
        let InventoryParts { domains, hosts, devices, endpoints, memory_domains, connections, problems } = parts;
        let mut inventory = Self { domains, hosts, devices, endpoints, memory_domains, connections, problems };
        inventory.sort();
        inventory.check_memory_domains();
        inventory.link_chunks();
        room::link(&mut inventory);
        inventory.link_initiators();
        inventory.adopt_identities();
        inventory.link_targets();
        inventory.check_endpoints();
        inventory.check_identities();
        inventory.check_hosts();
        held::link(&mut inventory);
        held::check(&mut inventory);
        inventory.problems.sort();
        inventory.problems.dedup();
        inventory
    }

    fn sort(&mut self) {
        self.domains.sort_by(|a, b| a.path.cmp(&b.path));
        self.hosts.sort_by(|a, b| a.path.cmp(&b.path));
        self.devices.sort_by(|a, b| a.path.cmp(&b.path));
        self.endpoints.sort_by(|a, b| a.path.cmp(&b.path));
        self.memory_domains.sort_by(|a, b| a.path.cmp(&b.path));
        self.connections.sort_by(|a, b| a.path.cmp(&b.path));
    }

    fn check_memory_domains(&mut self) {
        for domain in &mut self.memory_domains {
            domain.free_bytes = free_bytes(domain);
            let taken = taken_bytes(domain);
            if let (Some(size), Some(taken)) = (domain.size_bytes, taken)
                && taken > size
            {
                let reason = format!("its chunks have {taken} bytes and the domain {size}; delete a chunk");
                self.problems.push(InventoryProblem::new(&domain.path, "MemorySizeMiB", reason));
            }
        }
    }

    /// Chunks and devices each may name the other; one side is enough.
    fn link_chunks(&mut self) {
        let places: BTreeMap<ObjectPath, usize> =
            self.devices.iter().enumerate().map(|(at, device)| (device.path.clone(), at)).collect();
        let mut named_by: BTreeMap<ObjectPath, Vec<ObjectPath>> = BTreeMap::new();
        for device in &self.devices {
            for chunk in &device.chunks {
                named_by.entry(chunk.clone()).or_default().push(device.path.clone());
            }
        }
        for chunk in self.memory_domains.iter_mut().flat_map(|domain| &mut domain.chunks) {
            chunk.devices.extend(named_by.remove(&chunk.path).unwrap_or_default());
            chunk.devices.sort();
            chunk.devices.dedup();
            for path in &chunk.devices {
                match places.get(path) {
                    Some(&at) => self.devices[at].chunks.push(chunk.path.clone()),
                    None => {
                        let reason = format!("names {path}, which does not exist; delete the chunk or mend the link");
                        let field = "Links.CXLLogicalDevices";
                        self.problems.push(InventoryProblem::new(&chunk.path, field, reason));
                    }
                }
            }
        }
        for device in &mut self.devices {
            device.chunks.sort();
            device.chunks.dedup();
            let missing = device.chunks.iter().filter(|chunk| named_by.contains_key(chunk));
            for chunk in missing {
                let reason = format!("names {chunk}, which does not exist; mend the link");
                self.problems.push(InventoryProblem::new(&device.path, "Links.MemoryChunks", reason));
            }
        }
    }

    fn link_initiators(&mut self) {
        let places: BTreeMap<ObjectPath, usize> =
            self.hosts.iter().enumerate().map(|(at, host)| (host.path.clone(), at)).collect();
        for endpoint in self.endpoints.iter().filter(|endpoint| endpoint.is_initiator) {
            let owner = |entity: &ObjectPath| entity.and_above().find_map(|path| places.get(&path).copied());
            let owners: BTreeSet<usize> = endpoint.entities.iter().filter_map(owner).collect();
            for at in owners {
                let host = &mut self.hosts[at];
                host.domain.get_or_insert_with(|| endpoint.domain.clone());
                host.initiators.push(endpoint.path.clone());
            }
        }
    }

    /// Some managers tell the identity of a device at its endpoint only.
    fn adopt_identities(&mut self) {
        let mut told: BTreeMap<&ObjectPath, BTreeSet<DeviceIdentity>> = BTreeMap::new();
        for endpoint in &self.endpoints {
            for entity in &endpoint.entities {
                told.entry(entity).or_default().extend(&endpoint.identities);
            }
        }
        for device in self.devices.iter_mut().filter(|it| it.identity.is_none() && it.unusable.is_none()) {
            let told = told.get(&device.path).filter(|told| told.len() == 1);
            device.identity = told.and_then(|told| told.first().copied());
        }
    }

    fn link_targets(&mut self) {
        let behind = self.devices_behind();
        for device in &mut self.devices {
            device.endpoints.clear();
        }
        for (at, devices) in behind {
            let FabricEndpoint { path, domain, identities, .. } = self.endpoints[at].clone();
            let paths: Vec<String> = devices.iter().map(|&at| self.devices[at].path.to_string()).collect();
            for &device in &devices {
                let own = self.devices[device].identity;
                if devices.len() > 1 {
                    let reason = format!("leads to several devices ({}); give each its own endpoint", paths.join(", "));
                    self.spoil_device(device, &path, "ConnectedEntities", &reason);
                } else if let (Some(own), Some(told)) = (own, identities.first())
                    && !identities.contains(&own)
                {
                    let reason = format!("names {told}, but {} is {own}; give both the same name", paths.join(", "));
                    self.spoil_device(device, &path, "ConnectedEntities.Identifiers", &reason);
                } else {
                    self.devices[device].domain.get_or_insert(domain.clone());
                    self.devices[device].endpoints.push(path.clone());
                }
            }
        }
    }

    /// Positions of endpoints, each with those of the devices that it leads to: those that it names, and those that name
    /// it.
    fn devices_behind(&self) -> Vec<(usize, BTreeSet<usize>)> {
        let mut by_name: BTreeMap<&ObjectPath, BTreeSet<usize>> = BTreeMap::new();
        let mut by_identity: BTreeMap<DeviceIdentity, BTreeSet<usize>> = BTreeMap::new();
        for (at, device) in self.devices.iter().enumerate() {
            for name in device.endpoints.iter().chain([&device.path]) {
                by_name.entry(name).or_default().insert(at);
            }
            if let Some(identity) = device.identity {
                by_identity.entry(identity).or_default().insert(at);
            }
        }
        // A chunk leads to a device if it belongs to that one alone.
        for chunk in self.memory_domains.iter().flat_map(|domain| &domain.chunks) {
            if let [device] = &chunk.devices[..] {
                let owner = by_name.get(device).cloned().unwrap_or_default();
                by_name.entry(&chunk.path).or_default().extend(owner);
            }
        }
        let targets = self.endpoints.iter().enumerate().filter(|(_, endpoint)| !endpoint.is_initiator);
        let behind = targets.map(|(at, endpoint)| {
            let named = endpoint.entities.iter().chain([&endpoint.path]).filter_map(|path| by_name.get(path));
            let told = endpoint.identities.iter().filter_map(|identity| by_identity.get(identity));
            (at, named.chain(told).flatten().copied().collect::<BTreeSet<usize>>())
        });
        behind.collect()
    }

    fn check_endpoints(&mut self) {
        for endpoint in self.endpoints.iter().filter(|endpoint| endpoint.entities.is_empty()) {
            let missing: Vec<&str> = endpoint.missing.iter().map(ObjectPath::as_str).collect();
            let links = if missing.is_empty() { "nothing".to_owned() } else { missing.join(", ") };
            let reason = format!("links to nothing that exists ({links}); delete the endpoint or mend its links");
            self.problems.push(InventoryProblem::new(&endpoint.path, "ConnectedEntities", reason));
        }
    }

    fn check_identities(&mut self) {
        let mut owners: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for at in 0..self.devices.len() {
            let path = self.devices[at].path.clone();
            match self.devices[at].identity {
                None => {
                    let reason = "has no serial number in the format GCXLID; hosts cannot recognise the device";
                    self.spoil_device(at, &path, "Identifiers", reason);
                }
                Some(identity) if identity.serial == 0 => {
                    let reason = "has the serial number 0; give the device its serial number";
                    self.spoil_device(at, &path, "Identifiers", reason);
                }
                Some(identity) => owners.entry(identity).or_default().push(at),
            }
        }
        for (identity, owners) in owners.into_iter().filter(|(_, owners)| owners.len() > 1) {
            let paths: Vec<ObjectPath> = owners.iter().map(|&at| self.devices[at].path.clone()).collect();
            for &at in &owners {
                let own = self.devices[at].path.clone();
                let others = ObjectPath::list(paths.iter().filter(|path| **path != own));
                let reason = format!("has {identity}, as {others}; give each device its own serial number");
                self.spoil_device(at, &own, "Identifiers", &reason);
            }
        }
    }

    fn check_hosts(&mut self) {
        let mut owners: BTreeMap<&SystemUuid, Vec<&ObjectPath>> = BTreeMap::new();
        for host in &self.hosts {
            host.uuid.iter().for_each(|uuid| owners.entry(uuid).or_default().push(&host.path));
        }
        let mut reasons = Vec::new();
        for (at, host) in self.hosts.iter().enumerate() {
            let Some(uuid) = &host.uuid else {
                reasons.push((at, "has no UUID by which a Node could be recognised; set that of the board".to_owned()));
                continue;
            };
            let twins = owners.get(uuid).into_iter().flatten().copied().filter(|path| **path != host.path);
            let others = ObjectPath::list(twins);
            if !others.is_empty() {
                reasons.push((at, format!("is that of {others} too; give each system its own UUID")));
            }
        }
        for (at, reason) in reasons {
            let host = &mut self.hosts[at];
            let problem = InventoryProblem::new(&host.path, "UUID", reason);
            host.unusable.get_or_insert(problem.to_string());
            self.problems.push(problem);
        }
    }

    /// Marks a device as unusable because of a field of an object, and says so.
    pub(super) fn spoil_device(&mut self, at: usize, object: &ObjectPath, field: &str, reason: &str) {
        let problem = InventoryProblem::new(object, field, reason);
        if let Some(device) = self.devices.get_mut(at) {
            device.unusable.get_or_insert(problem.to_string());
        }
        self.problems.push(problem);
    }
}

/// The sizes of all chunks. `None`: the size of one is not told, or the sum is beyond all numbers.
fn taken_bytes(domain: &MemoryDomain) -> Option<u64> {
    domain.chunks.iter().try_fold(0_u64, |sum, chunk| sum.checked_add(chunk.size_bytes?))
}

fn free_bytes(domain: &MemoryDomain) -> Option<u64> {
    domain.size_bytes?.checked_sub(taken_bytes(domain)?)
}

#[cfg(test)]
mod tests;
