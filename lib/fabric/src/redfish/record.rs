//! Connections at their manager of record: the service, or the agent that manages the fabric, whose word counts.

use std::{collections::BTreeMap, future::ready, sync::Arc};

use hyper::header::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    RedfishError,
    document::Document,
    service::RedfishService,
    settings::ServiceAddress,
    walk::{FoundCollection, ServiceWalk},
};
use crate::{AttachKey, AttachPlan, FabricConnection, InventoryProblem, ObjectPath};

/// Beginning of the names of connections and chunks. Services that choose an Id of their own keep the key in the name.
pub(super) const NAME_PREFIX: &str = "hostler ";
const CONNECTIONS: &str = "Connections";

/// A fabric as the service shows it, and the link to the agent that manages it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct FabricPlace {
    pub(super) path: ObjectPath,
    pub(super) agent: Option<ObjectPath>,
}

/// The connections of one fabric, at their manager of record.
#[derive(Clone, Debug)]
pub(super) struct FabricRecord {
    pub(super) fabric: ObjectPath,
    pub(super) service: Arc<RedfishService>,
    /// The collection as it was found. Some services have none before its first member.
    found: Option<FoundCollection>,
    parallel: usize,
    /// The reason why a connection that is not shown may exist; `None`: the word of the service counts.
    pub(super) doubt: Option<String>,
}

/// A connection as it was read, to remove it only if it still is the same.
#[derive(Clone, Debug)]
pub(super) struct ReadConnection {
    pub(super) connection: FabricConnection,
    pub(super) etag: Option<HeaderValue>,
}

/// Services that may be managers of record.
#[derive(Clone, Debug)]
pub(super) struct RecordServices {
    pub(super) main: Arc<RedfishService>,
    pub(super) agents: BTreeMap<ServiceAddress, Arc<RedfishService>>,
    pub(super) parallel: usize,
    /// The word of the service counts, also where it names an agent that is not among these.
    pub(super) trusts_service: bool,
}

impl RecordServices {
    /// Finds the manager of record of each fabric. A fabric that a named agent does not know is an error: without it,
    /// nothing tells which devices are free.
    pub(super) async fn records(
        &self,
        fabrics: &[FabricPlace],
        problems: &mut Vec<InventoryProblem>,
    ) -> Result<Vec<FabricRecord>, RedfishError> {
        let mut records = Vec::with_capacity(fabrics.len());
        for fabric in fabrics {
            let (service, doubt) = self.manager(fabric.agent.as_ref(), "connections").await?;
            problems
                .extend(doubt.iter().map(|it| InventoryProblem::new(&fabric.path, "Oem.ManagingAgent", it.clone())));
            let walk = ServiceWalk::new(&service, self.parallel);
            let Some(own) = walk.read(&fabric.path).await? else { return Err(unknown_fabric(&service, &fabric.path)) };
            let found = walk.collection(&own, CONNECTIONS).await?;
            problems.extend(walk.into_problems());
            let (fabric, parallel) = (fabric.path.clone(), self.parallel);
            records.push(FabricRecord { fabric, service, found, parallel, doubt });
        }
        Ok(records)
    }

    /// The manager of record of an object with this link to an agent, or the service with the reason why its word on
    /// things there may not count.
    pub(super) async fn manager(
        &self,
        agent: Option<&ObjectPath>,
        things: &str,
    ) -> Result<(Arc<RedfishService>, Option<String>), RedfishError> {
        let main = || Arc::clone(&self.main);
        let Some(source) = agent else { return Ok((main(), None)) };
        let source = self.main.read(source).await?.map(|read| read.document);
        let address = source.as_ref().and_then(|source| source.text("HostName")).and_then(ServiceAddress::parse);
        if let Some(agent) = address.as_ref().and_then(|address| self.agents.get(address)) {
            return Ok((Arc::clone(agent), None));
        }
        if self.trusts_service {
            return Ok((main(), None));
        }
        // What a service names may hold anything; an address with a password in it is not repeated.
        let agent = address.map_or_else(|| "an agent without an address".to_owned(), |address| address.to_string());
        let doubt = format!(
            "names {agent}, which is not among the agents of the settings, so {things} are read at {} and may be missing \
             there; add it to agents, or set trust_service",
            self.main.name()
        );
        Ok((main(), Some(doubt)))
    }
}

fn unknown_fabric(service: &RedfishService, fabric: &ObjectPath) -> RedfishError {
    service.missing(fabric, "without it the connections are unknown; if this is an agent, remove it from agents")
}

impl FabricRecord {
    /// The collection, or the place where it will be.
    pub(super) fn collection(&self) -> ObjectPath {
        self.found.as_ref().map_or_else(|| self.fabric.below(CONNECTIONS), |found| found.path.clone())
    }

    /// Every connection of the fabric.
    pub(super) async fn connections(
        &self,
        problems: &mut Vec<InventoryProblem>,
    ) -> Result<Vec<FabricConnection>, RedfishError> {
        let Some(found) = &self.found else { return Ok(Vec::new()) };
        let walk = ServiceWalk::new(&self.service, self.parallel);
        let connections = walk.members_of(found, |document| ready(Ok(connection_of(&document)))).await?;
        problems.extend(walk.into_problems());
        Ok(connections)
    }

    /// The connection with a key: under its own path, or wherever the service has put it.
    pub(super) async fn find(&self, key: &AttachKey) -> Result<Option<ReadConnection>, RedfishError> {
        if let Some(read) = self.read_connection(&self.collection().below(key.as_str())).await? {
            return Ok(Some(read));
        }
        let walk = ServiceWalk::new(&self.service, self.parallel);
        let Some(fabric) = walk.read(&self.fabric).await? else {
            return Err(unknown_fabric(&self.service, &self.fabric));
        };
        let Some(found) = walk.collection(&fabric, CONNECTIONS).await? else { return Ok(None) };
        let connections = walk.members_of(&found, |document| ready(Ok(connection_of(&document)))).await?;
        match connections.into_iter().find(|it| it.key.as_ref() == Some(key)) {
            Some(connection) => self.read_connection(&connection.path).await,
            None => Ok(None),
        }
    }

    pub(super) async fn read_connection(&self, path: &ObjectPath) -> Result<Option<ReadConnection>, RedfishError> {
        let read = self.service.read(path).await?;
        Ok(read.map(|read| ReadConnection { connection: connection_of(&read.document), etag: read.etag }))
    }

    /// The body that makes a connection. The Id is the key, so that a repeated call can be recognised.
    pub(super) fn body(&self, plan: &AttachPlan) -> Value {
        let chunk =
            |path: &ObjectPath| json!({"AccessCapabilities": ["Read", "Write"], "MemoryChunk": {"@odata.id": path}});
        let mut body = json!({
            "@odata.type": "#Connection.v1_2_0.Connection",
            "@odata.id": self.collection().below(plan.key.as_str()),
            "Id": plan.key,
            "Name": format!("{NAME_PREFIX}{}", plan.key),
            "ConnectionType": "Memory",
            "Links": {"InitiatorEndpoints": links_to(&plan.initiators), "TargetEndpoints": links_to(&plan.targets)},
        });
        if !plan.chunks.is_empty() {
            body["MemoryChunkInfo"] = plan.chunks.iter().map(chunk).collect();
        }
        body
    }
}

/// Links to objects, for a body.
pub(super) fn links_to<'a>(paths: impl IntoIterator<Item = &'a ObjectPath>) -> Vec<Value> {
    paths.into_iter().map(|path| json!({"@odata.id": path})).collect()
}

pub(super) fn connection_of(document: &Document) -> FabricConnection {
    let id = document.text("Id").unwrap_or_else(|| document.path.name()).to_owned();
    let named = document.text("Name").and_then(|name| name.strip_prefix(NAME_PREFIX));
    let key = named.and_then(|name| AttachKey::new(name).ok()).or_else(|| AttachKey::new(id.clone()).ok());
    let infos = document.at(&["MemoryChunkInfo"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let chunk_of = |info: &Value| info.get("MemoryChunk").map(super::document::links_of).unwrap_or_default();
    FabricConnection {
        path: document.path.clone(),
        id,
        key,
        chunks: infos.iter().flat_map(chunk_of).collect(),
        initiators: document.links(&["Links", "InitiatorEndpoints"]),
        targets: document.links(&["Links", "TargetEndpoints"]),
        status: document.status(),
        ..FabricConnection::default()
    }
}
