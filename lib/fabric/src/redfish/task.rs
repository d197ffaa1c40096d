//! Work that a service does after its answer: task monitors, and tasks that an earlier process has begun.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use hostler_api::fabric::DeviceIdentity;
use serde_json::Value;

use super::{
    RedfishError,
    document::{Document, path_of},
    service::RedfishService,
    transport::HttpAnswer,
    walk::ServiceWalk,
};
use crate::{AttachKey, FabricInventory, FabricOperation, ObjectPath};

/// States in which a task has ended without having done its work.
const FAILED: [&str; 3] = ["Killed", "Exception", "Cancelled"];

/// Work under way, by key.
#[derive(Debug, Default)]
pub(super) struct OperationTable(Mutex<BTreeMap<AttachKey, KnownOperation>>);

/// Work that was begun here.
#[derive(Clone, Debug)]
pub(super) struct KnownOperation {
    pub(super) operation: FabricOperation,
    /// The device that the work attaches; `None` for a detachment.
    pub(super) device: Option<DeviceIdentity>,
    pub(super) host: String,
    /// True if the work makes the memory of the device, before it is connected.
    pub(super) makes_memory: bool,
}

/// The state of a task.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum TaskProgress {
    /// The service works on it.
    Running(FabricOperation),
    /// The service has ended it, as it says with success.
    Ended,
    /// The service has ended it without success: its words.
    Failed(String),
    /// The service has forgotten it.
    Forgotten,
}

impl OperationTable {
    pub(super) fn insert(&self, key: &AttachKey, known: KnownOperation) {
        self.lock().insert(key.clone(), known);
    }

    pub(super) fn get(&self, key: &AttachKey) -> Option<KnownOperation> {
        self.lock().get(key).cloned()
    }

    pub(super) fn remove(&self, key: &AttachKey) {
        self.lock().remove(key);
    }

    /// Forgets work on memory that is there now, where no monitor tells the end.
    pub(super) fn end_memory(&self, inventory: &FabricInventory) {
        let is_made = |known: &KnownOperation| known.device.is_some_and(|device| inventory.made_in(device).is_some());
        self.lock().retain(|_, known| !known.makes_memory || known.operation.monitor.is_some() || !is_made(known));
    }

    /// Work of another key that attaches a device.
    pub(super) fn holder(&self, device: DeviceIdentity, key: &AttachKey) -> Option<(AttachKey, KnownOperation)> {
        let table = self.lock();
        let mut others = table.iter().filter(|(other, known)| known.device == Some(device) && *other != key);
        others.next().map(|(other, known)| (other.clone(), known.clone()))
    }

    /// The key of work that attaches a device, among keys that are meant.
    pub(super) fn attaching(&self, device: DeviceIdentity, is_meant: impl Fn(&AttachKey) -> bool) -> Option<AttachKey> {
        let table = self.lock();
        table.iter().find(|(key, known)| known.device == Some(device) && is_meant(key)).map(|(key, _)| key.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<AttachKey, KnownOperation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The monitor that an answer names: its header, or the task in its body.
pub(super) fn monitor_of(answer: &HttpAnswer) -> Option<ObjectPath> {
    let in_header = answer.location.as_deref().and_then(path_of);
    let body = answer.json();
    let task = body.as_ref().filter(|body| body.get("TaskState").is_some());
    let in_task = task.and_then(|task| {
        let own = || task.get("@odata.id").and_then(Value::as_str);
        task.get("TaskMonitor").and_then(Value::as_str).or_else(own).and_then(path_of)
    });
    in_header.or(in_task)
}

/// True if an answer says that the service works on.
pub(super) fn is_accepted(answer: &HttpAnswer) -> bool {
    let state = answer.json().and_then(|body| Some(body.get("TaskState")?.as_str()? != "Completed"));
    answer.status == 202 || (answer.is_success() && state.unwrap_or_default())
}

/// Asks a monitor.
pub(super) async fn progress(service: &RedfishService, monitor: &ObjectPath) -> Result<TaskProgress, RedfishError> {
    let answer = service.get(monitor.as_str()).await?;
    let body = answer.json().unwrap_or_default();
    let document = Document { path: monitor.clone(), value: body };
    match answer.status {
        404 | 410 => Ok(TaskProgress::Forgotten),
        202 => Ok(TaskProgress::Running(operation_of(&document))),
        200..300 => Ok(match document.text("TaskState") {
            None | Some("Completed") => TaskProgress::Ended,
            Some(state) if FAILED.contains(&state) => TaskProgress::Failed(failure_of(state, &document)),
            Some(_) => TaskProgress::Running(operation_of(&document)),
        }),
        // A monitor gives the answer of the work itself, which may be a refusal.
        400..500 if ![401, 403, 408, 429].contains(&answer.status) => {
            Ok(TaskProgress::Failed(format!("status {}{}", answer.status, answer.said())))
        }
        _ => Err(service.refused("GET", monitor.as_str(), &answer)),
    }
}

fn operation_of(task: &Document) -> FabricOperation {
    FabricOperation {
        monitor: Some(task.path.clone()),
        state: task.text("TaskState").map(str::to_owned),
        percent: task.at(&["PercentComplete"]).and_then(Value::as_u64),
    }
}

fn failure_of(state: &str, task: &Document) -> String {
    const MOST_CHARACTERS: usize = 200;
    let messages = task.at(&["Messages"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let words: Vec<&str> = messages.iter().filter_map(|it| it.get("Message")?.as_str()).collect();
    let words: String = words.join("; ").chars().take(MOST_CHARACTERS).collect();
    if words.is_empty() { state.to_owned() } else { format!("{state}: {words}") }
}

/// Looks for a running task that was begun for a key, by this process or an earlier one.
pub(super) async fn search(
    service: &RedfishService,
    key: &AttachKey,
    parallel: usize,
) -> Result<Option<FabricOperation>, RedfishError> {
    let walk = ServiceWalk::new(service, parallel);
    let root = service.root().await?;
    let Some(link) = root.links(&["Tasks"]).into_iter().next() else { return Ok(None) };
    let Some(tasks) = walk.read(&link).await? else { return Ok(None) };
    let own = |task: Document| (is_running(&task) && is_for(&task, key)).then(|| operation_of(&task));
    Ok(walk.members(&tasks, "Tasks", own).await?.into_iter().flatten().next())
}

fn is_running(task: &Document) -> bool {
    task.text("TaskState").is_some_and(|state| state != "Completed" && !FAILED.contains(&state))
}

fn is_for(task: &Document, key: &AttachKey) -> bool {
    let payload = |field| task.at(&["Payload", field]).and_then(Value::as_str);
    let in_target = payload("TargetUri").and_then(path_of).is_some_and(|path| path.name() == key.as_str());
    let body: Option<Value> = payload("JsonBody").and_then(|body| serde_json::from_str(body).ok());
    in_target || body.is_some_and(|body| body.get("Id").and_then(Value::as_str) == Some(key.as_str()))
}
