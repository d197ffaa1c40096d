//! The devices of this node that Reservations keep, as the spec of its NodeHardware says. The one writer of [`HoldsWord`],
//! and the one watch of the object: it tells the reports when the object is gone.
//!
//! ```text
//!             spec, or that there is none
//!   Unread ───────────────────────────────► Known      every change of the spec: Known, anew
//! ```
//!
//! Nothing is kept on disk. As long as nobody has read what is held since the start, nothing is published: slices outlive
//! the daemon and go on saying what they said, and a server that takes slices answers this question as well. What is known
//! stays true while the server is away, and while nobody has made an object anew that was deleted.

mod spec;

use std::{sync::Arc, time::Duration};

use hostler_api::{
    Chain,
    hardware::{GROUP, NODE_HARDWARE, NODE_HARDWARE_KIND, NodeHardwareSpec, VERSION},
};
use hostler_cluster::{ApiFailure, ApiObject, Collection, ListFreshness, RetryPauses, WatchEvent};
use tokio::{sync::watch, time::sleep};
use tokio_stream::StreamExt;
use tracing::{debug, info, warn};

pub use self::spec::{HeldDevices, HoldsInForce, RefusedHold};
use super::ClusterNode;
use crate::{
    metrics::Metrics,
    tasks::{Outcome, Tasks},
};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// A CRD and a role are made by people, who can wait; each try is a call from every node of the cluster.
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// What is known of the holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HoldsWord {
    /// Nothing since the start, and why, for people: any device may be held.
    Unread(String),
    /// This is held.
    Known(Arc<HeldDevices>),
}

/// What others see of the holds.
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
    /// What is held; absent where nobody knows.
    pub fn known(&self) -> Option<&Arc<HeldDevices>> {
        match self {
            Self::Unread(_) => None,
            Self::Known(held) => Some(held),
        }
    }
}

/// For a daemon that has no NodeHardware: nobody can have it hold anything.
pub fn none() -> HoldsReaders {
    let word_rx = watch::channel(HoldsWord::Known(Arc::default())).1;
    HoldsReaders { word_rx, gone_rx: watch::channel(()).1 }
}

/// Starts to read. It waits for the API server as long as it takes.
pub fn start(cluster: ClusterNode, metrics: Metrics, tasks: &Tasks) -> HoldsReaders {
    let unread = HoldsWord::Unread("the API server has not said yet which devices are held".to_owned());
    let (word_tx, word_rx) = watch::channel(unread);
    let (gone_tx, gone_rx) = watch::channel(());
    let watch = HoldsWatch { cluster, metrics, word_tx, gone_tx };
    let stop = tasks.stop_token();
    tasks.service("holds", async move {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            // Reads only: it can be dropped anywhere.
            outcome = watch.run() => outcome,
        }
    });
    HoldsReaders { word_rx, gone_rx }
}

struct HoldsWatch {
    cluster: ClusterNode,
    metrics: Metrics,
    word_tx: watch::Sender<HoldsWord>,
    gone_tx: watch::Sender<()>,
}

impl HoldsWatch {
    async fn run(self) -> Outcome {
        let mut pauses = RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REFUSED_PAUSE);
        loop {
            let mut heard = false;
            let failure = self.follow(&mut heard).await;
            // A role of before there were holds allows to look, and no watch.
            let failure =
                if failure.code() == Some(403) { self.look().await.err().unwrap_or(failure) } else { failure };
            if heard {
                pauses.reset();
            }
            let is_refused = failure.code() == Some(403) || failure.is_unknown_resource();
            let pause = if is_refused { pauses.after_refusal(&failure) } else { pauses.after_outage(&failure) };
            self.lost(&failure, &pauses);
            sleep(pause).await;
        }
    }

    /// Follows the watch to its end, which is a failure.
    async fn follow(&self, heard: &mut bool) -> ApiFailure {
        let selector = format!("metadata.name={}", self.cluster.node());
        // No cache may say what was true before somebody was promised a device.
        let newest = ListFreshness::Newest;
        let mut events =
            self.cluster.client().watch::<StoredSpec>(&collection(), &selector, newest, "what is held of this node");
        let mut listed = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::ListStarted) => listed = None,
                Ok(WatchEvent::Listed(object)) => listed = Some(object),
                Ok(WatchEvent::ListEnded) => {
                    *heard = true;
                    self.found(listed.take());
                }
                Ok(WatchEvent::Applied(object)) => self.say(&object),
                // The reports make it anew, and the controller says then what is held. Until then nothing was let go.
                Ok(WatchEvent::Deleted(_)) => self.gone(),
                Err(failure) => return failure,
            }
        }
        ApiFailure::unusable("watch what is held of this node", "the watch has ended")
    }

    async fn look(&self) -> Result<(), ApiFailure> {
        match self.cluster.client().get::<StoredSpec>(&collection(), self.cluster.node()).await {
            Ok(object) => self.say(&object),
            Err(failure) if failure.code() == Some(404) && !failure.is_unknown_resource() => self.found(None),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Takes the object as the server has it, if it has one.
    fn found(&self, object: Option<StoredSpec>) {
        // Told first: the reports wait for the word, make the missing object, and have no more to make then.
        if object.is_none() {
            self.gone();
        }
        self.listed(object);
    }

    fn gone(&self) {
        self.gone_tx.send_replace(());
    }

    fn listed(&self, object: Option<StoredSpec>) {
        match object {
            Some(object) => self.say(&object),
            None if self.word_tx.borrow().known().is_none() => self.know(HeldDevices::default()),
            None => {}
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

    fn lost(&self, failure: &ApiFailure, pauses: &RetryPauses) {
        debug!(error = %Chain(failure), "the watch of what is held has ended");
        if failure.is_unknown_resource() {
            // Without the kind nobody can hold anything.
            return self.listed(None);
        }
        self.metrics.api_retried("holds");
        self.word_tx.send_if_modified(|latest| {
            let HoldsWord::Unread(last) = latest else { return false };
            let reason = explained(failure, pauses);
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

/// What a failure means, and what to do about it.
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
