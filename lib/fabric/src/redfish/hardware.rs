//! Reads hosts, devices, endpoints and memory of a service.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
};

use hostler_api::fabric::SystemUuid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    RedfishError,
    chunks::MemoryPlace,
    document::{Document, identities_of, links_of},
    record::{FabricPlace, RecordServices},
    walk::ServiceWalk,
};
use crate::{
    DeviceKind, FabricDevice, FabricEndpoint, FabricHost, InventoryParts, InventoryProblem, MemoryDomain, ObjectPath,
    SwitchDomain,
};

/// Everything but the connections.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct ReadHardware {
    pub(super) parts: InventoryParts,
    pub(super) fabrics: Vec<FabricPlace>,
    /// The places of chunks, by memory domain.
    pub(super) memory: BTreeMap<ObjectPath, MemoryPlace>,
}

impl ReadHardware {
    /// Drops links of devices to chunks that the manager of record of their domain does not have. Another service has
    /// told the links: from memory.
    pub(super) fn drop_stale_links(&mut self) {
        let elsewhere = self.memory.iter().filter(|(_, place)| place.agent.is_some());
        let elsewhere: Vec<&ObjectPath> = elsewhere.map(|(path, _)| path).collect();
        let existing: BTreeSet<&ObjectPath> =
            self.parts.memory_domains.iter().flat_map(|domain| &domain.chunks).map(|chunk| &chunk.path).collect();
        for device in self.parts.devices.iter_mut().filter(|_| !elsewhere.is_empty()) {
            let is_elsewhere = |chunk: &ObjectPath| elsewhere.iter().any(|domain| chunk.is_within(domain));
            device.chunks.retain(|chunk| existing.contains(chunk) || !is_elsewhere(chunk));
        }
    }
}

/// Objects below a chassis.
#[derive(Debug, Default)]
struct ChassisContent {
    devices: Vec<FabricDevice>,
    memory: Vec<(MemoryDomain, MemoryPlace)>,
    /// Every path that was read.
    known: Vec<ObjectPath>,
}

/// An endpoint, with all objects that it names among its entities.
#[derive(Debug)]
struct NamedEndpoint {
    endpoint: FabricEndpoint,
    /// Paths among these that were not read, each with true if the endpoint calls the object a device.
    unread: Vec<(ObjectPath, bool)>,
}

/// Reads the hardware.
pub(super) async fn read_hardware(services: &RecordServices) -> Result<ReadHardware, RedfishError> {
    let walk = ServiceWalk::new(&services.main, services.parallel);
    let root = walk.service.root().await?;
    let fabrics = walk.members(&root, "Fabrics", |fabric| fabric).await?;
    let hosts = walk.members(&root, "Systems", |system| host_of(&walk, &system)).await?;
    let mut parts = InventoryParts { hosts, ..InventoryParts::default() };
    let mut known: BTreeSet<ObjectPath> = BTreeSet::new();
    let mut memory = BTreeMap::new();
    for content in walk.members_with(&root, "Chassis", |chassis| read_chassis(services, &walk, chassis)).await? {
        parts.devices.extend(content.devices);
        known.extend(content.known);
        for (domain, place) in content.memory {
            memory.insert(domain.path.clone(), place);
            parts.memory_domains.push(domain);
        }
    }
    for fabric in &fabrics {
        parts.domains.push(domain_of(fabric));
        let named = walk.members(fabric, "Endpoints", |it| endpoint_of(&it, &fabric.path, &known)).await?;
        read_unread(&walk, &named, &mut known, &mut parts).await?;
        parts.endpoints.extend(named.into_iter().map(|named| named.without_missing(&known)));
    }
    parts.problems = walk.into_problems();
    parts.compact();
    let place = |fabric: Document| FabricPlace { agent: fabric.managing_agent(), path: fabric.path };
    let mut hardware = ReadHardware { parts, fabrics: fabrics.into_iter().map(place).collect(), memory };
    hardware.drop_stale_links();
    Ok(hardware)
}

fn domain_of(fabric: &Document) -> SwitchDomain {
    SwitchDomain {
        path: fabric.path.clone(),
        name: fabric.text("Name").map(str::to_owned),
        uuid: fabric.text("UUID").map(str::to_owned),
        status: fabric.status(),
    }
}

fn host_of(walk: &ServiceWalk<'_>, system: &Document) -> FabricHost {
    let parsed = system.text("UUID").map(str::parse::<SystemUuid>);
    if let Some(Err(error)) = &parsed {
        walk.report(InventoryProblem::new(&system.path, "UUID", error.to_string()));
    }
    let uuid = parsed.and_then(Result::ok);
    FabricHost { path: system.path.clone(), uuid, status: system.status(), ..FabricHost::default() }
}

async fn read_chassis(
    services: &RecordServices,
    walk: &ServiceWalk<'_>,
    chassis: Document,
) -> Result<ChassisContent, RedfishError> {
    let mut content = ChassisContent::default();
    content.known.push(chassis.path.clone());
    let read = |device| read_device(walk, device, &chassis.path);
    for (path, devices) in walk.members_with(&chassis, "PCIeDevices", read).await? {
        content.known.push(path);
        content.known.extend(devices.iter().map(|it| it.path.clone()));
        content.devices.extend(devices);
    }
    let read = async |domain: Document| services.memory(walk, &domain).await;
    for (domain, place) in walk.members_with(&chassis, "MemoryDomains", read).await? {
        content.known.push(domain.path.clone());
        content.known.extend(domain.chunks.iter().map(|it| it.path.clone()));
        content.memory.push((domain, place));
    }
    Ok(content)
}

/// Reads the logical devices of a device; one that has none is attached as a whole. Returns the path of the device too.
async fn read_device(
    walk: &ServiceWalk<'_>,
    device: Document,
    chassis: &ObjectPath,
) -> Result<(ObjectPath, Vec<FabricDevice>), RedfishError> {
    let of = |logical: &Document| device_of(walk, logical, &device, Some(chassis));
    let mut devices = walk.members(&device, "CXLLogicalDevices", |logical| of(&logical)).await?;
    if devices.is_empty() && device.at(&["CXLDevice"]).is_some() {
        devices.push(of(&device));
    }
    Ok((device.path, devices))
}

fn device_of(
    walk: &ServiceWalk<'_>,
    document: &Document,
    physical: &Document,
    chassis: Option<&ObjectPath>,
) -> FabricDevice {
    let identities = document.identities();
    // Of a device that says that it is two, neither is believed.
    let unusable = (identities.len() > 1).then(|| {
        let reason = "has several names in the format GCXLID; give the device one";
        let problem = InventoryProblem::new(&document.path, "Identifiers", reason);
        walk.report(problem.clone());
        problem.to_string()
    });
    FabricDevice {
        path: document.path.clone(),
        identity: <[_; 1]>::try_from(identities).ok().map(|[identity]| identity),
        unusable,
        kind: kind_of(document, physical),
        size_bytes: document.size_bytes("MemorySizeMiB"),
        status: document.status(),
        enclosure: chassis.cloned(),
        endpoints: document.links(&["Links", "Endpoints"]),
        chunks: document.links(&["Links", "MemoryChunks"]),
        memory_domains: document.links(&["Links", "MemoryDomains"]),
        ..FabricDevice::default()
    }
}

fn kind_of(document: &Document, physical: &Document) -> DeviceKind {
    match physical.at(&["CXLDevice", "DeviceType"]).and_then(Value::as_str) {
        Some("Type3") => return DeviceKind::Memory,
        Some("Type1" | "Type2") => return DeviceKind::Accelerator,
        _ => {}
    }
    let semantics =
        document.at(&["SemanticsSupported"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let has = |name: &str| semantics.iter().any(|it| it.as_str() == Some(name));
    // Only an accelerator caches the host's memory.
    match (has("CXLcache"), has("CXLmem")) {
        (true, _) => DeviceKind::Accelerator,
        (false, true) => DeviceKind::Memory,
        (false, false) => DeviceKind::Unknown,
    }
}

/// Reads objects that endpoints name and that lie outside of what was read.
async fn read_unread(
    walk: &ServiceWalk<'_>,
    endpoints: &[NamedEndpoint],
    known: &mut BTreeSet<ObjectPath>,
    parts: &mut InventoryParts,
) -> Result<(), RedfishError> {
    let named: BTreeMap<ObjectPath, bool> = endpoints.iter().flat_map(|it| it.unread.iter().cloned()).collect();
    let paths: Vec<ObjectPath> = named.keys().cloned().collect();
    let keep = |document: Document| {
        let is_device = named.get(&document.path).copied().unwrap_or_default();
        let device = is_device.then(|| device_of(walk, &document, &document, None));
        ready(Ok((document.path, device)))
    };
    for (path, device) in walk.read_all(&paths, keep).await?.into_iter().flatten() {
        parts.devices.extend(device);
        known.insert(path);
    }
    Ok(())
}

fn is_device(entity: &Value) -> bool {
    entity.get("EntityType").and_then(Value::as_str) == Some("CXLDevice")
}

fn entity_links(entity: &Value) -> Vec<ObjectPath> {
    entity.get("EntityLink").map(links_of).unwrap_or_default()
}

fn endpoint_of(document: &Document, domain: &ObjectPath, known: &BTreeSet<ObjectPath>) -> NamedEndpoint {
    let entities = document.entities();
    let is_initiator = entities.iter().any(|it| it.get("EntityRole").and_then(Value::as_str) == Some("Initiator"));
    let links = |entity| entity_links(entity).into_iter().map(move |path| (path, is_device(entity)));
    let endpoint = FabricEndpoint {
        path: document.path.clone(),
        domain: domain.clone(),
        is_initiator,
        entities: entities.iter().flat_map(entity_links).collect(),
        missing: Vec::new(),
        identities: entities.iter().flat_map(identities_of).collect(),
        ports: document.links(&["Links", "Ports"]),
    };
    let unread = entities.iter().flat_map(links).filter(|(path, _)| !known.contains(path)).collect();
    NamedEndpoint { endpoint, unread }
}

impl NamedEndpoint {
    /// The endpoint with the objects that exist, apart from those that do not.
    fn without_missing(self, known: &BTreeSet<ObjectPath>) -> FabricEndpoint {
        let Self { endpoint, .. } = self;
        let mut entities = endpoint.entities;
        let missing = entities.extract_if(.., |path| !known.contains(path)).collect();
        FabricEndpoint { entities, missing, ..endpoint }
    }
}
