//! A watch of the exported object, one for each node that exports: tells when the object is gone.

use hostler_api::Chain;
use hostler_cluster::{ApiFailure, ApiObject, ListFreshness, RetryPauses, WatchEvent};
use serde::de::IgnoredAny;
use tokio::{sync::watch, time::sleep};
use tokio_stream::StreamExt;
use tracing::debug;

use super::{FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REFUSED_PAUSE, collection};
use crate::{kubernetes::ClusterNode, metrics::Metrics, tasks::Tasks};

/// An object of which nothing is read.
type AnyObject = ApiObject<IgnoredAny>;

/// Tells each time that the object is not there. Where the role of before allows no watch, nothing is told, and the exporter looks by
/// itself now and then.
pub(super) fn watch_object(cluster: &ClusterNode, metrics: &Metrics, tasks: &Tasks) -> watch::Receiver<()> {
    let (gone_tx, gone_rx) = watch::channel(());
    let (cluster, metrics, stop) = (cluster.clone(), metrics.clone(), tasks.stop_token());
    tasks.job(async move {
        tokio::select! {
            // Reads only: it can be dropped anywhere.
            () = follow_on(&cluster, &metrics, &gone_tx) => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
    });
    gone_rx
}

async fn follow_on(cluster: &ClusterNode, metrics: &Metrics, gone_tx: &watch::Sender<()>) {
    let mut pauses = RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REFUSED_PAUSE);
    loop {
        let mut is_heard = false;
        let failure = follow(cluster, gone_tx, &mut is_heard).await;
        if is_heard {
            pauses.reset();
        }
        let is_refused = failure.code() == Some(403) || failure.is_unknown_resource();
        let pause = if is_refused { pauses.after_refusal(&failure) } else { pauses.after_outage(&failure) };
        debug!(error = %Chain(&failure), pause_ms = pause.as_millis(), "the watch of the exported topology has ended");
        metrics.api_retried("topology");
        sleep(pause).await;
    }
}

/// Follows the watch to its end, which is a failure.
async fn follow(cluster: &ClusterNode, gone_tx: &watch::Sender<()>, is_heard: &mut bool) -> ApiFailure {
    let selector = format!("metadata.name={}", cluster.node());
    let what = "the exported topology of this node";
    let mut events = cluster.client().watch::<AnyObject>(&collection(), &selector, ListFreshness::Newest, what);
    let mut is_listed = false;
    while let Some(event) = events.next().await {
        let is_there = match event {
            Ok(WatchEvent::ListStarted) => {
                is_listed = false;
                continue;
            }
            Ok(WatchEvent::Listed(_)) => {
                is_listed = true;
                continue;
            }
            Ok(WatchEvent::ListEnded) => {
                *is_heard = true;
                is_listed
            }
            Ok(WatchEvent::Applied(_)) => true,
            Ok(WatchEvent::Deleted(_)) => false,
            Err(failure) => return failure,
        };
        // Also right after the start, when it may have been exported already: a second export of the same writes nothing.
        if !is_there {
            gone_tx.send_replace(());
        }
    }
    ApiFailure::unusable("watch the exported topology of this node", "the watch has ended")
}
