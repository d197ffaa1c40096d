//! Attaching: plan from what is read, write once, and read again before anything is said.

use std::{ops::ControlFlow, sync::Arc};

use hyper::Method;

use super::{
    FabricReading, RedfishClient, RedfishError, absent, conclude,
    memory::{made_memory, memory_under_way},
    record::{FabricRecord, ReadConnection},
    service::WriteCall,
    task::{self, KnownOperation, TaskProgress},
    transport::HttpAnswer,
    written::{unmade, unread, written_text},
};
use crate::{
    AttachKey, AttachPlan, AttachRefusal, AttachRequest, AttachStep, FabricConnection, FabricError, FabricOperation,
    FabricOutcome,
    plan::{devices_text, is_of},
    plan_attach,
};

impl RedfishClient {
    pub(super) async fn attach(&self, request: &AttachRequest) -> Result<FabricOutcome<FabricConnection>, FabricError> {
        let _turn = self.turn.acquire().await;
        let (reading, step) = self.planned(request).await?;
        let plan = match step {
            AttachStep::Already(connection) => {
                self.operations.remove(&request.key);
                return Ok(FabricOutcome::Done(connection));
            }
            AttachStep::Connect(plan) => plan,
        };
        self.operations.end_memory(&reading.inventory);
        if let Some((key, known)) = self.operations.holder(plan.device, &plan.key) {
            let connection = format!("{key} (under way)");
            return Err(AttachRefusal::DeviceHeld { device: plan.device, connection, host: known.host }.into());
        }
        if let Some(operation) = self.running(&request.key).await? {
            // Nothing is connected before there is memory. The end of the work on that is not the end of the attachment, so
            // it is not told as that: only this call goes on.
            let known = self.operations.get(&request.key);
            let is_memory = plan.make.is_some() || known.is_some_and(|known| known.makes_memory);
            return Ok(if is_memory { memory_under_way(&request.key) } else { FabricOutcome::UnderWay(operation) });
        }
        let (reading, plan) = match plan.make.clone() {
            None => (reading, plan),
            Some(make) => match self.make_memory(request, &plan, &make, reading).await? {
                ControlFlow::Continue(made) => made,
                ControlFlow::Break(outcome) => return Ok(outcome),
            },
        };
        let Some(record) = reading.records.iter().find(|record| record.fabric == plan.domain) else {
            return Err(AttachRefusal::Apart { host: plan.host, device: plan.device }.into());
        };
        let (collection, body) = (record.collection(), record.body(&plan));
        let call = WriteCall { method: Method::POST, path: &collection, body: Some(&body), etag: None };
        let written = record.service.write(call).await;
        self.settle(request, &plan, &reading, record, written).await
    }

    /// Plans a request. A refusal that older hardware may explain is checked against the hardware of now.
    async fn planned(&self, request: &AttachRequest) -> Result<(FabricReading, AttachStep), FabricError> {
        let recent = self.recent_hardware().await?;
        let reading = self.reading(Arc::clone(&recent)).await?;
        match plan_attach(&reading.inventory, request) {
            Ok(AttachStep::Connect(plan)) if !self.is_still(&reading, &plan).await? => {}
            Ok(step) => {
                let Some((domain, device)) = made_memory(&reading.inventory, &step) else { return Ok((reading, step)) };
                let hardware = self.read_memory_again(&recent, &domain, &device).await?;
                let reading = reading.with_hardware(hardware);
                let step = plan_attach(&reading.inventory, request)?;
                return Ok((reading, step));
            }
            Err(refusal @ AttachRefusal::DeviceHeld { .. }) => return Err(refusal.into()),
            Err(_) => {}
        }
        let reading = self.reading(self.read_hardware().await?).await?;
        let step = plan_attach(&reading.inventory, request)?;
        Ok((reading, step))
    }

    /// True if the device of a plan is the one that was there when the hardware was read: people swap devices.
    async fn is_still(&self, reading: &FabricReading, plan: &AttachPlan) -> Result<bool, RedfishError> {
        let Some(device) = reading.inventory.device(plan.device) else { return Ok(false) };
        let read = self.services.main.read(&device.path).await?;
        let identities = read.map(|read| read.document.identities());
        // A device that tells no identity has it from its endpoint.
        Ok(identities.is_some_and(|told| told.is_empty() || told == [plan.device]))
    }

    /// Says what a write has done, after reading it again.
    async fn settle(
        &self,
        request: &AttachRequest,
        plan: &AttachPlan,
        reading: &FabricReading,
        record: &FabricRecord,
        written: Result<HttpAnswer, RedfishError>,
    ) -> Result<FabricOutcome<FabricConnection>, FabricError> {
        if let Ok(answer) = &written
            && task::is_accepted(answer)
        {
            return self.accepted(request, plan, reading, record, answer).await;
        }
        let text = written_text(&record.service, &record.collection(), &written);
        let read = match self.made(record, &request.key, &written).await {
            Ok(read) => read,
            Err(error) => return Ok(FabricOutcome::unknown(unread(&text, &record.collection(), &error))),
        };
        match read {
            Some(read) => self.verified(request, plan, reading, read),
            None => Ok(absent(&reading.records, unmade(&text, &written, "connection"))),
        }
    }

    /// The connection after a write: under the path that the answer names, or with the key.
    async fn made(
        &self,
        record: &FabricRecord,
        key: &AttachKey,
        written: &Result<HttpAnswer, RedfishError>,
    ) -> Result<Option<ReadConnection>, RedfishError> {
        let named = written.as_ref().ok().filter(|answer| answer.is_success()).and_then(|answer| {
            let own = || answer.json().and_then(|body| body.get("@odata.id")?.as_str().map(str::to_owned));
            answer.location.clone().or_else(own).as_deref().and_then(super::document::path_of)
        });
        // A location may lead anywhere; only a connection of this key is believed.
        if let Some(path) = named.filter(|path| path.is_within(&record.fabric) && *path != record.fabric)
            && let Some(read) = record.read_connection(&path).await?
            && read.connection.key.as_ref() == Some(key)
        {
            return Ok(Some(read));
        }
        record.find(key).await
    }

    fn verified(
        &self,
        request: &AttachRequest,
        plan: &AttachPlan,
        reading: &FabricReading,
        read: ReadConnection,
    ) -> Result<FabricOutcome<FabricConnection>, FabricError> {
        let path = read.connection.path.clone();
        let mut connections = reading.inventory.connections.clone();
        connections.retain(|connection| connection.path != path);
        connections.push(read.connection);
        let inventory = conclude(&reading.hardware, connections, Vec::new());
        let Some(connection) = inventory.connections.iter().find(|connection| connection.path == path) else {
            return Ok(FabricOutcome::unknown(format!("{path} was read and cannot be found among the connections")));
        };
        self.operations.remove(&request.key);
        if is_of(&inventory, request, connection) {
            return Ok(FabricOutcome::Done(connection.clone()));
        }
        Err(FabricError::Mismatch {
            service: self.name().to_owned(),
            key: request.key.clone(),
            found: format!("{} to {}", devices_text(connection), connection.host_text()),
            asked: format!("device {} to {}", plan.device, plan.host),
        })
    }

    async fn accepted(
        &self,
        request: &AttachRequest,
        plan: &AttachPlan,
        reading: &FabricReading,
        record: &FabricRecord,
        answer: &HttpAnswer,
    ) -> Result<FabricOutcome<FabricConnection>, FabricError> {
        // Services that are quick may be done already; a failure to read tells nothing.
        if let Ok(Some(read)) = record.find(&request.key).await {
            return self.verified(request, plan, reading, read);
        }
        let monitor = task::monitor_of(answer);
        let operation = FabricOperation { monitor, state: None, percent: None };
        let (device, host) = (Some(plan.device), plan.host.to_string());
        let known = KnownOperation { operation: operation.clone(), device, host, makes_memory: false };
        self.operations.insert(&request.key, known);
        Ok(FabricOutcome::UnderWay(operation))
    }

    pub(super) async fn state(&self, key: &AttachKey) -> Result<FabricOutcome<FabricConnection>, FabricError> {
        let reading = self.reading(self.recent_hardware().await?).await?;
        self.operations.end_memory(&reading.inventory);
        let known = self.operations.get(key);
        let is_detaching = known.as_ref().is_some_and(|known| known.device.is_none());
        let connection = reading.inventory.connection(key).filter(|_| !is_detaching);
        if let Some(connection) = connection {
            self.operations.remove(key);
            return Ok(FabricOutcome::Done(connection.clone()));
        }
        let progress = match &known {
            Some(known) => self.progress(known).await?,
            None => self.running(key).await?.map_or(TaskProgress::Forgotten, TaskProgress::Running),
        };
        let ended = match progress {
            TaskProgress::Running(operation) => return Ok(FabricOutcome::UnderWay(operation)),
            TaskProgress::Ended => "; the service says that it has ended the work".to_owned(),
            TaskProgress::Failed(reason) => format!("; the service ended the work: {reason}"),
            TaskProgress::Forgotten => String::new(),
        };
        // The work may have ended between the two reads.
        let reading = self.reading(self.recent_hardware().await?).await?;
        self.operations.remove(key);
        if let Some(connection) = reading.inventory.connection(key) {
            return Ok(FabricOutcome::Done(connection.clone()));
        }
        let reason = format!("{} has no connection with key {key}{ended}", self.name());
        Ok(absent(&reading.records, FabricOutcome::not_done(reason)))
    }

    /// The work on a key that a service has not ended.
    pub(super) async fn running(&self, key: &AttachKey) -> Result<Option<FabricOperation>, RedfishError> {
        if let Some(known) = self.operations.get(key) {
            return match self.progress(&known).await? {
                TaskProgress::Running(operation) => Ok(Some(operation)),
                _ => Ok(None),
            };
        }
        let parallel = self.services.parallel;
        for service in std::iter::once(&self.services.main).chain(self.services.agents.values()) {
            if let Some(operation) = task::search(service, key, parallel).await? {
                return Ok(Some(operation));
            }
        }
        Ok(None)
    }

    async fn progress(&self, known: &KnownOperation) -> Result<TaskProgress, RedfishError> {
        let Some(monitor) = &known.operation.monitor else { return Ok(TaskProgress::Running(known.operation.clone())) };
        let mut last = TaskProgress::Forgotten;
        // The monitor lies at the manager of record; the other services answer that they have none.
        for service in std::iter::once(&self.services.main).chain(self.services.agents.values()) {
            last = task::progress(service, monitor).await?;
            if last != TaskProgress::Forgotten {
                break;
            }
        }
        Ok(last)
    }
}
