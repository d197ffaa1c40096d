//! The documents of a rack: one fabric, hosts with a processor each, and one chassis with devices that have a chunk each,
//! or share a memory domain without chunks.

use std::collections::BTreeMap;

use serde_json::{Value, json};

const ROOT: &str = "/redfish/v1";
/// The fabric of a rack.
pub const FABRIC: &str = "/redfish/v1/Fabrics/Rack";
const CHASSIS: &str = "/redfish/v1/Chassis/Pool";
const DEVICE_MIB: u64 = 16 << 10;
const DOMAIN_MIB: u64 = 64 << 10;
/// The smallest chunk, and the step of its size: hosts map memory in parts of it.
const STEP_MIB: u64 = 256;

/// The UUID of a host of a rack, as the service writes it.
pub fn host_uuid(at: u32) -> String {
    format!("ABC00000-0000-4000-8000-{at:012X}")
}

/// The identity of a device of a rack.
pub fn device_text(at: u32) -> String {
    format!("4C-1D-96-00-00-00-00-{at:02X}:0001")
}

/// The documents of a rack.
pub(crate) fn rack(hosts: u32, devices: u32) -> BTreeMap<String, Value> {
    let mut tree = Tree::with_hosts(hosts);
    (0..devices).for_each(|at| tree.add_device(at));
    tree.0
}

/// The documents of a rack whose devices have no chunks, and share one memory domain.
pub(crate) fn shared(hosts: u32, devices: u32, domain_mib: u64) -> BTreeMap<String, Value> {
    let mut tree = Tree::with_hosts(hosts);
    let domain = format!("{CHASSIS}/MemoryDomains/0");
    let chunks = format!("{domain}/MemoryChunks");
    // One side names the other: the domain every second device, and the rest of the devices the domain.
    let named: Vec<Value> = (0..devices).step_by(2).map(|at| link(&logical(at))).collect();
    tree.add(
        &domain,
        json!({"Id": "0", "AllowsMemoryChunkCreation": true, "MemorySizeMiB": domain_mib,
        "MinMemoryChunkSizeMiB": STEP_MIB, "MemoryChunkIncrementMiB": STEP_MIB, "MemoryChunks": link(&chunks),
        "Links": {"CXLLogicalDevices": named}}),
    );
    tree.0.insert(chunks.clone(), json!({"@odata.id": chunks, "Members": []}));
    for at in 0..devices {
        let domains = if at % 2 == 1 { json!([link(&domain)]) } else { json!([]) };
        tree.add_card(at, json!({"Links": {"MemoryDomains": domains}}));
    }
    tree.0
}

/// The path of the logical device of a card.
fn logical(at: u32) -> String {
    format!("{CHASSIS}/PCIeDevices/{at}/CXLLogicalDevices/1")
}

#[derive(Default)]
struct Tree(BTreeMap<String, Value>);

impl Tree {
    fn with_hosts(hosts: u32) -> Self {
        let mut tree = Self::default();
        tree.add(
            ROOT,
            json!({"Id": "RootService", "Fabrics": link(&format!("{ROOT}/Fabrics")),
        "Systems": link(&format!("{ROOT}/Systems")), "Chassis": link(&format!("{ROOT}/Chassis"))}),
        );
        tree.add(
            FABRIC,
            json!({"Id": "Rack", "FabricType": "CXL", "UUID": "1AF883EE-0000-4000-8000-000000000001",
        "Endpoints": link(&format!("{FABRIC}/Endpoints")), "Status": {"Health": "OK", "State": "Enabled"}}),
        );
        tree.add(
            CHASSIS,
            json!({"Id": "Pool", "PCIeDevices": link(&format!("{CHASSIS}/PCIeDevices")),
        "MemoryDomains": link(&format!("{CHASSIS}/MemoryDomains"))}),
        );
        (0..hosts).for_each(|at| tree.add_host(at));
        tree
    }

    fn add(&mut self, path: &str, mut document: Value) {
        document["@odata.id"] = json!(path);
        self.0.insert(path.to_owned(), document);
        if path != ROOT {
            list(&mut self.0, path);
        }
    }

    fn add_host(&mut self, at: u32) {
        let system = format!("{ROOT}/Systems/host-{at}");
        let processor = format!("{system}/Processors/CPU");
        self.add(
            &system,
            json!({"Id": format!("host-{at}"), "UUID": host_uuid(at),
            "Processors": link(&format!("{system}/Processors")), "Status": {"Health": "OK", "State": "Enabled"}}),
        );
        self.add(&processor, json!({"Id": "CPU"}));
        self.add(&format!("{FABRIC}/Endpoints/I{at}"), json!({"Id": format!("I{at}"), "EndpointProtocol": "CXL",
            "ConnectedEntities": [{"EntityRole": "Initiator", "EntityType": "Processor", "EntityLink": link(&processor)}]}));
    }

    /// A card with a memory domain of its own, and a chunk.
    fn add_device(&mut self, at: u32) {
        let domain = format!("{CHASSIS}/MemoryDomains/{at}");
        let chunk = format!("{domain}/MemoryChunks/1");
        self.add_card(at, json!({"MemorySizeMiB": DEVICE_MIB, "Links": {"MemoryChunks": [link(&chunk)]}}));
        self.add(
            &domain,
            json!({"Id": at.to_string(), "AllowsMemoryChunkCreation": true, "MemorySizeMiB": DOMAIN_MIB,
            "MemoryChunks": link(&format!("{domain}/MemoryChunks"))}),
        );
        self.add(
            &chunk,
            json!({"Id": "1", "MemoryChunkSizeMiB": DEVICE_MIB,
            "Links": {"CXLLogicalDevices": [link(&logical(at))]}}),
        );
    }

    /// A card with its port and one logical device, which has these fields as well.
    fn add_card(&mut self, at: u32, mut fields: Value) {
        let (device, logical) = (format!("{CHASSIS}/PCIeDevices/{at}"), logical(at));
        let endpoint = format!("{FABRIC}/Endpoints/T{at}");
        let port = format!("{CHASSIS}/FabricAdapters/{at}/Ports/1");
        let identifiers = json!([{"DurableName": device_text(at), "DurableNameFormat": "GCXLID"}]);
        self.add(
            &device,
            json!({"Id": at.to_string(), "CXLDevice": {"DeviceType": "Type3"},
            "CXLLogicalDevices": link(&format!("{device}/CXLLogicalDevices"))}),
        );
        fields["Id"] = json!("1");
        fields["Identifiers"] = identifiers.clone();
        fields["SemanticsSupported"] = json!(["CXLio", "CXLmem"]);
        fields["Status"] = json!({"Health": "OK", "State": "Enabled"});
        fields["Links"]["Endpoints"] = json!([link(&endpoint)]);
        self.add(&logical, fields);
        self.add(
            &endpoint,
            json!({"Id": format!("T{at}"), "EndpointProtocol": "CXL", "Links": {"Ports": [link(&port)]},
            "ConnectedEntities": [{"EntityRole": "Target", "EntityType": "CXLDevice", "EntityLink": link(&logical),
                "Identifiers": identifiers}]}),
        );
        self.add(&port, json!({"Id": "1", "InterfaceEnabled": true}));
    }
}

fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

/// Makes the devices of a chunk name it, or name it no more.
pub(crate) fn link_back(documents: &mut BTreeMap<String, Value>, path: &str, is_there: bool) {
    let devices = documents.get(path).map(|chunk| chunk["Links"]["CXLLogicalDevices"].clone()).unwrap_or_default();
    for device in devices.as_array().into_iter().flatten() {
        let document = device["@odata.id"].as_str().and_then(|path| documents.get_mut(path));
        let Some(links) = document.and_then(|document| document["Links"].as_object_mut()) else { continue };
        let chunks = links.entry("MemoryChunks").or_insert_with(|| json!([]));
        if let Some(chunks) = chunks.as_array_mut() {
            chunks.retain(|chunk| *chunk != link(path));
            if is_there {
                chunks.push(link(path));
            }
        }
    }
}

/// Adds a document to its collection, which is made with its first member.
pub(crate) fn list(documents: &mut BTreeMap<String, Value>, path: &str) {
    let Some((collection, _)) = path.rsplit_once('/') else { return };
    let entry =
        documents.entry(collection.to_owned()).or_insert_with(|| json!({"@odata.id": collection, "Members": []}));
    if let Some(members) = entry["Members"].as_array_mut()
        && !members.contains(&link(path))
    {
        members.push(link(path));
    }
}

/// Adds a connection of a device to a host.
pub(crate) fn connect(documents: &mut BTreeMap<String, Value>, id: &str, host: u32, device: u32) {
    let path = format!("{FABRIC}/Connections/{id}");
    let end = |name: String| json!([link(&format!("{FABRIC}/Endpoints/{name}"))]);
    let links = json!({"InitiatorEndpoints": end(format!("I{host}")), "TargetEndpoints": end(format!("T{device}"))});
    documents.insert(path.clone(), json!({"@odata.id": path, "Id": id, "ConnectionType": "Memory", "Links": links}));
    list(documents, &path);
    if let Some(fabric) = documents.get_mut(FABRIC) {
        fabric["Connections"] = link(&format!("{FABRIC}/Connections"));
    }
}

/// Removes a document, and its line in the collection.
pub(crate) fn remove(documents: &mut BTreeMap<String, Value>, path: &str) {
    documents.remove(path);
    let collection = path.rsplit_once('/').and_then(|(collection, _)| documents.get_mut(collection));
    if let Some(members) = collection.and_then(|it| it["Members"].as_array_mut()) {
        members.retain(|member| *member != link(path));
    }
}

/// A document as a service shows it whose links to collections all lead to its root.
pub(crate) fn flattened(path: &str, document: &Value) -> Value {
    let mut flat = document.clone();
    let Some(fields) = flat.as_object_mut().filter(|_| path != ROOT) else { return flat };
    for (name, value) in fields.iter_mut() {
        if value["@odata.id"].is_string() {
            *value = link(&format!("{ROOT}/{name}"));
        }
    }
    if path.starts_with(&format!("{FABRIC}/")) && fields.contains_key("Members") {
        fields.insert("@odata.id".to_owned(), json!(format!("{ROOT}/Lie")));
    }
    flat
}
