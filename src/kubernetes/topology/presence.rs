//! A watch of the exported object, one for each node that exports: tells when the object is gone.

use hostler_api::Chain;
use hostler_cluster::{FollowEvent, FollowScope, ListFreshness, RetryPauses};
use hostler_reconcile::ObjectWatch;
use tokio::sync::watch;
use tracing::debug;

use super::{FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REFUSED_PAUSE, collection};
use crate::{kubernetes::ClusterNode, metrics::Metrics, tasks::Tasks};

/// Tells each time that the object is not there. Where the role of before allows no watch, nothing is told, and the
/// exporter looks by itself now and then.
pub(super) fn watch_object(cluster: &ClusterNode, metrics: &Metrics, tasks: &Tasks) -> watch::Receiver<()> {
    let (gone_tx, gone_rx) = watch::channel(());
    let (cluster, metrics, stop) = (cluster.clone(), metrics.clone(), tasks.stop_token());
    tasks.job(async move {
        tokio::select! {
            // Reads only: it can be dropped anywhere.
            () = follow(&cluster, &metrics, &gone_tx) => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
    });
    gone_rx
}

async fn follow(cluster: &ClusterNode, metrics: &Metrics, gone_tx: &watch::Sender<()>) {
    let (selector, newest) = (format!("metadata.name={}", cluster.node()), ListFreshness::Newest);
    let scope = FollowScope::selected(collection(), &selector, newest, "the exported topology of this node");
    let pauses = RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REFUSED_PAUSE);
    let mut watch = ObjectWatch::new(cluster.client().clone(), scope).with_pauses(pauses);
    let mut is_listed = false;
    loop {
        match watch.next().await {
            Ok(FollowEvent::ListStarted) => is_listed = false,
            Ok(FollowEvent::Listed(_)) => is_listed = true,
            Ok(FollowEvent::ListEnded) if is_listed => {}
            // Also right after the start, when it may have been exported already: a second export of the same writes
            // nothing.
            Ok(FollowEvent::ListEnded | FollowEvent::Deleted(_)) => gone_tx.send_replace(()),
            Ok(FollowEvent::Applied(_) | FollowEvent::UpToDate) => {}
            Err(failure) => {
                debug!(error = %Chain(&failure), "the watch of the exported topology has ended");
                metrics.api_retried("topology");
            }
        }
    }
}
