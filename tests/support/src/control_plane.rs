//! The controllers of a cluster that users of claims depend on, as a real 1.36 has them: the garbage collector, the
//! controller of claims, the scheduler, and the end of namespaces. Each reads the whole state and returns its next
//! write: a test makes one step at a time, makes a step later, or runs all of them.
//!
//! ```text
//!   ApiServerView ──► collector, claims, scheduler, namespaces ──► ControllerCommand ──► the server, like a client's
//!                                   ▲                                                          │
//!                                   └──────────────── what became of it ◄─────────────────────┘
//! ```
//!
//! What they do not do: score nodes, evict, preempt, mark nodes, run pods.

mod claims;
mod classic;
mod collector;
mod namespaces;
mod places;
mod scheduler;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::apiserver::{ApiServer, ApiServerView, StatusError};

pub use classic::ClassicControlPlane;

use claims::ClaimController;
use collector::GarbageCollector;
use namespaces::NamespaceController;
use scheduler::Scheduler;

/// A write of a controller, with its name.
#[derive(Clone, Debug)]
pub struct ControllerCommand {
    /// The controller's name towards the server.
    pub who: &'static str,
    /// The write.
    pub write: ControllerWrite,
}

/// A write of a controller. The metadata of an object tells which one it is, and whether the version matters.
#[derive(Clone, Debug)]
pub enum ControllerWrite {
    /// A new object.
    Create(Value),
    /// The whole of an object.
    Update(Value),
    /// The status of an object.
    UpdateStatus(Value),
    /// A part of a status, which this controller owns then, also if it had another owner.
    ApplyStatus(Value),
    /// A strategic merge patch of a status.
    PatchStatus(Value),
    /// An object goes, under preconditions, as `propagationPolicy` says.
    Delete {
        /// The object.
        object: Value,
        /// Options of the deletion.
        options: Value,
    },
    /// A pod gets its node.
    Bind {
        /// The pod.
        pod: Value,
        /// The node.
        node: String,
    },
}

/// All controllers of a cluster.
#[derive(Debug, Default)]
pub struct ControlPlane {
    collector: GarbageCollector,
    claims: ClaimController,
    scheduler: Scheduler,
    namespaces: NamespaceController,
}

impl ControlPlane {
    /// Returns the controllers of a cluster that starts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the next write of all controllers; `None` if there is nothing to do.
    pub fn next(&mut self, view: &ApiServerView<'_>) -> Option<ControllerCommand> {
        let claims = self.claims.next(view).or_else(|| self.collector.next(view));
        claims.or_else(|| self.namespaces.next(view)).or_else(|| self.scheduler.next(view))
    }

    /// Returns the scheduler's next write.
    pub fn next_of_scheduler(&mut self, view: &ApiServerView<'_>) -> Option<ControllerCommand> {
        self.scheduler.next(view)
    }

    /// The scheduler begins anew: it reads what there is, and nothing else is left of what it knew.
    pub fn restart_scheduler(&mut self) {
        self.scheduler = Scheduler::default();
    }

    /// Returns the next write of the controller of claims.
    pub fn next_of_claims(&mut self, view: &ApiServerView<'_>) -> Option<ControllerCommand> {
        self.claims.next(view)
    }

    /// Returns the garbage collector's next write.
    pub fn next_of_collector(&mut self, view: &ApiServerView<'_>) -> Option<ControllerCommand> {
        self.collector.next(view)
    }

    /// Writes, and tells the controller what became of it.
    pub fn carry_out(&mut self, server: &ApiServer, command: &ControllerCommand) -> Result<(), StatusError> {
        let result = server.carry_out(command);
        if command.who == scheduler::NAME {
            self.scheduler.told(command, result.as_ref().err());
        }
        result.map(drop)
    }

    /// Makes one write; returns true if there was one. A refused write is tried again when something else has changed.
    pub fn step(&mut self, server: &ApiServer) -> bool {
        let Some(command) = server.look(|view| self.next(view)) else { return false };
        // Refused writes are the server's to judge: the next look sees why.
        let _ = self.carry_out(server, &command);
        true
    }

    /// Makes steps until there is nothing to do.
    pub fn settle(&mut self, server: &ApiServer) {
        const MOST: usize = 10_000;
        let steps = (0..MOST).take_while(|_| self.step(server)).count();
        assert!(steps < MOST, "the controllers do not come to rest");
    }

    /// Runs until the task is aborted or the server is gone.
    pub fn run(mut self, server: &Arc<ApiServer>) -> JoinHandle<()> {
        let server = Arc::clone(server);
        let mut changes = server.changes();
        tokio::spawn(async move {
            loop {
                changes.mark_unchanged();
                self.settle(&server);
                // Their own writes have them look once more, in vain.
                if changes.changed().await.is_err() {
                    return;
                }
            }
        })
    }
}

/// Returns the fields of an object that identify it.
fn identity(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut named = json!({ "name": metadata["name"], "uid": metadata["uid"] });
    if let Some(namespace) = metadata["namespace"].as_str() {
        named["namespace"] = json!(namespace);
    }
    json!({ "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": named })
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn path_of(object: &Value) -> String {
    let metadata = &object["metadata"];
    match text(metadata, "namespace") {
        "" => text(metadata, "name").to_owned(),
        namespace => format!("{namespace}/{}", text(metadata, "name")),
    }
}

/// An event about a pod.
fn event(pod: &Value, kind: &str, reason: &str, message: &str, who: &str) -> Value {
    let metadata = &pod["metadata"];
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    json!({
        "apiVersion": "v1", "kind": "Event", "type": kind, "reason": reason, "message": message,
        "metadata": { "generateName": format!("{}.", text(metadata, "name")), "namespace": metadata["namespace"] },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
        },
        "source": { "component": who }, "reportingComponent": who, "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    })
}

#[cfg(test)]
mod tests;
