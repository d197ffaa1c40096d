//! The documents of a rack: one fabric, hosts with a processor each, and one chassis with devices of a chunk each.

use std::collections::BTreeMap;

use serde_json::{Value, json};

const ROOT: &str = "/redfish/v1";
/// The fabric of a rack.
pub const FABRIC: &str = "/redfish/v1/Fabrics/Rack";
const CHASSIS: &str = "/redfish/v1/Chassis/Pool";
const DEVICE_MIB: u64 = 16 << 10;
const DOMAIN_MIB: u64 = 64 << 10;

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
    let mut tree = Tree::default();
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
    (0..devices).for_each(|at| tree.add_device(at));
    tree.0
}

fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

#[derive(Default)]
struct Tree(BTreeMap<String, Value>);

impl Tree {
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

    fn add_device(&mut self, at: u32) {
        let device = format!("{CHASSIS}/PCIeDevices/{at}");
        let logical = format!("{device}/CXLLogicalDevices/1");
        let domain = format!("{CHASSIS}/MemoryDomains/{at}");
        let (chunk, endpoint) = (format!("{domain}/MemoryChunks/1"), format!("{FABRIC}/Endpoints/T{at}"));
        let identifiers = json!([{"DurableName": device_text(at), "DurableNameFormat": "GCXLID"}]);
        self.add(
            &device,
            json!({"Id": at.to_string(), "CXLDevice": {"DeviceType": "Type3"},
            "CXLLogicalDevices": link(&format!("{device}/CXLLogicalDevices"))}),
        );
        self.add(
            &logical,
            json!({"Id": "1", "MemorySizeMiB": DEVICE_MIB, "Identifiers": identifiers,
            "SemanticsSupported": ["CXLio", "CXLmem"], "Status": {"Health": "OK", "State": "Enabled"},
            "Links": {"Endpoints": [link(&endpoint)], "MemoryChunks": [link(&chunk)]}}),
        );
        self.add(
            &domain,
            json!({"Id": at.to_string(), "AllowsMemoryChunkCreation": true, "MemorySizeMiB": DOMAIN_MIB,
            "MemoryChunks": link(&format!("{domain}/MemoryChunks"))}),
        );
        self.add(
            &chunk,
            json!({"Id": "1", "MemoryChunkSizeMiB": DEVICE_MIB,
            "Links": {"CXLLogicalDevices": [link(&logical)]}}),
        );
        self.add(
            &endpoint,
            json!({"Id": format!("T{at}"), "EndpointProtocol": "CXL",
            "Links": {"Ports": [link(&format!("{CHASSIS}/FabricAdapters/{at}/Ports/1"))]},
            "ConnectedEntities": [{"EntityRole": "Target", "EntityType": "CXLDevice", "EntityLink": link(&logical),
                "Identifiers": identifiers}]}),
        );
        self.add(&format!("{CHASSIS}/FabricAdapters/{at}/Ports/1"), json!({"Id": "1", "InterfaceEnabled": true}));
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
