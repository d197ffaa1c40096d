//! Chunks of memory at their manager of record: making them for devices, and freeing them.

use std::{ops::ControlFlow, sync::Arc};

use hostler_api::fabric::DeviceIdentity;
use hyper::Method;
use serde_json::{Value, json};

use super::{
    FabricReading, RedfishClient, RedfishError, absent,
    chunks::{CHUNKS, MemoryPlace, chunk_of},
    conclude,
    document::MIB,
    hardware::ReadHardware,
    record::{NAME_PREFIX, links_to},
    removal,
    service::WriteCall,
    task::{self, KnownOperation},
    walk::ServiceWalk,
    written::{unmade, unread, written_text},
};
use crate::{
    AttachKey, AttachPlan, AttachRefusal, AttachRequest, AttachStep, FabricConnection, FabricError, FabricInventory,
    FabricOperation, FabricOutcome, MemoryChunk, ObjectPath, PlannedChunk, plan_attach, plan_free,
};

/// The body that makes a chunk. The Id is the key of the attachment, so that a repeated call makes no second one.
fn body(place: &MemoryPlace, plan: &AttachPlan, make: &PlannedChunk) -> Value {
    json!({
        "@odata.type": "#MemoryChunks.v1_6_0.MemoryChunks",
        "@odata.id": place.collection.below(plan.key.as_str()),
        "Id": plan.key,
        "Name": format!("{NAME_PREFIX}{}", plan.key),
        "AddressRangeType": "Volatile",
        "MediaLocation": "Local",
        "RequestedOperationalState": "Online",
        "MemoryChunkSizeMiB": make.size_bytes / MIB,
        "Links": {"CXLLogicalDevices": links_to([&make.device]), "Endpoints": links_to(&plan.targets)},
    })
}

impl RedfishClient {
    /// Makes the memory of a plan, and plans again with it. Broken off: the call ends so, and nothing is connected.
    pub(super) async fn make_memory(
        &self,
        request: &AttachRequest,
        plan: &AttachPlan,
        make: &PlannedChunk,
        reading: FabricReading,
    ) -> Result<ControlFlow<FabricOutcome<FabricConnection>, (FabricReading, AttachPlan)>, FabricError> {
        let ended = |outcome| Ok(ControlFlow::Break(outcome));
        let Some(place) = reading.hardware.memory.get(&make.domain) else {
            return ended(FabricOutcome::not_done(format!("memory domain {} is gone", make.domain)));
        };
        let body = body(place, plan, make);
        let call = WriteCall { method: Method::POST, path: &place.collection, body: Some(&body), etag: None };
        let service = self.services.of_memory(place);
        let written = service.write(call).await;
        let text = written_text(service, &place.collection, &written);
        let hardware = match self.read_memory_again(&reading.hardware, &make.domain, &make.device).await {
            Ok(hardware) => hardware,
            Err(error) => return ended(FabricOutcome::unknown(unread(&text, &make.domain, &error))),
        };
        let reading = reading.with_hardware(hardware);
        let asked = request.memory.unwrap_or(make.size_bytes);
        match plan_attach(&reading.inventory, &AttachRequest { memory: Some(asked), ..request.clone() }) {
            Ok(AttachStep::Connect(plan))
                if plan.make.is_none() && reading.inventory.made_in(plan.device).is_some() =>
            {
                Ok(ControlFlow::Continue((reading, plan)))
            }
            Ok(AttachStep::Connect(AttachPlan { make: None, chunks, .. })) => {
                let found = format!("{} without name and Id", ObjectPath::list(chunks.iter()));
                Err(self.other_memory(request, found, asked))
            }
            Err(AttachRefusal::MemoryTooSmall { chunk, size, .. }) => {
                Err(self.other_memory(request, format!("{size} bytes of memory (chunk {chunk})"), asked))
            }
            _ if written.as_ref().is_ok_and(task::is_accepted) => {
                let monitor = written.as_ref().ok().and_then(task::monitor_of);
                let operation = FabricOperation { monitor, state: None, percent: None };
                let (device, host) = (Some(plan.device), plan.host.to_string());
                let known = KnownOperation { operation, device, host, makes_memory: true };
                self.operations.insert(&request.key, known);
                ended(memory_under_way(&request.key))
            }
            Ok(_) => ended(unmade(&text, &written, "memory")),
            Err(refusal) => ended(FabricOutcome::not_done(format!("{text}; {refusal}"))),
        }
    }

    fn other_memory(&self, request: &AttachRequest, found: String, asked: u64) -> FabricError {
        let (service, key) = (self.name().to_owned(), request.key.clone());
        FabricError::Mismatch { service, key, found, asked: format!("{asked} bytes for device {}", request.device) }
    }

    /// Reads a memory domain and a device of it again: hardware may have been read before the last chunk was made or freed.
    pub(super) async fn read_memory_again(
        &self,
        hardware: &Arc<ReadHardware>,
        domain: &ObjectPath,
        device: &ObjectPath,
    ) -> Result<Arc<ReadHardware>, RedfishError> {
        let mut again = ReadHardware::clone(hardware);
        let walk = ServiceWalk::new(&self.services.main, self.services.parallel);
        let parts = &mut again.parts;
        parts.memory_domains.retain(|known| known.path != *domain);
        again.memory.remove(domain);
        if let Some(domain) = walk.read(domain).await? {
            let (domain, place) = self.services.memory(&walk, &domain).await?;
            again.memory.insert(domain.path.clone(), place);
            parts.memory_domains.push(domain);
        }
        let read = walk.read(device).await?;
        if let Some((known, device)) = parts.devices.iter_mut().find(|known| known.path == *device).zip(read) {
            known.chunks = device.links(&["Links", CHUNKS]);
            known.memory_domains = device.links(&["Links", "MemoryDomains"]);
        }
        again.drop_stale_links();
        let again = Arc::new(again);
        // Hardware that was read meanwhile is newer but for this domain, which is read again before anything is made.
        self.kept_hardware().replace(hardware, &again);
        Ok(again)
    }

    pub(super) async fn free(&self, device: DeviceIdentity, key: &AttachKey) -> Result<FabricOutcome<()>, FabricError> {
        let hardware = self.memory_of(device, key).await?;
        let inventory = conclude(&hardware, Vec::new(), Vec::new());
        self.operations.end_memory(&inventory);
        // Connections are read only where there is memory that they may hold.
        if plan_free(&inventory, device, key)?.is_empty() {
            return Ok(FabricOutcome::Done(()));
        }
        let reading = self.reading(hardware).await?;
        let chunks = plan_free(&reading.inventory, device, key)?;
        if let Some(other) = self.operations.attaching(device, |_| true)
            && self.running(&other).await?.is_some()
        {
            let host = self.operations.get(&other).map(|known| known.host).unwrap_or_default();
            return Err(AttachRefusal::DeviceHeld { device, connection: format!("{other} (under way)"), host }.into());
        }
        // A connection that another manager alone knows may hold the device.
        let unheld = absent(&reading.records, FabricOutcome::Done(()));
        if !unheld.is_done() {
            return Ok(unheld);
        }
        self.free_chunks(&reading, &chunks, key).await
    }

    /// Hardware in which the memory of a device is that of now. Its memory domains are read again with their chunks, and
    /// everything only where device or domain is not known, or where the chunk of the key has gone to another device.
    async fn memory_of(&self, identity: DeviceIdentity, key: &AttachKey) -> Result<Arc<ReadHardware>, RedfishError> {
        let mut hardware = self.recent_hardware().await?;
        let inventory = conclude(&hardware, Vec::new(), Vec::new());
        let Some(device) = inventory.device(identity) else { return self.read_hardware().await };
        let mut domains = inventory.domains_of(device).peekable();
        let is_known = domains.peek().is_some();
        for domain in domains {
            hardware = self.read_memory_again(&hardware, &domain.path, &device.path).await?;
        }
        let again = conclude(&hardware, Vec::new(), Vec::new());
        let is_key = |chunk: &&MemoryChunk| chunk.made_for.as_ref() == Some(key);
        let mut made = again.memory_domains.iter().flat_map(|domain| &domain.chunks).filter(is_key);
        let is_its = |chunk: &MemoryChunk| chunk.devices.contains(&device.path);
        if is_known && made.all(is_its) { Ok(hardware) } else { self.read_hardware().await }
    }

    async fn free_chunks(
        &self,
        reading: &FabricReading,
        chunks: &[ObjectPath],
        key: &AttachKey,
    ) -> Result<FabricOutcome<()>, FabricError> {
        for path in chunks {
            let domain = reading.inventory.memory_domains.iter().find(|it| it.chunks.iter().any(|it| it.path == *path));
            let Some(place) = domain.and_then(|domain| reading.hardware.memory.get(&domain.path)) else {
                return Ok(FabricOutcome::not_done(format!("{path} lies in no known memory domain")));
            };
            let service = self.services.of_memory(place);
            let Some(read) = service.read(path).await? else { continue };
            let before = chunk_of(&read.document);
            if before.made_for.as_ref() != Some(key) {
                let why = "was made anew while it was looked at; it is looked at again";
                return Ok(FabricOutcome::not_done(format!("{path} {why}")));
            }
            let removal = removal::remove(service, path, read.etag, |now| chunk_of(now) == before).await;
            let outcome = removal.outcome(service, path);
            if !outcome.is_done() {
                return Ok(outcome);
            }
        }
        Ok(FabricOutcome::Done(()))
    }
}

/// The domain and the device whose chunks a step depends on; `None`: it depends on none that hostler makes.
pub(super) fn made_memory(inventory: &FabricInventory, step: &AttachStep) -> Option<(ObjectPath, ObjectPath)> {
    let AttachStep::Connect(plan) = step else { return None };
    let domain = match &plan.make {
        Some(make) => &make.domain,
        None => &inventory.made_in(plan.device)?.path,
    };
    Some((domain.clone(), inventory.device(plan.device)?.path.clone()))
}

/// The outcome of an attachment whose memory is still being made: only the same call goes on with it.
pub(super) fn memory_under_way(key: &AttachKey) -> FabricOutcome<FabricConnection> {
    FabricOutcome::unknown(format!("the service still makes the memory for {key}, and nothing is connected; ask again"))
}
