//! The devices of this node that Reservations keep, as the spec of its NodeHardware says. The one writer of
//! [`HoldsWord`], and the one watch of the object: it tells the reports when the object is gone.
//!
//! ```text
//!             spec, or that there is none
//!   Unread ───────────────────────────────► Known      every change of the spec: Known, anew
//! ```
//!
//! Nothing is kept on disk. Nothing is published before the holds were read once since the start: slices outlive the
//! daemon and go on saying what they said, and a server that takes slices answers this question as well. The last holds
//! stay in force while the server is away, and while a deleted object is not made anew.

mod spec;

use std::sync::Arc;

use hostler_api::{
    Chain,
    hardware::{GROUP, NODE_HARDWARE, NODE_HARDWARE_KIND, NodeHardwareSpec, VERSION},
};
use hostler_cluster::{
    ApiFailure, ApiObject, Collection, FollowEvent, FollowScope, ListFreshness, RawObject, RetryPauses,
};
use hostler_reconcile::ObjectWatch;
use tokio::sync::watch;
use tracing::{debug, info, warn};

pub use self::spec::{HeldDevices, HoldsInForce, RefusedHold};
use super::ClusterNode;
use crate::{
    metrics::Metrics,
    tasks::{Outcome, Tasks},
};

/// Knowledge of the holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HoldsWord {
    /// Nothing since the start, and why, for people: any device may be held.
    Unread(String),
    /// This is held.
    Known(Arc<HeldDevices>),
}

/// Reader of the holds.
pub type HoldsReader = watch::Receiver<HoldsWord>;

/// The readers of the object's watch.
#[derive(Debug)]
pub struct HoldsReaders {
    /// The devices that are held.
    pub word_rx: HoldsReader,
    /// Changes each time that the object is not there.
    pub gone_rx: watch::Receiver<()>,
}

type StoredSpec = ApiObject<NodeHardwareSpec>;

impl HoldsWord {
    /// The devices that are held; absent where that is not known.
    pub fn known(&self) -> Option<&Arc<HeldDevices>> {
        match self {
            Self::Unread(_) => None,
            Self::Known(held) => Some(held),
        }
    }
}

/// Readers for a daemon without a NodeHardware: nothing can be held there.
pub fn none() -> HoldsReaders {
    let word_rx = watch::channel(HoldsWord::Known(Arc::default())).1;
    HoldsReaders { word_rx, gone_rx: watch::channel(()).1 }
}

/// Starts to read. It waits for the API server as long as it takes.
pub fn start(cluster: ClusterNode, metrics: Metrics, tasks: &Tasks) -> HoldsReaders {
    let unread = HoldsWord::Unread("the API server has not said yet which devices are held".to_owned());
    let (word_tx, word_rx) = watch::channel(unread);
    let (gone_tx, gone_rx) = watch::channel(());
    let selector = format!("metadata.name={}", cluster.node());
    // No cache may say what was true before a device was promised.
    let newest = ListFreshness::Newest;
    let scope = FollowScope::selected(collection(), &selector, newest, "what is held of this node");
    let watch = ObjectWatch::new(cluster.client().clone(), scope);
    let watcher = HoldsWatcher { cluster, metrics, watch, listed: None, word_tx, gone_tx };
    let stop = tasks.stop_token();
    tasks.service("holds", async move {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            // Reads only: it can be dropped anywhere.
            outcome = watcher.run() => outcome,
        }
    });
    HoldsReaders { word_rx, gone_rx }
}

struct HoldsWatcher {
    cluster: ClusterNode,
    metrics: Metrics,
    watch: ObjectWatch,
    /// The object, if it was in the list that is under way.
    listed: Option<RawObject>,
    word_tx: watch::Sender<HoldsWord>,
    gone_tx: watch::Sender<()>,
}

impl HoldsWatcher {
    async fn run(mut self) -> Outcome {
        loop {
            match self.watch.next().await {
                Ok(event) => self.observe(event),
                // A role of before there were holds allows to look, and no watch.
                Err(failure) if failure.code() == Some(403) => {
                    let failure = self.look().await.err().unwrap_or(failure);
                    self.lost(&failure);
                }
                Err(failure) => self.lost(&failure),
            }
        }
    }

    fn observe(&mut self, event: FollowEvent) {
        match event {
            FollowEvent::ListStarted => self.listed = None,
            FollowEvent::Listed(object) => self.listed = Some(object),
            FollowEvent::ListEnded => match self.listed.take() {
                Some(object) => self.read(&object),
                None => self.absent(),
            },
            FollowEvent::Applied(object) => self.read(&object),
            // The reports make it anew, and the controller says then what is held. Until then nothing was let go.
            FollowEvent::Deleted(_) => self.gone(),
            FollowEvent::UpToDate => {}
        }
    }

    /// Takes the object as the server tells it. One that makes no sense is there, and holds what it held.
    fn read(&self, object: &RawObject) {
        match object.read() {
            Ok(object) => self.say(&object),
            Err(error) => self.lost(&ApiFailure::unusable("read what is held of this node", error)),
        }
    }

    async fn look(&mut self) -> Result<(), ApiFailure> {
        match self.cluster.client().find(&collection(), self.cluster.node()).await? {
            Some(object) => self.say(&object),
            None => self.absent(),
        }
        Ok(())
    }

    /// The server has no object.
    fn absent(&self) {
        // Told first: the reports wait for the word, make the missing object, and have no more to make then.
        self.gone();
        self.nothing_held();
    }

    fn gone(&self) {
        self.gone_tx.send_replace(());
    }

    fn nothing_held(&self) {
        if self.word_tx.borrow().known().is_none() {
            self.know(HeldDevices::default());
        }
    }

    fn say(&self, object: &StoredSpec) {
        self.know(HeldDevices::of(&object.spec, object.generation()));
    }

    fn know(&self, held: HeldDevices) {
        let devices = held.len();
        let word = HoldsWord::Known(Arc::new(held));
        let modified = self.word_tx.send_if_modified(|latest| {
            let modified = *latest != word;
            *latest = word;
            modified
        });
        if modified && devices > 0 {
            info!(devices, "devices of this node are held");
        }
    }

    fn lost(&self, failure: &ApiFailure) {
        debug!(error = %Chain(failure), "the watch of what is held has ended");
        if failure.is_unknown_resource() {
            // Without the kind nothing can be held.
            return self.nothing_held();
        }
        self.metrics.api_retried("holds");
        self.word_tx.send_if_modified(|latest| {
            let HoldsWord::Unread(last) = latest else { return false };
            let reason = explained(failure, self.watch.pauses());
            let modified = *last != reason;
            if modified {
                warn!(error = %Chain(failure), "failed to read which devices are held");
            }
            *last = reason;
            modified
        });
    }
}

fn collection() -> Collection {
    Collection::custom(GROUP, VERSION, NODE_HARDWARE_KIND, NODE_HARDWARE)
}

/// Explains a failure, and says what to do about it.
fn explained(failure: &ApiFailure, pauses: &RetryPauses) -> String {
    let said = Chain(failure);
    match failure.code() {
        Some(403) => {
            let apply = "apply deploy/cluster, whose role allows to see it, or set cluster.node_hardware = false, which no \
                         device can be held with";
            format!("nobody knows which devices are held: {said}; {}", pauses.advice(apply))
        }
        _ => format!("nobody knows which devices are held: {said}"),
    }
}
