//! Events on claims, for failures that a user can mend. Fed by what the claims task tells; nobody waits for it, and what
//! cannot be written is lost: the log has it.
//!
//! Core `v1` Events, since these need one rule of access, and every version of `kubectl describe` shows their count.

mod log;
mod reason;

use hostler_api::ClaimUid;
use kube::{
    api::{Patch, PatchParams, PostParams},
    core::Request,
};
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use tracing::debug;

use self::log::{EventLog, Step};
pub use self::reason::{Notice, Reason, notice};
use hostler_api::{Chain, ClaimRef};

use super::{ApiFailure, Cluster, claim_reader::is_name};
use crate::{
    claims::ClaimFailure,
    metrics::Metrics,
    tasks::{Outcome, Tasks},
};

/// Starts the task.
pub fn start(cluster: Cluster, failures_rx: broadcast::Receiver<ClaimFailure>, metrics: Metrics, tasks: &Tasks) {
    let writer = Writer { cluster, metrics, log: EventLog::default() };
    let stop = tasks.stop_token();
    tasks.service("events", async move {
        tokio::select! {
            // Dropped in the middle of a call: the event is written or lost, and both are fine.
            outcome = writer.run(failures_rx) => outcome,
            () = stop.cancelled() => Ok(()),
        }
    });
}

struct Writer {
    cluster: Cluster,
    metrics: Metrics,
    log: EventLog,
}

impl Writer {
    async fn run(mut self, mut failures_rx: broadcast::Receiver<ClaimFailure>) -> Outcome {
        loop {
            match failures_rx.recv().await {
                Ok(failure) => self.tell(&failure).await,
                Err(RecvError::Lagged(missed)) => debug!(missed, "failures came faster than their events"),
                // The owner of the claims is gone: the daemon stops.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    async fn tell(&mut self, failure: &ClaimFailure) {
        let Some(notice) = notice(&failure.error) else { return };
        // What the kubelet calls a claim becomes part of a path, and a claim on record is not looked up by it before.
        if !is_name(&failure.claim.namespace) || !is_name(&failure.claim.name) {
            return;
        }
        let step = self.log.step(&failure.claim, &notice, failure.at);
        let written = match &step {
            Step::Drop => {
                debug!(claim.uid = %failure.claim.uid, reason = notice.reason.as_str(), "too many events, one is left out");
                return;
            }
            Step::Create(name) => self.create(name, failure, &notice).await,
            Step::Count { name, count } => match self.count(name, *count, failure).await {
                // Events do not live long.
                Err(error) if error.code() == Some(404) => self.create(name, failure, &notice).await,
                written => written,
            },
        };
        match written {
            Ok(()) => self.metrics.event_written(notice.reason.as_str()),
            Err(error) => {
                self.log.forget(&failure.claim.uid, &notice);
                debug!(claim.uid = %failure.claim.uid, error = %Chain(&error), "an event is lost");
            }
        }
    }

    async fn create(&self, name: &str, failure: &ClaimFailure, notice: &Notice) -> Result<(), ApiFailure> {
        let version = self.cluster.version().await?;
        let event = event(name, failure, notice, &version.group_version(), self.cluster.driver(), self.cluster.node());
        let request = Request::new(path(&failure.claim)).create(&PostParams::default(), event.to_string().into_bytes());
        self.cluster.fetch::<Value>(format!("create Event {name}"), request).await.map(drop)
    }

    async fn count(&self, name: &str, count: u32, failure: &ClaimFailure) -> Result<(), ApiFailure> {
        let patch = json!({"count": count, "lastTimestamp": timestamp(failure.at)});
        let request = Request::new(path(&failure.claim)).patch(name, &PatchParams::default(), &Patch::Merge(&patch));
        self.cluster.fetch::<Value>(format!("count Event {name}"), request).await.map(drop)
    }
}

fn path(claim: &ClaimRef) -> String {
    format!("/api/v1/namespaces/{}/events", claim.namespace)
}

fn timestamp(at: std::time::SystemTime) -> Value {
    let at = k8s_openapi::jiff::Timestamp::try_from(at).unwrap_or_else(|_| k8s_openapi::jiff::Timestamp::now());
    json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at))
}

/// The whole Event.
fn event(name: &str, failure: &ClaimFailure, notice: &Notice, api_version: &str, driver: &str, node: &str) -> Value {
    let ClaimRef { namespace, name: claim, uid } = &failure.claim;
    let at = timestamp(failure.at);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": api_version, "kind": "ResourceClaim", "namespace": namespace, "name": claim, "uid": uid,
        },
        "type": "Warning",
        "reason": notice.reason.as_str(),
        "message": notice.message,
        "source": {"component": driver, "host": node},
        "reportingComponent": driver,
        "reportingInstance": node,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    })
}

#[cfg(test)]
mod tests;
