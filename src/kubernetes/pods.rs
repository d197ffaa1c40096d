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

use std::{sync::Arc, time::Duration};

use hostler_api::Chain;
use hostler_cluster::{ApiFailure, Collection, FollowEvent, FollowScope, ListFreshness, RawObject, RetryPauses};
use hostler_reconcile::{ObjectStamp, ObjectWatch, Store};
use tokio::{sync::watch, time::Instant};
use tracing::{debug, info, warn};

use self::object::node_pod;
use super::{ClusterNode, wait_until};
use crate::{
    metrics::Metrics,
    pods::{NodePod, PodsOfNode, PodsReader},
    tasks::{Outcome, Tasks},
};

/// Time for which the last word counts when the watch is lost. A broken connection is made again within seconds, and an
/// API server that is replaced is back within a minute; until then hardly anything can have changed unheard. A watch
/// that is away for longer may have missed anything: a word that old is no fact any more.
const WORD_COUNTS: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// A role is granted by people, who can wait; each try is a call from every node of the cluster.
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(600);

/// Starts the watch. It waits for the API server as long as it takes.
pub fn start(cluster: &ClusterNode, metrics: Metrics, tasks: &Tasks) -> PodsReader {
    let unheard = PodsOfNode::Unknown("the API server has not answered yet".to_owned());
    let (pods_tx, pods_rx) = watch::channel(unheard);
    let watcher = PodWatcher { watch: pod_watch(cluster), metrics, word: LatestWord::new(pods_tx) };
    let stop = tasks.stop_token();
    tasks.service("pods", async move {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            // Reads only: it can be dropped anywhere.
            outcome = watcher.run() => outcome,
        }
    });
    pods_rx
}

fn pod_watch(cluster: &ClusterNode) -> ObjectWatch {
    let (all, selector) = (Collection::core("Pod", "pods"), format!("spec.nodeName={}", cluster.node()));
    let scope = FollowScope::selected(all, &selector, ListFreshness::Cached, "the pods of this node");
    let pauses = RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REFUSED_PAUSE);
    ObjectWatch::new(cluster.client().clone(), scope).with_pauses(pauses)
}

struct PodWatcher {
    watch: ObjectWatch,
    metrics: Metrics,
    word: LatestWord,
}

impl PodWatcher {
    async fn run(mut self) -> Outcome {
        loop {
            // Both arms are cancel safe: watches and timers lose nothing.
            tokio::select! {
                event = self.watch.next() => match event {
                    Ok(event) => self.word.observe(&event),
                    Err(failure) => self.fail(&failure),
                },
                () = wait_until(self.word.counts_until()) => self.word.expire(),
            }
        }
    }

    fn fail(&mut self, failure: &ApiFailure) {
        debug!(error = %Chain(failure), "the watch of pods has ended");
        self.word.lost(failure, self.watch.pauses(), Instant::now());
        self.metrics.api_retried("pods");
    }
}

/// True if the server is there and says that the daemon may not read pods.
fn is_refusal(failure: &ApiFailure) -> bool {
    matches!(failure.code(), Some(401 | 403))
}

/// The pods that the API server told of last, and whether that still counts.
struct LatestWord {
    pods_tx: watch::Sender<PodsOfNode>,
    /// Pods that make no sense have no value here.
    store: Store<Option<Arc<NodePod>>>,
    /// Moment since which the server is not heard, and the reason.
    lost: Option<(Instant, String)>,
}

impl LatestWord {
    fn new(pods_tx: watch::Sender<PodsOfNode>) -> Self {
        Self { pods_tx, store: Store::default(), lost: None }
    }

    fn observe(&mut self, event: &FollowEvent) {
        match event {
            // The list is all that counts: a server that was restored to an earlier state tells of older versions.
            FollowEvent::ListStarted => self.store = Store::default(),
            FollowEvent::Listed(object) => drop(self.see(object)),
            FollowEvent::ListEnded => {
                self.store.list_ended();
                self.lost = None;
                self.publish();
            }
            FollowEvent::Applied(object) if self.see(object) => self.publish(),
            FollowEvent::Deleted(object) => {
                if self.store.remove(&object.key(), ObjectStamp::from(&object.version())).is_some() {
                    self.publish();
                }
            }
            FollowEvent::Applied(_) | FollowEvent::UpToDate => {}
        }
    }

    /// Takes a pod; true if it is another one than before. One that makes no sense hides no other.
    fn see(&mut self, object: &RawObject) -> bool {
        let (key, stamp) = (object.key(), ObjectStamp::from(&object.version()));
        match object.read() {
            Ok(pod) => {
                let pod = node_pod(pod);
                self.store.see(&key, stamp, pod.clone()).is_some_and(|before| before.flatten() != pod)
            }
            Err(error) => {
                let seen = self.store.see_unreadable(&key, stamp, error.to_string(), None);
                if seen.as_ref().is_some_and(|seen| seen.is_first) {
                    warn!(pod = %key, error = %error, "failed to read a pod of this node");
                }
                seen.is_some_and(|seen| seen.replaced.flatten().is_some())
            }
        }
    }

    /// Says which pods there are. A list under way says nothing.
    fn publish(&self) {
        if !self.store.is_synced() {
            return;
        }
        let pods = self.store.iter().filter_map(|(_, pod)| pod.clone()).map(|pod| (pod.name.clone(), pod));
        let new = PodsOfNode::Known(Arc::new(pods.collect()));
        self.pods_tx.send_if_modified(|latest| {
            if !matches!(latest, PodsOfNode::Known(_)) {
                info!("the pods of this node are known");
            }
            let modified = *latest != new;
            *latest = new;
            modified
        });
    }

    /// The watch has ended. The last word counts for a while, unless the server says that the daemon may not read pods.
    fn lost(&mut self, failure: &ApiFailure, pauses: &RetryPauses, now: Instant) {
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
