//! Watches the pods of this node. The one writer of [`PodsOfNode`].
//!
//! ```text
//!             complete list                no answer for a minute
//!   Unknown ────────────────► Known ◄─────────────────────────► Stale       every change of a pod: Known, anew
//!      ▲                        │             complete list       │
//!      └────────────────────────┴──── the API server says no ─────┘
//! ```
//!
//! The daemon writes no pods, so what the watch says last is what is known. A server that says no is asked again ever
//! later: the role is optional, and may be granted at any time.

mod object;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hostler_api::Chain;
use hostler_cluster::{ApiFailure, Collection, ListFreshness, RetryPauses, WatchEvent};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_stream::StreamExt;
use tracing::{debug, info, warn};

use self::object::{PodObject, node_pod};
use super::{ClusterNode, wait_until};
use crate::{
    metrics::Metrics,
    pods::{NodePod, PodName, PodsOfNode, PodsReader},
    tasks::{Outcome, Tasks},
};

/// How long the last word counts when the watch is lost. A broken connection is made again within seconds, and an API
/// server that is replaced is back within a minute; until then hardly anything can have changed that nobody heard of.
/// Whoever is away for longer may have missed anything: what is that old is no fact any more.
const WORD_COUNTS: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// A role is granted by people, who can wait; each try is a call from every node of the cluster.
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(600);

/// Starts the watch. It waits for the API server as long as it takes.
pub fn start(cluster: ClusterNode, metrics: Metrics, tasks: &Tasks) -> PodsReader {
    let unheard = PodsOfNode::Unknown("the API server has not answered yet".to_owned());
    let (pods_tx, pods_rx) = watch::channel(unheard);
    let watch = PodWatch { cluster, metrics, word: LatestWord::new(pods_tx), freshness: ListFreshness::Streamed };
    let stop = tasks.stop_token();
    tasks.service("pods", async move {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            // Reads only: it can be dropped anywhere.
            outcome = watch.run() => outcome,
        }
    });
    pods_rx
}

struct PodWatch {
    cluster: ClusterNode,
    metrics: Metrics,
    word: LatestWord,
    /// A server that streams no lists is asked for one, until the daemon starts anew.
    freshness: ListFreshness,
}

impl PodWatch {
    async fn run(mut self) -> Outcome {
        let mut pauses = RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REFUSED_PAUSE);
        loop {
            let failure = self.follow().await;
            if self.freshness == ListFreshness::Streamed && failure.is_refused_stream() {
                debug!(error = %Chain(&failure), "the pods of this node are listed, not streamed");
                self.freshness = ListFreshness::Cached;
                continue;
            }
            if self.word.was_heard() {
                pauses.reset();
            }
            // Credentials are replaced within seconds, roles are not.
            let is_refused = failure.code() == Some(403);
            let pause = if is_refused { pauses.after_refusal(&failure) } else { pauses.after_outage(&failure) };
            debug!(error = %Chain(&failure), pause_ms = pause.as_millis(), "the watch of pods has ended");
            self.word.lost(&failure, &pauses, Instant::now());
            self.metrics.api_retried("pods");
            self.rest_until(Instant::now() + pause).await;
        }
    }

    /// Follows the watch to its end, which is a failure.
    async fn follow(&mut self) -> ApiFailure {
        let selector = format!("spec.nodeName={}", self.cluster.node());
        let all = Collection::core("Pod", "pods");
        let what = "the pods of this node";
        let mut events = self.cluster.client().watch::<PodObject>(&all, &selector, self.freshness, what);
        loop {
            // Both arms are cancel safe: streams and timers lose nothing.
            tokio::select! {
                Some(event) = events.next() => match event {
                    Ok(event) => self.word.observe(event.filter_map(node_pod)),
                    Err(failure) => return failure,
                },
                () = wait_until(self.word.counts_until()) => self.word.expire(),
            }
        }
    }

    async fn rest_until(&mut self, end: Instant) {
        loop {
            // Both arms are cancel safe: they only wait.
            tokio::select! {
                () = sleep_until(end) => return,
                () = wait_until(self.word.counts_until()) => self.word.expire(),
            }
        }
    }
}

/// Whether the server is there and says that pods are none of our business.
fn is_refusal(failure: &ApiFailure) -> bool {
    matches!(failure.code(), Some(401 | 403))
}

/// What the API server has said last, and whether that still counts.
struct LatestWord {
    pods_tx: watch::Sender<PodsOfNode>,
    /// A list that is not complete yet.
    listing: Option<BTreeMap<PodName, Arc<NodePod>>>,
    /// Since when nobody hears the server, and how that came.
    lost: Option<(Instant, String)>,
    /// Whether a complete list has come since it was last asked.
    heard: bool,
}

impl LatestWord {
    fn new(pods_tx: watch::Sender<PodsOfNode>) -> Self {
        Self { pods_tx, listing: None, lost: None, heard: false }
    }

    fn was_heard(&mut self) -> bool {
        std::mem::take(&mut self.heard)
    }

    fn observe(&mut self, event: Option<WatchEvent<Arc<NodePod>>>) {
        match event {
            None => {}
            Some(WatchEvent::ListStarted) => self.listing = Some(BTreeMap::new()),
            Some(WatchEvent::Listed(pod)) => {
                self.listing.get_or_insert_default().insert(pod.name.clone(), pod);
            }
            Some(WatchEvent::ListEnded) => self.take_list(),
            Some(WatchEvent::Applied(pod)) => self.change(|pods| match pods.get(&pod.name) {
                Some(known) if *known == pod => false,
                _ => {
                    pods.insert(pod.name.clone(), pod);
                    true
                }
            }),
            // Another one of its name may have been seen already.
            Some(WatchEvent::Deleted(pod)) => self.change(|pods| {
                let is_it = pods.get(&pod.name).is_some_and(|known| known.uid == pod.uid);
                is_it && pods.remove(&pod.name).is_some()
            }),
        }
    }

    fn take_list(&mut self) {
        let list = self.listing.take().unwrap_or_default();
        (self.lost, self.heard) = (None, true);
        self.pods_tx.send_if_modified(|latest| {
            let new = PodsOfNode::Known(Arc::new(list));
            if !matches!(latest, PodsOfNode::Known(_)) {
                info!("the pods of this node are known");
            }
            let modified = *latest != new;
            *latest = new;
            modified
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut BTreeMap<PodName, Arc<NodePod>>) -> bool) {
        self.pods_tx.send_if_modified(|latest| match latest {
            // Copied only if somebody looks at the last one at this moment.
            PodsOfNode::Known(pods) => change(Arc::make_mut(pods)),
            // Without a list there are no changes.
            _ => false,
        });
    }

    /// The watch has ended. What was heard counts on for a while, unless the server says that it is none of our business.
    fn lost(&mut self, failure: &ApiFailure, pauses: &RetryPauses, now: Instant) {
        self.listing = None;
        let reason = Chain(failure).to_string();
        if is_refusal(failure) {
            self.lost = None;
            let new = PodsOfNode::Unknown(refused(failure, reason.clone(), pauses));
            if *self.pods_tx.borrow() != new {
                info!(error = reason, "the pods of this node are not known; everything else works");
                self.pods_tx.send_replace(new);
            }
            return;
        }
        if matches!(*self.pods_tx.borrow(), PodsOfNode::Known(_)) {
            self.lost.get_or_insert((now, reason));
        } else {
            self.say_unknown(reason);
        }
    }

    /// Says why nothing is known; what is stale stays so.
    fn say_unknown(&self, reason: String) {
        self.pods_tx.send_if_modified(|latest| match latest {
            PodsOfNode::Unknown(known) if *known != reason => {
                *known = reason;
                true
            }
            _ => false,
        });
    }

    /// When the last word counts no more.
    fn counts_until(&self) -> Option<Instant> {
        self.lost.as_ref().map(|(since, _)| *since + WORD_COUNTS)
    }

    fn expire(&mut self) {
        let Some((_, reason)) = self.lost.take() else { return };
        self.pods_tx.send_if_modified(|latest| {
            let PodsOfNode::Known(pods) = latest else { return false };
            warn!(error = reason, "the pods of this node are not known any more");
            *latest = PodsOfNode::Stale(Arc::clone(pods), reason);
            true
        });
    }
}

/// Says what a refusal means, and what to do about it.
fn refused(failure: &ApiFailure, reason: String, pauses: &RetryPauses) -> String {
    let grant =
        "grant the daemon list and watch on pods (component `pods` of deploy/), or set cluster.watch_pods = false";
    if failure.code() == Some(403) { format!("{reason}; {}", pauses.advice(grant)) } else { reason }
}

#[cfg(test)]
mod tests;
