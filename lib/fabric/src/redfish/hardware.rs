//! Reads hosts, devices, endpoints and memory of a service.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_api::fabric::SystemUuid;
use serde_json::Value;

use super::{
    RedfishError,
    chunks::MemoryPlace,
    document::{Document, identities_of, links_of},
    record::RecordServices,
    walk::ServiceWalk,
};
use crate::{
    DeviceKind, FabricDevice, FabricEndpoint, FabricHost, InventoryParts, InventoryProblem, MemoryDomain, ObjectPath,
    SwitchDomain,
};

/// Everything but the connections, and the documents of the fabrics, which tell who manages these.
#[derive(Clone, Debug)]
pub(super) struct ReadHardware {
    pub(super) parts: InventoryParts,
    pub(super) fabrics: Vec<Document>,
    /// The places of chunks, by memory domain.
    pub(super) memory: BTreeMap<ObjectPath, MemoryPlace>,
}

impl ReadHardware {
    /// Drops links of devices to chunks that the manager of record of their domain does not have. Another service has
    /// told the links: from memory.
    pub(super) fn drop_stale_links(&mut self, services: &RecordServices) {
        let elsewhere = self.memory.iter().filter(|(_, place)| !Arc::ptr_eq(&place.service, &services.main));
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

/// Reads the hardware.
pub(super) async fn read_hardware(services: &RecordServices) -> Result<ReadHardware, RedfishError> {
    let walk = ServiceWalk::new(&services.main, services.parallel);
    let root = walk.service.root().await?;
    let fabrics = walk.members(&root, "Fabrics").await?;
    let systems = walk.members(&root, "Systems").await?;
    let chassis = walk.members(&root, "Chassis").await?;
    let contents = walk.at_once(chassis.iter().map(|chassis| read_chassis(services, &walk, chassis))).await?;
    let mut parts = InventoryParts::default();
    let mut known: BTreeSet<ObjectPath> = chassis.iter().map(|it| it.path.clone()).collect();
    let mut memory = BTreeMap::new();
    for content in contents {
        parts.devices.extend(content.devices);
        known.extend(content.known);
        for (domain, place) in content.memory {
            memory.insert(domain.path.clone(), place);
            parts.memory_domains.push(domain);
        }
    }
    parts.hosts = systems.iter().map(|system| host_of(&walk, system)).collect();
    for fabric in &fabrics {
        parts.domains.push(domain_of(fabric));
        let endpoints = walk.members(fabric, "Endpoints").await?;
        read_entities(&walk, &endpoints, &mut known, &mut parts).await?;
        parts.endpoints.extend(endpoints.iter().map(|it| endpoint_of(it, &fabric.path, &known)));
    }
    parts.problems = walk.into_problems();
    parts.share_texts();
    let mut hardware = ReadHardware { parts, fabrics, memory };
    hardware.drop_stale_links(services);
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
    chassis: &Document,
) -> Result<ChassisContent, RedfishError> {
    let mut content = ChassisContent::default();
    for device in walk.members(chassis, "PCIeDevices").await? {
        let logical = walk.members(&device, "CXLLogicalDevices").await?;
        content.known.push(device.path.clone());
        content.known.extend(logical.iter().map(|it| it.path.clone()));
        if logical.is_empty() && device.at(&["CXLDevice"]).is_some() {
            content.devices.push(device_of(walk, &device, &device, Some(&chassis.path)));
        }
        content.devices.extend(logical.iter().map(|it| device_of(walk, it, &device, Some(&chassis.path))));
    }
    for domain in walk.members(chassis, "MemoryDomains").await? {
        let (domain, place) = services.memory(walk, &domain).await?;
        content.known.push(domain.path.clone());
        content.known.extend(domain.chunks.iter().map(|it| it.path.clone()));
        content.memory.push((domain, place));
    }
    Ok(content)
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

/// Objects that an endpoint names and that lie outside of what was read: they may not exist, or be devices.
async fn read_entities(
    walk: &ServiceWalk<'_>,
    endpoints: &[Document],
    known: &mut BTreeSet<ObjectPath>,
    parts: &mut InventoryParts,
) -> Result<(), RedfishError> {
    let named: BTreeMap<ObjectPath, bool> = endpoints
        .iter()
        .flat_map(Document::entities)
        .flat_map(|entity| entity_links(entity).into_iter().map(move |path| (path, is_device(entity))))
        .filter(|(path, _)| !known.contains(path))
        .collect();
    let paths: Vec<ObjectPath> = named.keys().cloned().collect();
    for document in walk.read_all(&paths).await?.into_iter().flatten() {
        if named.get(&document.path).copied().unwrap_or_default() {
            parts.devices.push(device_of(walk, &document, &document, None));
        }
        known.insert(document.path);
    }
    Ok(())
}

fn is_device(entity: &Value) -> bool {
    entity.get("EntityType").and_then(Value::as_str) == Some("CXLDevice")
}

fn entity_links(entity: &Value) -> Vec<ObjectPath> {
    entity.get("EntityLink").map(links_of).unwrap_or_default()
}

fn endpoint_of(document: &Document, domain: &ObjectPath, known: &BTreeSet<ObjectPath>) -> FabricEndpoint {
    let entities = document.entities();
    let is_initiator = entities.iter().any(|it| it.get("EntityRole").and_then(Value::as_str) == Some("Initiator"));
    let linked: Vec<ObjectPath> = entities.iter().flat_map(entity_links).collect();
    let (existing, missing) = linked.into_iter().partition(|path| known.contains(path));
    FabricEndpoint {
        path: document.path.clone(),
        domain: domain.clone(),
        is_initiator,
        entities: existing,
        missing,
        identities: entities.iter().flat_map(identities_of).collect(),
        ports: document.links(&["Links", "Ports"]),
    }
}
