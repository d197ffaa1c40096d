//! Connections compared with hosts and devices: which holds what, and which hold one device together.

use std::collections::BTreeMap;

use hostler_api::fabric::{DeviceIdentity, SystemUuid};

use super::{FabricConnection, FabricHost, FabricInventory, InventoryProblem, MemoryChunk};
use crate::{AttachKey, ObjectPath};

/// Fills hosts and devices of connections.
pub(super) fn link(inventory: &mut FabricInventory) {
    let mut hosts: BTreeMap<&ObjectPath, Vec<&FabricHost>> = BTreeMap::new();
    for host in &inventory.hosts {
        host.initiators.iter().for_each(|path| hosts.entry(path).or_default().push(host));
    }
    let mut devices: BTreeMap<&ObjectPath, DeviceIdentity> = BTreeMap::new();
    for device in &inventory.devices {
        let Some(identity) = device.identity else { continue };
        devices.insert(&device.path, identity);
        devices.extend(device.endpoints.iter().map(|path| (path, identity)));
    }
    let chunks: BTreeMap<&ObjectPath, &MemoryChunk> =
        inventory.memory_domains.iter().flat_map(|it| &it.chunks).map(|chunk| (&chunk.path, chunk)).collect();
    let found: Vec<_> =
        inventory.connections.iter().map(|it| (host_of(&hosts, it), devices_of(&devices, &chunks, it))).collect();
    for (connection, (host, devices)) in inventory.connections.iter_mut().zip(found) {
        connection.host = host;
        connection.devices = devices;
    }
}

/// The one host of the endpoints that a connection names.
fn host_of(hosts: &BTreeMap<&ObjectPath, Vec<&FabricHost>>, connection: &FabricConnection) -> Option<SystemUuid> {
    let named: BTreeMap<&ObjectPath, &FabricHost> = connection
        .initiators
        .iter()
        .flat_map(|path| hosts.get(path).into_iter().flatten())
        .map(|host| (&host.path, *host))
        .collect();
    if named.len() == 1 { named.into_values().next()?.uuid.clone() } else { None }
}

fn devices_of(
    by_path: &BTreeMap<&ObjectPath, DeviceIdentity>,
    chunks: &BTreeMap<&ObjectPath, &MemoryChunk>,
    connection: &FabricConnection,
) -> Vec<DeviceIdentity> {
    let by_endpoint = connection.targets.iter().filter_map(|target| by_path.get(target).copied());
    let mut devices: Vec<DeviceIdentity> = by_endpoint.collect();
    for chunk in connection.chunks.iter().filter_map(|path| chunks.get(path)) {
        // Devices that share a chunk are told apart by the endpoint; without one, each of them is meant.
        if chunk.devices.len() == 1 || devices.is_empty() {
            devices.extend(chunk.devices.iter().filter_map(|path| by_path.get(path).copied()));
        }
    }
    devices.sort();
    devices.dedup();
    devices
}

/// Finds connections that contradict each other, or that name nothing.
pub(super) fn check(inventory: &mut FabricInventory) {
    let mut all_holders: BTreeMap<DeviceIdentity, Vec<String>> = BTreeMap::new();
    for connection in &inventory.connections {
        let text = format!("{} to {}", connection.path, connection.host_text());
        connection.devices.iter().for_each(|it| all_holders.entry(*it).or_default().push(text.clone()));
    }
    for at in 0..inventory.devices.len() {
        let Some(holders) = inventory.devices[at].identity.and_then(|it| all_holders.get(&it)) else { continue };
        if holders.len() > 1 {
            let path = inventory.devices[at].path.clone();
            let reason =
                format!("is in {} connections ({}); remove all but one of them", holders.len(), holders.join(", "));
            inventory.spoil_device(at, &path, "Links.Endpoints", &reason);
        }
    }
    let mut problems = Vec::new();
    let mut keys: BTreeMap<&AttachKey, &ObjectPath> = BTreeMap::new();
    for connection in &inventory.connections {
        problems.extend(broken_ends(connection));
        if let Some(key) = &connection.key
            && let Some(other) = keys.insert(key, &connection.path)
        {
            let reason = format!("has the key of {other}; remove one of the two");
            problems.push(InventoryProblem::new(&connection.path, "Id", reason));
        }
    }
    inventory.problems.extend(problems);
}

fn broken_ends(connection: &FabricConnection) -> Vec<InventoryProblem> {
    let mut problems = Vec::new();
    if connection.host.is_none() {
        let reason = "names no known host, or several; remove the connection or mend its links";
        problems.push(InventoryProblem::new(&connection.path, "Links.InitiatorEndpoints", reason));
    }
    if connection.devices.is_empty() {
        let reason = "names no known device; remove the connection or mend its links";
        problems.push(InventoryProblem::new(&connection.path, "Links.TargetEndpoints", reason));
    }
    problems
}
