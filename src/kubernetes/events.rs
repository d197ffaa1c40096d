//! Events on claims, for failures that a user can mend and for containers that were bound to something else. Fed by
//! what the claims task and the audit tell; no call waits for it, and what cannot be written within half a minute is
//! lost: the log has it.

mod reason;

use std::{sync::Arc, time::SystemTime};

use hostler_api::{Chain, ClaimRef};
use hostler_cluster::{
    ApiFailure,
    events::{EventNote, EventOutcome, EventRecorder, EventSubject},
};
use hostler_reconcile::EventTries;
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::{Instant, sleep},
};
use tracing::debug;

pub use self::reason::note;
use super::{ClusterNode, claim_reader::is_name, claims_of, classic_claims_of};
use crate::{
    audit::AuditNews,
    claims::ClaimFailure,
    metrics::Metrics,
    tasks::{Outcome, Tasks},
};

/// Starts the task.
pub fn start(
    cluster: ClusterNode,
    failures_rx: broadcast::Receiver<ClaimFailure>,
    news_rx: broadcast::Receiver<Arc<AuditNews>>,
    metrics: Metrics,
    tasks: &Tasks,
) {
    let recorder = EventRecorder::new(cluster.client().clone(), cluster.driver(), cluster.node());
    let teller = FailureTeller { cluster, metrics, recorder, tries: EventTries::default() };
    let stop = tasks.stop_token();
    tasks.service("events", async move {
        tokio::select! {
            // Dropped in the middle of a call: the event is written or lost, and both are fine.
            outcome = teller.run(failures_rx, news_rx) => outcome,
            () = stop.cancelled() => Ok(()),
        }
    });
}

/// An Event about a claim.
struct ClaimEvent {
    claim: ClaimRef,
    note: EventNote,
    at: SystemTime,
}

fn of_failure(failure: ClaimFailure) -> Option<ClaimEvent> {
    Some(ClaimEvent { note: note(&failure.error)?, claim: failure.claim, at: failure.at })
}

fn of_news(news: AuditNews) -> ClaimEvent {
    ClaimEvent { claim: news.claim, note: EventNote::new(news.reason, news.message), at: news.at }
}

struct FailureTeller {
    cluster: ClusterNode,
    metrics: Metrics,
    recorder: EventRecorder,
    tries: EventTries,
}

impl FailureTeller {
    async fn run(
        mut self,
        mut failures_rx: broadcast::Receiver<ClaimFailure>,
        mut news_rx: broadcast::Receiver<Arc<AuditNews>>,
    ) -> Outcome {
        loop {
            // Cancel safe: what was not received is received the next time.
            let told = tokio::select! {
                failure = failures_rx.recv() => failure.map(of_failure),
                news = news_rx.recv() => news.map(|news| Some(of_news(Arc::unwrap_or_clone(news)))),
            };
            match told {
                Ok(Some(told)) => self.tell(&told).await,
                Ok(None) => {}
                Err(RecvError::Lagged(missed)) => debug!(missed, "failures came faster than their events"),
                // Their owner is gone: the daemon stops.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    async fn tell(&mut self, told: &ClaimEvent) {
        let ClaimEvent { claim, note, .. } = told;
        // What the kubelet calls a claim becomes part of a path, and a claim on record is not looked up by it before.
        if !is_name(&claim.namespace) || !is_name(&claim.name) {
            return;
        }
        let uid = &claim.uid;
        match self.keep_trying(told).await {
            Ok(EventOutcome::Written) => self.metrics.event_written(note.reason),
            Ok(EventOutcome::LeftOut) => {
                debug!(claim.uid = %uid, reason = note.reason, "too many events, one is left out");
            }
            Err(error) => debug!(claim.uid = %uid, error = %Chain(&error), "an event is lost"),
        }
    }

    async fn keep_trying(&mut self, told: &ClaimEvent) -> Result<EventOutcome, ApiFailure> {
        let from = Instant::now();
        loop {
            match self.warn(told).await {
                Ok(outcome) => {
                    self.tries.succeeded();
                    return Ok(outcome);
                }
                Err(failure) => sleep(self.tries.pause_after(failure, from)?).await,
            }
        }
    }

    async fn warn(&mut self, told: &ClaimEvent) -> Result<EventOutcome, ApiFailure> {
        let ClaimRef { namespace, name, uid } = &told.claim;
        let client = self.cluster.client();
        let claims = match client.version().await {
            Err(ApiFailure::NoResourceApi) => classic_claims_of(client.classic_version().await?, namespace),
            version => claims_of(version?, namespace),
        };
        let subject = EventSubject {
            api_version: claims.api_version(),
            kind: "ResourceClaim",
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.to_string(),
        };
        self.recorder.tell(&subject, &told.note, told.at).await
    }
}
