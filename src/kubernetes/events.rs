//! Events on claims, for failures that a user can mend. Fed by what the claims task tells; nobody waits for it, and what
//! cannot be written is lost: the log has it.

mod reason;

use hostler_api::{Chain, ClaimRef};
use hostler_cluster::{
    ApiFailure,
    events::{EventNote, EventOutcome, EventRecorder, EventSubject},
};
use tokio::sync::broadcast::{self, error::RecvError};
use tracing::debug;

pub use self::reason::note;
use super::{ClusterNode, claim_reader::is_name, claims_of};
use crate::{
    claims::ClaimFailure,
    metrics::Metrics,
    tasks::{Outcome, Tasks},
};

/// Starts the task.
pub fn start(cluster: ClusterNode, failures_rx: broadcast::Receiver<ClaimFailure>, metrics: Metrics, tasks: &Tasks) {
    let recorder = EventRecorder::new(cluster.client().clone(), cluster.driver(), cluster.node());
    let teller = FailureTeller { cluster, metrics, recorder };
    let stop = tasks.stop_token();
    tasks.service("events", async move {
        tokio::select! {
            // Dropped in the middle of a call: the event is written or lost, and both are fine.
            outcome = teller.run(failures_rx) => outcome,
            () = stop.cancelled() => Ok(()),
        }
    });
}

struct FailureTeller {
    cluster: ClusterNode,
    metrics: Metrics,
    recorder: EventRecorder,
}

impl FailureTeller {
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
        let Some(note) = note(&failure.error) else { return };
        // What the kubelet calls a claim becomes part of a path, and a claim on record is not looked up by it before.
        if !is_name(&failure.claim.namespace) || !is_name(&failure.claim.name) {
            return;
        }
        let uid = &failure.claim.uid;
        match self.warn(failure, &note).await {
            Ok(EventOutcome::Written) => self.metrics.event_written(note.reason),
            Ok(EventOutcome::LeftOut) => {
                debug!(claim.uid = %uid, reason = note.reason, "too many events, one is left out");
            }
            Err(error) => debug!(claim.uid = %uid, error = %Chain(&error), "an event is lost"),
        }
    }

    async fn warn(&mut self, failure: &ClaimFailure, note: &EventNote) -> Result<EventOutcome, ApiFailure> {
        let ClaimRef { namespace, name, uid } = &failure.claim;
        let claims = claims_of(self.cluster.client().version().await?, namespace);
        let subject = EventSubject {
            api_version: claims.api_version(),
            kind: "ResourceClaim",
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.to_string(),
        };
        self.recorder.warn(&subject, note, failure.at).await
    }
}
