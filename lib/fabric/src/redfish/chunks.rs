//! Chunks of memory, as their manager of record shows them.

use std::{future::ready, sync::Arc};

use hostler_api::fabric::SystemUuid;
use serde::{Deserialize, Serialize};

use super::{
    RedfishError,
    document::Document,
    record::{NAME_PREFIX, RecordServices},
    service::RedfishService,
    settings::ServiceAddress,
    walk::ServiceWalk,
};
use crate::{AttachKey, MemoryChunk, MemoryDomain, ObjectPath};

/// The collection of chunks below a domain, and the links of a device to its own.
pub(super) const CHUNKS: &str = "MemoryChunks";
/// Hosts map CXL memory in parts of this size: a step that divides it would make memory that no host can use.
const HOST_STEP: u64 = 256 << 20;

/// The place of the chunks of a memory domain.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct MemoryPlace {
    /// The address of the agent that is the manager of record. `None`: the service itself is.
    pub(super) agent: Option<ServiceAddress>,
    /// The collection.
    pub(super) collection: ObjectPath,
}

impl RecordServices {
    /// The manager of record of the chunks at a place.
    pub(super) fn of_memory(&self, place: &MemoryPlace) -> &RedfishService {
        place.agent.as_ref().and_then(|agent| self.agents.get(agent)).unwrap_or(&self.main)
    }

    /// Reads the chunks of a memory domain at its manager of record. Where the record is not known, the service's word is
    /// taken with a doubt.
    pub(super) async fn memory(
        &self,
        walk: &ServiceWalk<'_>,
        domain: &Document,
    ) -> Result<(MemoryDomain, MemoryPlace), RedfishError> {
        let (service, mut doubt) = self.manager(domain.managing_agent().as_ref(), "chunks").await?;
        let address = self.agents.iter().find(|(_, agent)| Arc::ptr_eq(agent, &service)).map(|(address, _)| address);
        if let Some(address) = address {
            let agent = ServiceWalk::new(&service, self.parallel);
            match agent.read(&domain.path).await? {
                Some(own) => {
                    let (chunks, collection) = read_chunks(&agent, &own).await?;
                    agent.into_problems().into_iter().for_each(|problem| walk.report(problem));
                    let place = MemoryPlace { agent: Some(address.clone()), collection };
                    return Ok((domain_of(domain, chunks, doubt), place));
                }
                None => {
                    let agent = service.name();
                    doubt =
                        Some(format!("is not known to its agent {agent}; if it is no agent, remove it from agents"));
                }
            }
        }
        let (chunks, collection) = read_chunks(walk, domain).await?;
        Ok((domain_of(domain, chunks, doubt), MemoryPlace { agent: None, collection }))
    }
}

/// The chunks of a domain, and their collection, or the place where it will be.
async fn read_chunks(
    walk: &ServiceWalk<'_>,
    domain: &Document,
) -> Result<(Vec<MemoryChunk>, ObjectPath), RedfishError> {
    match walk.listed(domain, CHUNKS).await? {
        Some(found) => Ok((walk.members_of(&found, |chunk| ready(Ok(chunk_of(&chunk)))).await?, found.path)),
        None => Ok((Vec::new(), domain.path.below(CHUNKS))),
    }
}

fn domain_of(domain: &Document, chunks: Vec<MemoryChunk>, doubt: Option<String>) -> MemoryDomain {
    let told = |field| domain.size_bytes(field).filter(|size| *size > 0);
    let step_bytes =
        told("MemoryChunkIncrementMiB").filter(|step| !HOST_STEP.is_multiple_of(*step)).unwrap_or(HOST_STEP);
    let least = told("MinMemoryChunkSizeMiB").unwrap_or(step_bytes);
    let least_bytes = least.checked_next_multiple_of(step_bytes).unwrap_or(least);
    MemoryDomain {
        path: domain.path.clone(),
        allows_chunk_creation: domain.flag("AllowsMemoryChunkCreation"),
        size_bytes: domain.size_bytes("MemorySizeMiB"),
        free_bytes: None,
        least_bytes,
        step_bytes,
        devices: domain.links(&["Links", "CXLLogicalDevices"]),
        doubt,
        chunks,
    }
}

pub(super) fn chunk_of(chunk: &Document) -> MemoryChunk {
    MemoryChunk {
        path: chunk.path.clone(),
        size_bytes: chunk.size_bytes("MemoryChunkSizeMiB"),
        devices: chunk.links(&["Links", "CXLLogicalDevices"]),
        made_for: made_for(chunk),
    }
}

/// The key under which hostler made the chunk: its name says so, or, where a service drops names, its Id is that of an
/// attempt of the controller. A person's chunk has neither.
fn made_for(chunk: &Document) -> Option<AttachKey> {
    let named = chunk.text("Name").and_then(|name| name.strip_prefix(NAME_PREFIX));
    let id = chunk.text("Id").unwrap_or_else(|| chunk.path.name());
    let named = named.and_then(|key| AttachKey::new(key).ok());
    named.or_else(|| AttachKey::new(id).ok().filter(|_| is_attempt(id)))
}

/// True for keys as the controller makes them: `<UID>-<attempt>`.
fn is_attempt(id: &str) -> bool {
    id.rsplit_once('-').is_some_and(|(uid, attempt)| {
        uid.parse::<SystemUuid>().is_ok() && !attempt.is_empty() && attempt.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hostlers_own_chunks_are_known_by_name_or_by_the_id_of_an_attempt() {
        let uid = "5f0c2f7e-0d5a-4a53-9d6c-0f6f2b8f7a11";
        for (id, name, expected) in [
            (format!("{uid}-3"), "Memory Chunk", true),
            (format!("{uid}-12"), "", true),
            ("1".to_owned(), "hostler 5f0c-1", true),
            ("1".to_owned(), "Memory Chunk 1", false),
            ("1".to_owned(), "hostler", false),
            ("1".to_owned(), "hostler of two words", false),
            ("1".to_owned(), "my hostler x", false),
            (uid.to_owned(), "", false),
            (format!("{uid}-"), "", false),
            (format!("{uid}-1a"), "", false),
            ("12-34".to_owned(), "", false),
        ] {
            let value = json!({"Id": id, "Name": name});
            let chunk = Document { path: ObjectPath::new("/chunks/x"), value };
            assert_eq!(made_for(&chunk).is_some(), expected, "{id} {name}");
        }
        let nameless = Document { path: ObjectPath::new(format!("/chunks/{uid}-3")), value: json!({}) };
        assert!(made_for(&nameless).is_some());
    }
}
